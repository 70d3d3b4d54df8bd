"""Question and sentence read together: ids, log odds and explanations against the encoder called by itself."""

import pytest
import torch
from tokenizers import Tokenizer

from antiphon.ranking.matchers import CrossEncoder
from antiphon.ranking.pretrained_encoder import WordPieces, new_encoder, read_encoder_config
from antiphon.ranking.question_batches import JointBatch, JointCorpus
from antiphon.ranking.questions import Answer, Question
from antiphon.ranking.rankers import explain_by_gradient
from tests.encoders import write_encoder

QUESTION = Question(
    "1", "which owl", (Answer("1-0", "the old owl was red", 1), Answer("1-1", "", 0), Answer("1-2", "dog"))
)


@pytest.fixture
def folder(tmp_path):
    write_encoder(tmp_path)
    return tmp_path


@pytest.fixture
def pieces(folder):
    return WordPieces(folder / "tokenizer.json", read_encoder_config(folder / "config.json"))


@pytest.fixture
def model(folder):
    torch.manual_seed(1)
    return CrossEncoder(new_encoder(folder / "config.json"), "mean").eval()


def batch_of(pieces, question=QUESTION):
    corpus = JointCorpus.of([question], pieces.encode_pair)
    return corpus.batch(torch.arange(len(corpus)).numpy())


def test_pairs_are_encoded_with_the_markers_of_the_encoder(folder, pieces):
    published = Tokenizer.from_file(str(folder / "tokenizer.json")).encode("which owl", "the old owl was red")
    batch = batch_of(pieces)
    length = len(published.ids)
    assert batch.tokens[0, :length].tolist() == published.ids
    assert batch.token_types[0, :length].tolist() == published.type_ids
    assert batch.lengths.tolist() == [length, 5, 6]
    assert batch.labels.tolist() == [1, 0, 0]


def test_of_a_pair_that_is_too_long_only_the_longer_text_is_cut(pieces):
    ids, first = pieces.encode_pair("which owl was red", " ".join(["the dog"] * 20))
    assert len(ids) == 16
    assert first == 6
    assert ids[:first].tolist() == pieces.encode("which owl was red").tolist()


@pytest.mark.parametrize("architecture", ["bert", "distilbert"])
@pytest.mark.parametrize("pooling", ["mean", "cls", "max"])
def test_log_odds_are_a_weighted_sum_of_the_pooled_states(tmp_path, architecture, pooling):
    write_encoder(tmp_path, architecture)
    config = read_encoder_config(tmp_path / "config.json")
    model = CrossEncoder(new_encoder(tmp_path / "config.json"), pooling).eval()
    pair = Tokenizer.from_file(str(tmp_path / "tokenizer.json")).encode("which owl", "the old owl was red")
    types = {"token_type_ids": torch.tensor([pair.type_ids])} if architecture == "bert" else {}
    states = model.encoder(torch.tensor([pair.ids]), **types).last_hidden_state[0]
    pooled = {"mean": states.mean(0), "cls": states[0], "max": states.max(0).values}[pooling]
    found = model(batch_of(WordPieces(tmp_path / "tokenizer.json", config)))
    torch.testing.assert_close(found[0], model.score(pooled)[0], atol=1e-5, rtol=1e-5)


def test_padding_batching_and_micro_batches_change_nothing(model, pieces):
    together = batch_of(pieces)
    apart = [model(batch_of(pieces, QUESTION._replace(answers=(answer,)))) for answer in QUESTION.answers]
    torch.testing.assert_close(model(together), torch.cat(apart), atol=1e-5, rtol=1e-5)
    parts = together.parts(2)
    assert [part.sizes[0] for part in parts] == [2, 1]
    torch.testing.assert_close(torch.cat([model(part) for part in parts]), model(together), atol=1e-5, rtol=1e-5)


def test_every_weight_learns_and_the_bias_starts_at_the_share_of_right_answers(model, pieces):
    model.start_at(-2.5)
    assert model.score.bias.item() == -2.5
    model.train().cross_entropy(batch_of(pieces)).sum().backward()
    assert all(weight.grad is not None and weight.grad.isfinite().all() for weight in model.parameters())


def test_a_batch_for_measuring_has_the_sizes_asked_for(model):
    batch = JointBatch.sample(3, 1, 7)
    assert batch.sizes == (3, 1, 7)
    assert model(batch).shape == (3,)


def test_the_weights_of_words_are_gradients_times_vectors_of_their_pieces(model, pieces):
    weights = explain_by_gradient(model, pieces)([QUESTION])
    assert [[word for word, _ in row] for row in weights] == [["the", "old", "owl", "was", "red"], [], ["dog"]]
    assert sum(weight for _, weight in weights[0]) == pytest.approx(1)
    assert weights[2] == (("dog", pytest.approx(1)),)
    batch = batch_of(pieces)
    vectors = model.encoder.get_input_embeddings()(batch.tokens[:1]).detach().requires_grad_()
    states = model.encoder(inputs_embeds=vectors, token_type_ids=batch.token_types[:1]).last_hidden_state
    model.score(states.mean(1)).backward()
    expected = (vectors.grad * vectors).sum(2).abs()[0, 4:9]
    found = torch.tensor([weight for _, weight in weights[0]])
    torch.testing.assert_close(found, expected / expected.sum(), atol=1e-5, rtol=1e-4)


def test_pieces_belong_to_the_words_between_spaces(pieces):
    assert pieces.piece_words("which owl", " the dog, red") == [None] * 4 + [0, 1, 1, 2, None]
