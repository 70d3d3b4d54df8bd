"""The listwise loss against one question after another, and batches that keep questions whole."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from antiphon.exceptions import RunError
from antiphon.ranking.matchers import AttentiveState, FixedVectors, ListwiseLoss, Matcher, ReaderSizes, question_loss
from antiphon.ranking.question_batches import MatchCorpus, QuestionBatch, plan_question_batches
from antiphon.training import distributed
from antiphon.training.step import MicroBatchLimit
from antiphon.training.task import EpochBatches

LISTS = [
    [(0.3, 1), (-2.0, 0), (1.5, 1), (0.0, 0)],
    [(4.0, 0), (-1.0, 0)],
    [(-0.5, 1)],
    [(2.0, 0), (1.0, 1), (-7.0, 0)],
]
"""Log odds and labels of the candidates of four questions; the second has no right one."""


def loss_of_list(candidates):
    """``-1/R sum_r log(exp(s_r) / sum_c exp(s_c))`` of one question."""
    total = sum(score.exp() for score, _ in candidates)
    right = [-(score.exp() / total).log() for score, label in candidates if label]
    return sum(right) / len(right) if right else 0.0


def flat_lists():
    log_odds = torch.tensor([score for row in LISTS for score, _ in row], dtype=torch.float64, requires_grad=True)
    labels = torch.tensor([float(label) for row in LISTS for _, label in row], dtype=torch.float64)
    return log_odds, labels, torch.tensor([index for index, row in enumerate(LISTS) for _ in row])


def test_every_pair_has_its_share_of_the_cross_entropy_of_its_question():
    log_odds, labels, question = flat_lists()
    rows = [
        [(score, label) for score, label, own in zip(log_odds, labels, question, strict=True) if own == index]
        for index in range(len(LISTS))
    ]
    expected = torch.stack([torch.as_tensor(loss_of_list(rows[index])) / len(rows[index]) for index in question])
    found = question_loss(log_odds, labels, question)
    torch.testing.assert_close(found, expected.double())
    weights = torch.linspace(0.5, 2, len(found), dtype=torch.float64)
    (gradient,) = torch.autograd.grad((found * weights).sum(), log_odds, retain_graph=True)
    (of_lists,) = torch.autograd.grad((expected * weights).sum(), log_odds)
    torch.testing.assert_close(gradient, of_lists)


def test_gradients_of_the_listwise_loss_are_its_derivatives():
    log_odds, labels, question = flat_lists()
    assert torch.autograd.gradcheck(lambda scores: question_loss(scores, labels, question), log_odds)


def test_very_unlikely_candidates_give_finite_losses_and_gradients():
    log_odds = torch.tensor([-800.0, 900.0, 0.0, -3000.0], requires_grad=True)
    losses = question_loss(log_odds, torch.tensor([1.0, 0.0, 1.0, 1.0]), torch.tensor([0, 0, 1, 2]))
    torch.testing.assert_close(losses, torch.tensor([850.0, 850.0, 0.0, 0.0]))
    losses.sum().backward()
    assert log_odds.grad.isfinite().all()


def corpus_of(sizes, seed=0):
    """Random texts: as many candidates of each question as ``sizes`` says."""
    draw = np.random.default_rng(seed)
    pairs = sum(sizes)
    return MatchCorpus(
        [draw.integers(2, 9, draw.integers(1, 4)) for _ in sizes],
        [draw.integers(2, 9, draw.integers(1, 7)) for _ in range(pairs)],
        np.repeat(np.arange(len(sizes)), sizes),
        draw.integers(0, 2, pairs).astype(np.float32),
    )


def question_batch(corpus, indices):
    return QuestionBatch(torch.from_numpy(corpus.question[indices]), corpus.batch(indices))


def attentive_matcher():
    torch.manual_seed(3)
    vectors = FixedVectors(torch.randn(9, 5, dtype=torch.float64))
    return Matcher(AttentiveState(vectors, ReaderSizes(4, 1))).double()


def gradients(model, loss, batches, weight):
    model.zero_grad()
    for batch in batches:
        (loss(model, batch).sum() * weight).backward()
    return {name: parameter.grad.clone() for name, parameter in model.named_parameters()}


def as_double(batch):
    return batch._replace(pairs=batch.pairs._replace(labels=batch.pairs.labels.double()))


@pytest.mark.parametrize("limit", [1, 4, 5, 9])
def test_micro_batches_of_whole_questions_have_the_gradients_of_the_batch(limit):
    corpus, model = corpus_of([3, 1, 5, 2, 2]), attentive_matcher()
    batch = as_double(question_batch(corpus, np.arange(13)))
    parts = batch.parts(limit)
    assert len(parts) > 1
    assert all(part.sizes[0] <= limit or len(part.question.unique()) == 1 for part in parts)
    of_parts = [set(part.question.tolist()) for part in parts]
    assert sum(map(len, of_parts)) == len(set.union(*of_parts)) == 5
    whole, split = (gradients(model, ListwiseLoss(0.7, 2.6), batches, 1 / 13) for batches in ([batch], parts))
    for name, gradient in whole.items():
        torch.testing.assert_close(split[name], gradient, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("processes", [2, 3, 7])
def test_processes_that_share_a_batch_have_whole_questions_and_the_gradients_of_one_process(processes, monkeypatch):
    corpus, model = corpus_of([3, 1, 5, 2, 2]), attentive_matcher()
    batches = EpochBatches(
        lambda indices, _: as_double(question_batch(corpus, indices)), lambda _: [], seed=1, groups=corpus.question
    )
    indices = np.array([4, 5, 6, 7, 8, 11, 12, 0, 1, 2, 3, 9, 10])
    alone = batches.shard(0, 0, indices)
    whole = gradients(model, ListwiseLoss(0.7, 2.6), [alone.batch], alone.weight)
    monkeypatch.setattr(distributed, "world_size", lambda: processes)
    mean = {name: torch.zeros_like(gradient) for name, gradient in whole.items()}
    for rank in range(processes):
        monkeypatch.setattr(distributed, "rank", lambda rank=rank: rank)
        shard = batches.shard(0, 0, indices)
        if shard.pairs:
            own = shard.batch.question.tolist()
            assert all(own.count(question) == [3, 1, 5, 2, 2][question] for question in own)
        for name, gradient in gradients(model, ListwiseLoss(0.7, 2.6), [shard.batch], shard.weight).items():
            mean[name] += gradient / processes
    for name, gradient in whole.items():
        torch.testing.assert_close(mean[name], gradient, rtol=1e-9, atol=1e-12)


@given(
    sizes=st.lists(st.integers(1, 9), min_size=1, max_size=40),
    batch_size=st.integers(1, 12),
    max_tokens=st.integers(1, 60),
    seed=st.integers(0, 5),
)
def test_planned_batches_hold_every_question_once_and_whole(sizes, batch_size, max_tokens, seed):
    corpus = corpus_of(sizes, seed)
    bounds = {"batch_size": batch_size, "max_tokens": max_tokens}
    plan = plan_question_batches(np.array(sizes), corpus.sentence_lengths, **bounds, order=np.random.default_rng(seed))
    assert sorted(np.concatenate(plan).tolist()) == list(range(sum(sizes)))
    asked = [list(dict.fromkeys(corpus.question[indices].tolist())) for indices in plan]
    assert sum(map(len, asked)) == len(sizes)
    for indices, questions in zip(plan, asked, strict=True):
        assert len(indices) == sum(sizes[question] for question in questions)
        tokens = len(indices) * corpus.sentence_lengths[indices].max()
        assert len(questions) == 1 or (len(indices) <= batch_size and tokens <= max_tokens)


def test_a_question_whose_candidates_do_not_fit_ends_training_with_a_remedy():
    batch = question_batch(corpus_of([3, 4]), np.arange(7))

    def out_of_memory(_):
        raise torch.OutOfMemoryError("CUDA out of memory")

    said = []
    with pytest.raises(RunError, match=r"the 4 candidates of a question, .* --resume, .* train\.listwise_weight"):
        MicroBatchLimit(said.append).retry(batch, out_of_memory)
    assert len(said) == 1
