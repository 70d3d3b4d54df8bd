"""Streams that advance together keep what they had read if a step fails, and leave no places behind."""

import threading
from itertools import chain

import pytest

from antiphon.device import CAPTURING
from antiphon.serve.stream_socket import TOKENS_AT_ONCE, steps_of
from antiphon.serve.streams import OpenStream, StreamPool, StreamSearch, StreamStep

SEARCH = StreamSearch()


def output_of(model, *texts):
    """What streams write for these texts if nothing fails."""
    pool, streams = StreamPool(model, SEARCH), [OpenStream() for _ in texts]
    found = pool.advance([StreamStep(*pair, ends=True) for pair in zip(streams, texts, strict=True)])
    return [[*chain(*each.written), *each.rest] for each in found]


@pytest.mark.parametrize("failing_call", [0, 1])
def test_after_a_step_that_fails_streams_have_read_what_they_had_read_before(models, monkeypatch, failing_call):
    model = models["online"]
    pool, streams = StreamPool(model, SEARCH), [OpenStream(), OpenStream()]
    written = [[], []]

    def advance(*pieces, ends=False):
        given = zip(streams, pieces, strict=True)
        for output, result in zip(written, pool.advance([StreamStep(*each, ends=ends) for each in given]), strict=True):
            output += [*chain(*result.written), *result.rest]

    advance("d", "b")
    calls, original = [], pool.group.advance

    def fail(*given):
        calls.append(given)
        if len(calls) > failing_call:
            raise MemoryError
        return original(*given)

    monkeypatch.setattr(pool.group, "advance", fail)
    with pytest.raises(MemoryError):
        advance("ag", "um")
    advance("ag", "um")
    advance("i", "o", ends=True)
    assert written == output_of(model, "dagi", "bumo")


def test_the_place_of_a_closed_stream_is_free_after_the_next_step(models):
    pool = StreamPool(models["online"], SEARCH)
    for _ in range(20):
        stream = OpenStream()
        pool.advance([StreamStep(stream, "da")])
        pool.close(stream)
    assert len(pool.group) <= 3


def test_a_stream_that_is_closed_while_its_step_is_computed_leaves_no_place(models):
    pool, stream = StreamPool(models["online"], SEARCH), OpenStream()
    pool.close(stream)
    pool.advance([StreamStep(stream, "da")])
    assert stream.group is None


def test_streams_compute_nothing_while_a_step_of_a_search_is_captured(models):
    pool, stream = StreamPool(models["online"], SEARCH), OpenStream()
    advancing = threading.Thread(target=pool.advance, args=([StreamStep(stream, "da")],))
    with CAPTURING:
        advancing.start()
        advancing.join(0.05)
        assert not stream.read
    advancing.join(30)
    assert stream.read == ["d", "a"]


def test_a_step_reads_few_tokens_however_long_a_piece_is():
    pieces = ["a" * 20, "", "bc", "d", "e" * 7]
    steps = list(steps_of(pieces, [list(piece) for piece in pieces]))
    assert all(sum(len(part.tokens) for part in step) <= TOKENS_AT_ONCE <= 8 for step in steps)  # as long as 8 letters
    parts = [part for step in steps for part in step]
    assert [token for part in parts for token in part.tokens] == [*"".join(pieces)]
    assert [part.piece for part in parts if part.piece is not None] == pieces
