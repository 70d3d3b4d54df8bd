import dataclasses
from itertools import product

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from antiphon.data.batch import Batch
from antiphon.data.vocab import END, SPECIALS
from antiphon.lattice import best_path
from antiphon.models.transducer import Transducer
from antiphon.search.hypothesis import BeamSettings
from antiphon.search.transducer_beam import ColumnSearch, search_transducer

WIDE = BeamSettings(beam=200, nbest=5, threshold=float("inf"), max_length_ratio=0.0, max_length_extra=4)


def small_model(seed=0, target_size=6, **settings):
    torch.manual_seed(seed)
    model = Transducer(9, target_size, hidden_size=6, embedding_size=5, **settings).double()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(4.0)
    return model.eval()


def sources(*lengths, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return [torch.randint(4, 9, (length,), generator=generator).numpy() for length in lengths]


def every_output(model, source, longest):
    """Every output of at most ``longest`` tokens, end included, with its best-path score, best first."""
    words = range(len(SPECIALS), model.target_logits.out_features)
    scored = []
    for length in range(longest):
        for words_written in product(words, repeat=length):
            batch = Batch.of([source], [torch.tensor(words_written).numpy()])
            path = best_path(*model.moves(batch), batch.source_lengths, batch.target_lengths)
            scored.append((path.log_score.item(), (*words_written, END), tuple(path.rows[0].tolist())))
    return sorted(scored, reverse=True)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("settings", [{}, {"transition": "geometric"}, {"final_emit": "forced", "layers": 2}])
@torch.no_grad()
def test_a_beam_wider_than_all_paths_equals_exhaustive_search(seed, settings):
    model = small_model(seed, **settings)
    (source,) = sources(3, seed=seed)
    found = search_transducer(model, Batch.of([source]), WIDE)[0]
    listed = every_output(model, source, longest=4)[: len(found)]
    assert [hypothesis.tokens for hypothesis in found] == [tokens for _, tokens, _ in listed]
    assert [hypothesis.rows for hypothesis in found] == [rows for _, _, rows in listed]
    assert [hypothesis.log_score for hypothesis in found] == pytest.approx([score for score, _, _ in listed])


@pytest.mark.parametrize("beam", [1, 3, 10])
def test_a_batch_gives_what_single_sentences_give(beam):
    model = small_model(target_size=12)
    settings = BeamSettings(beam=beam, nbest=3)
    inputs = sources(1, 7, 3, 0, 12)
    together = search_transducer(model, Batch.of(inputs), settings)
    for source, found in zip(inputs, together, strict=True):
        (alone,) = search_transducer(model, Batch.of([source]), settings)
        assert [h.tokens for h in found] == [h.tokens for h in alone]
        assert [h.rows for h in found] == [h.rows for h in alone]
        assert [h.log_score for h in found] == pytest.approx([h.log_score for h in alone])


def test_the_score_of_an_answer_is_the_score_of_its_best_path():
    model = small_model(3, target_size=12)
    batch = Batch.of(sources(6, 4))
    for b, found in enumerate(search_transducer(model, batch, BeamSettings(beam=8, nbest=4))):
        for hypothesis in found:
            source = batch.source[b, : batch.source_lengths[b] - 1].numpy()
            pair = Batch.of([source], [torch.tensor(hypothesis.tokens[:-1], dtype=torch.long).numpy()])
            path = best_path(*model.moves(pair), pair.source_lengths, pair.target_lengths)
            # A narrow beam may reach an output by a path that is not its very best.
            assert hypothesis.log_score <= path.log_score.item() + 1e-9
            assert list(hypothesis.rows) == sorted(hypothesis.rows)
            assert hypothesis.rows[-1] == batch.source_lengths[b] - 1


def test_a_wider_beam_never_finds_a_worse_answer_here():
    model = small_model(5, target_size=20)
    batch = Batch.of(sources(8, 5, 9))
    best = [
        [found[0].log_score for found in search_transducer(model, batch, BeamSettings(beam=beam))]
        for beam in (1, 4, 40)
    ]
    assert all(narrow <= wide + 1e-9 for narrow, wide in zip(best[0], best[2], strict=True))
    assert all(middle <= wide + 1e-9 for middle, wide in zip(best[1], best[2], strict=True))


@pytest.mark.parametrize("limit", [1, 2, 5])
def test_an_output_ends_by_the_longest_length_allowed(limit):
    model = small_model(1, target_size=12)
    settings = BeamSettings(beam=2, nbest=3, max_length_ratio=0.0, max_length_extra=limit)
    (found,) = search_transducer(model, Batch.of(sources(3)), settings)
    assert max(len(hypothesis.tokens) for hypothesis in found) <= limit
    assert all(hypothesis.tokens[-1] == END for hypothesis in found)


def test_the_threshold_of_the_default_changes_no_answer_here():
    model = small_model(2, target_size=30)
    batch = Batch.of(sources(5, 9, 2, 7))
    with_threshold = search_transducer(model, batch, BeamSettings(beam=5))
    without = search_transducer(model, batch, BeamSettings(beam=5, threshold=float("inf")))
    assert [f[0].tokens for f in with_threshold] == [f[0].tokens for f in without]


@pytest.mark.parametrize("outputs", [1, 2, 5])
def test_no_more_distinct_outputs_of_one_length_are_kept_than_asked_for(outputs):
    model = small_model(2, target_size=30)
    search = ColumnSearch(model, Batch.of(sources(5, 9, 2)), BeamSettings(beam=5, outputs=outputs))
    step, widths = search._step, []

    def count(column):
        after, written = step(column)
        widths.extend((after.arrival > float("-inf")).any(1).sum(1).tolist())
        return after, written

    search._step = count
    search.run()
    assert max(widths) == outputs


def test_as_many_outputs_as_there_are_change_nothing():
    model = small_model(2, target_size=30)
    batch = Batch.of(sources(5, 9, 2, 7))
    assert search_transducer(model, batch, BeamSettings(beam=5, outputs=10_000)) == search_transducer(
        model, batch, BeamSettings(beam=5)
    )


@pytest.mark.parametrize(("normalisation", "bias"), [(1.0, 0.0), (0.5, 0.3), (0.0, 1.0)])
@torch.no_grad()
def test_finished_outputs_are_ranked_with_length_bias_and_normalisation(normalisation, bias):
    settings = dataclasses.replace(WIDE, length_normalisation=normalisation, length_bias=bias)
    for seed in range(3):
        model = small_model(seed)
        (source,) = sources(3, seed=seed)
        (found,) = search_transducer(model, Batch.of([source]), settings)
        listed = sorted(
            (((score + bias * len(tokens)) / len(tokens) ** normalisation, tokens))
            for score, tokens, _ in every_output(model, source, longest=4)
        )[::-1][: len(found)]
        assert [hypothesis.tokens for hypothesis in found] == [tokens for _, tokens in listed]
        assert [hypothesis.log_score for hypothesis in found] == pytest.approx([score for score, _ in listed])


def assert_same_answers(found, wanted, rel=None):
    assert [[h.tokens for h in each] for each in found] == [[h.tokens for h in each] for each in wanted]
    assert [[h.rows for h in each] for each in found] == [[h.rows for h in each] for each in wanted]
    for ours, theirs in zip(found, wanted, strict=True):
        assert [h.log_score for h in ours] == pytest.approx([h.log_score for h in theirs], rel=rel)
        assert [h.parts for h in ours] == [pytest.approx(h.parts, rel=rel) for h in theirs]


FIXED = [
    {"beam": 1, "outputs": 10},
    {"beam": 4, "outputs": 3, "nbest": 3},
    {"beam": 4, "outputs": 8, "nbest": 3, "length_normalisation": 1.0},
    {"beam": 3, "outputs": 1000, "threshold": 2.0, "max_length_ratio": 0.5, "max_length_extra": 2},
]


@pytest.mark.parametrize("settings", FIXED)
@pytest.mark.parametrize("target_size", [6, 30])
@torch.no_grad()
def test_fixed_shapes_change_no_answer(settings, target_size):
    model, batch = small_model(2, target_size=target_size), Batch.of(sources(5, 9, 0, 7))
    wanted = search_transducer(model, batch, BeamSettings(**settings))
    found = ColumnSearch(model, batch, BeamSettings(**settings), fixed_shapes=True).run()
    assert_same_answers(found, wanted)


def assert_the_host_never_waits(search, monkeypatch):
    """Columns of tensors without values, of which the host could ask nothing; their shapes stay as they are."""
    monkeypatch.setattr("antiphon.nn.transition._fits_factors", lambda *sides: False)  # asked on a CPU alone
    column = search._first_column()
    with FakeTensorMode(allow_non_fake_inputs=True):
        after, _ = search._step(search._step(column)[0])
    for leaf, leaf_after in zip(leaves(column), leaves(after), strict=True):
        assert (leaf.shape, leaf.dtype) == (leaf_after.shape, leaf_after.dtype)


def leaves(tree):
    if isinstance(tree, tuple):
        return [leaf for branch in tree for leaf in leaves(branch)]
    return [tree] if isinstance(tree, torch.Tensor) else []


@pytest.mark.parametrize("settings", [{}, {"transition": "geometric"}, {"final_emit": "forced", "layers": 2}])
@torch.no_grad()
def test_the_host_never_waits_for_a_column_of_fixed_shapes(settings, monkeypatch):
    model, batch = small_model(2, target_size=30, **settings), Batch.of(sources(5, 9, 2))
    assert_the_host_never_waits(
        ColumnSearch(model, batch, BeamSettings(beam=4, outputs=6), fixed_shapes=True), monkeypatch
    )
