"""A kind of model that is written in one file, here this one, and registered by one entry works in every command."""

import json
from typing import Literal

import pytest
import torch
from torch import nn

from antiphon.api.model import NeuralModel
from antiphon.decode.beam_search import search_outputs
from antiphon.exceptions import RecipeError
from antiphon.models.left_to_right import LeftToRight, log_likelihood
from antiphon.recipe.kinds import KINDS, Kind, register
from antiphon.recipe.model_sections import ModelSection
from antiphon.training.task import GenerationTask
from tests.toy import write_pairs


class BigramSection(ModelSection):
    kind: Literal["bigram"] = "bigram"
    width_of_tokens: int = 8
    """Width of token vectors."""


class Bigram(LeftToRight):
    """p(next token | token before, mean of the source); the state is nothing."""

    def __init__(self, source_size, target_size, feature_size, *, width_of_tokens):
        super().__init__()
        self.source = nn.EmbeddingBag(source_size, width_of_tokens)
        self.target = nn.Embedding(target_size, width_of_tokens)
        self.output = nn.Linear(width_of_tokens, target_size)

    def log_prob(self, batch):
        memory, _ = self.start(batch)
        return log_likelihood(self.output(memory[:, None] + self.target(batch.shifted_target)), batch)

    def start(self, batch):
        return self.source(batch.source), torch.zeros(len(batch.source))

    def step(self, memory, state, tokens, sentence):
        return self.output(memory[sentence] + self.target(tokens)).log_softmax(1), state


ENTRY = Kind(
    BigramSection,
    lambda: NeuralModel,
    frozenset(("pairs", "batches", "epochs", "search")),
    lambda: Bigram,
    task=lambda: GenerationTask,
    search=lambda: search_outputs,
)


@pytest.fixture
def registered():
    register(ENTRY)
    yield
    del KINDS["bigram"]


def test_a_new_kind_trains_predicts_evaluates_and_explains_its_settings(antiphon, registered, tmp_path):
    (tmp_path / "recipe.toml").write_text('[model]\nkind = "bigram"\n[train]\nmax_epochs = 2\npasses = 1\n')
    pairs, run = write_pairs(tmp_path / "pairs.tsv", 60), tmp_path / "run"
    settings = [f"data.train={pairs}", f"data.dev={pairs}", "model.width_of_tokens=4"]
    options = [part for each in settings for part in ("--set", each)]
    assert antiphon("train", tmp_path / "recipe.toml", *options, "--out", run).status == 0
    assert len(antiphon("predict", run, stdin=b"badu\nkato\n").out.splitlines()) == 2
    assert {"accuracy", "perplexity"} < json.loads(antiphon("evaluate", run, pairs, "--json").out)["metrics"].keys()
    info = json.loads(antiphon("info", run, "--json").out)
    assert (info["kind"], info["recipe"]["model"]["width_of_tokens"]) == ("bigram", 4)
    assert "model.width_of_tokens" in antiphon("info", run).out
    assert "of bigram" in antiphon("settings", "model.width_of_tokens").out
    assert "cannot align" in antiphon("align", run, pairs).err
    refused = antiphon("train", tmp_path / "recipe.toml", "--set", "model.layers=2", "--out", tmp_path / "other")
    assert "model.layers: kind bigram has no such setting; it has width_of_tokens" in refused.err


def test_a_kind_is_registered_once(registered):
    with pytest.raises(RecipeError, match=r"model\.kind = bigram: registered already"):
        register(ENTRY)


def test_a_kind_that_is_not_registered_is_refused_with_those_that_are(antiphon, tmp_path):
    result = antiphon("train", "toy", "--set", "model.kind=bigram", "--out", tmp_path / "run")
    assert result.status == 2
    assert "model.kind = 'bigram': input should be one of transducer, encoder_decoder" in result.err


@pytest.mark.parametrize("name", KINDS)
def test_every_entry_of_the_registry_leads_somewhere(name):
    kind = KINDS[name]
    searches = ("search", "path_search", "cell_search")
    fields = ("interface", "network", "load", "task", "count", "check", *searches, "explain", "rank")
    entries = [getattr(kind, field) for field in fields]
    assert all(callable(entry()) for entry in entries if entry is not None)
    assert kind.made_by or kind.task is not None or kind.count is not None
