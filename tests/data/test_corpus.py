from dataclasses import replace

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

from antiphon.data import corpus as corpus_module
from antiphon.data.batch import Batch
from antiphon.data.corpus import Corpus, CountedCorpus, LengthLimits
from antiphon.torch_free.batch import plan_batches
from antiphon.torch_free.codec import Chars, Normalisation, PairCodec, TextCodec, Words
from antiphon.torch_free.readers import Pair, Source
from antiphon.torch_free.vocab import END, PAD, START, UNKNOWN, Vocab, WordIds

SIDE = TextCodec(Normalisation(), Chars(), Vocab("abcdefgh"))
CODEC = PairCodec(SIDE, SIDE)


def pairs(*texts):
    return [Pair(source, target, (), f"x:{n}") for n, (source, target) in enumerate(texts)]


def test_a_corpus_holds_what_was_read(monkeypatch):
    monkeypatch.setattr(corpus_module, "_ROWS_PER_CHUNK", 2)
    given_pairs = pairs(("ab", "c"), ("d", "efg"), ("h", "h"), ("abc", "a"), ("b", "b"))
    corpus = Corpus.encode(given_pairs, CODEC, LengthLimits())
    assert corpus.stats.kept == len(corpus) == 5
    assert corpus.source_lengths.tolist() == [3, 2, 2, 4, 2]
    batch = corpus.batch([3, 0])
    assert SIDE.decode(batch.source[0].tolist()) == "abc"
    assert SIDE.decode(batch.target[1].tolist()) == "c"
    assert batch.source_lengths.tolist() == [4, 3]


def test_long_pairs_are_held_a_few_at_a_time(monkeypatch):
    monkeypatch.setattr(corpus_module, "_CHARACTERS_PER_CHUNK", 100)
    held = []
    monkeypatch.setattr(Chars, "split_all", lambda _, texts: held.append(len(texts)) or [list(text) for text in texts])
    corpus = Corpus.encode(pairs(*[("a" * 40, "b" * 20)] * 3, *[("a", "b")] * 9), CODEC, LengthLimits())
    assert held == [2, 2, 10, 10]
    assert len(corpus) == 12


def test_a_corpus_read_once_equals_one_encoded_with_its_vocabulary(monkeypatch):
    monkeypatch.setattr(corpus_module, "_ROWS_PER_CHUNK", 2)
    given_pairs = [
        pair._replace(features=("b", "X")) for pair in pairs(("ba", "c"), ("aaaa", "zz"), ("b", "c"), ("d", "ef"))
    ]
    counted = CountedCorpus.read(given_pairs, CODEC, LengthLimits(max_source_length=3))
    source, target, features = counted.source.vocab(2), counted.target.vocab(2), counted.features.vocab()
    assert source.tokens[4:] == ("b",)
    assert target.tokens[4:] == ("c",)
    assert features.tokens[4:] == ("X", "b")
    once = counted.with_ids(
        source.encode(counted.source), target.encode(counted.target), features.encode(counted.features)
    )
    codec = PairCodec(
        TextCodec(Normalisation(), Chars(), source), TextCodec(Normalisation(), Chars(), target), features
    )
    twice = Corpus.encode(given_pairs, codec, LengthLimits(max_source_length=3))
    assert str(once.stats) == str(twice.stats) == "3 pairs, dropped: 1 source too long"
    batches = once.batch(range(3)), twice.batch(range(3))
    assert all(torch.equal(one, other) for one, other in zip(*batches, strict=True))
    assert batches[0].features.tolist() == [[4, 5]] * 3


def test_unknown_words_of_a_corpus_are_known_by_their_first_position_if_words_are_copied():
    side = TextCodec(Normalisation(), Words(), Vocab(["saw", "met"]))
    texts = pairs(("Zoe saw Zoe Yan", "Zoe met Yan"), ("saw", "Ann"))
    codec = PairCodec(side, side, copies_words=True)
    twice = Corpus.encode(texts, codec, LengthLimits(), may_copy=True)
    counted = CountedCorpus.read(texts, codec, LengthLimits())
    words = WordIds(side.vocab)
    targets, copied = words.encode(counted.target), words.encode(counted.source)
    once = counted.with_ids(side.vocab.encode(counted.source), targets, codec.features.encode(counted.features), copied)
    expected = Batch.of_text(codec, [Source(pair.source) for pair in texts], [pair.target for pair in texts])
    V = len(side.vocab)
    assert expected.copied.tolist() == [[V, 4, V, V + 3, -1], [4, -1, -1, -1, -1]]
    assert expected.target.tolist() == [[V, 5, V + 3, END], [UNKNOWN, END, PAD, PAD]]
    for corpus in (once, twice):
        batch = replace(corpus, copied_size=V).batch(range(2))
        assert all(torch.equal(one, other) for one, other in zip(batch, expected, strict=True))
        plain = corpus.batch(range(2))
        assert plain.target.tolist() == [[UNKNOWN, 5, UNKNOWN, END], [UNKNOWN, END, PAD, PAD]]
        assert plain.copied.shape == (2, 0)


def test_every_batch_of_a_corpus_has_as_many_feature_columns():
    features = [(), ("X",), ("b", "X", "b")]
    given_pairs = [pair._replace(features=each) for pair, each in zip(pairs(*[("a", "b")] * 3), features, strict=True)]
    codec = PairCodec(SIDE, SIDE, Vocab(["b", "X"]))
    corpus = Corpus.encode(given_pairs, codec, LengthLimits())
    assert [corpus.batch([n]).features.tolist() for n in range(3)] == [[[PAD, PAD]], [[5, PAD]], [[5, 4]]]


def test_what_is_left_out_is_counted_by_reason():
    corpus = Corpus.encode(
        pairs(("ab", "c"), ("", "c"), ("a", ""), ("abcdef", "a"), ("a", "abcdef"), ("abcd", "abcd")),
        CODEC,
        LengthLimits(max_source_length=5, max_target_length=5, max_cells=15),
    )
    assert str(corpus.stats) == "1 pair, dropped: 2 empty, 1 source too long, 1 target too long, 1 too many cells"


def test_a_batch_is_padded_and_ended():
    batch = Batch.of([SIDE.encode("ab"), SIDE.encode("")], [SIDE.encode("c"), SIDE.encode("de")])
    assert batch.source.tolist() == [[4, 5, END], [END, PAD, PAD]]
    assert batch.shifted_target.tolist() == [[START, 6, END], [START, 7, 8]]
    assert batch.target_lengths.dtype == torch.int64


lengths = st.lists(st.tuples(st.integers(1, 30), st.integers(1, 30)), min_size=1, max_size=200)


@given(lengths, st.integers(1, 16), st.integers(1, 2000), st.integers(0, 100))
def test_every_pair_is_in_one_batch_within_both_bounds(sizes, batch_size, max_cells, seed):
    sources, targets = (np.array(side) for side in zip(*sizes, strict=True))
    plan = plan_batches(sources, targets, batch_size=batch_size, max_cells=max_cells, order=np.random.default_rng(seed))
    assert sorted(number for batch in plan for number in batch) == list(range(len(sizes)))
    for batch in plan:
        assert len(batch) <= batch_size
        cells = len(batch) * sources[batch].max() * targets[batch].max()
        assert cells <= max_cells or len(batch) == 1


@given(lengths, st.integers(1, 16), st.integers(1, 2000))
def test_every_batch_is_as_long_as_the_bounds_allow(sizes, batch_size, max_cells):
    """The plan is that of a walk over the pairs in the order of their lengths."""
    walked = [[]]
    for number in sorted(range(len(sizes)), key=sizes.__getitem__):
        longer = [*walked[-1], number]
        cells = len(longer) * max(sizes[n][0] for n in longer) * max(sizes[n][1] for n in longer)
        if walked[-1] and (len(longer) > batch_size or cells > max_cells):
            walked.append([number])
        else:
            walked[-1] = longer
    sources, targets = (np.array(side) for side in zip(*sizes, strict=True))
    plan = plan_batches(sources, targets, batch_size=batch_size, max_cells=max_cells)
    assert [batch.tolist() for batch in plan] == walked


def test_the_order_of_batches_comes_from_the_seed():
    sources = np.random.default_rng(0).integers(1, 20, 500)
    first, again, other = (
        [batch.tolist() for batch in _plan(sources, np.random.default_rng(seed))] for seed in (1, 1, 2)
    )
    assert first == again != other


def test_batches_hold_pairs_of_like_length():
    sources = np.random.default_rng(0).integers(1, 50, 3000)
    spread = [np.ptp(sources[batch]) for batch in _plan(sources, np.random.default_rng(0))]
    assert np.mean(spread) < 3


def test_an_empty_corpus_has_no_batches():
    assert plan_batches(np.zeros(0, int), np.zeros(0, int), batch_size=4, max_cells=10) == []


def _plan(sources, order):
    return plan_batches(sources, sources, batch_size=32, max_cells=100_000, order=order)
