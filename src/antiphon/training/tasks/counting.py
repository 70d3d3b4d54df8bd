"""Training of kinds that learn by counting: suffix rules and word overlap."""

import time
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from antiphon.exceptions import InputError
from antiphon.metrics.output_metrics import Outputs, score_outputs
from antiphon.ranking.rankers import rankings_of
from antiphon.ranking.saved_rankers import load_ranker
from antiphon.recipe.schema import Recipe
from antiphon.runs.build import task_metrics
from antiphon.runs.run_folder import RunFolder
from antiphon.terminal import Say
from antiphon.torch_free.readers import Pair
from antiphon.torch_free.suffix_rule import SuffixRules
from antiphon.torch_free.vocab import TokenCounts
from antiphon.training.data.data_defaults import with_data_defaults
from antiphon.training.data.prepare import dev_pairs, place_sentencepiece_models, training_pairs
from antiphon.training.data.question_sets import dev_questions, learn_overlap, ranking_values, training_questions
from antiphon.training.summary import Summary, save_summary


class Example(NamedTuple):
    """A pair as tokens; ``text`` is its target as it stands in the file."""

    source: list[str]
    target: list[str]
    features: tuple[str, ...]
    text: str


def train_suffix_rules(recipe: Recipe, run: RunFolder, say: Say) -> None:
    """Counts the suffix rules of the training pairs and saves them in the run folder."""
    recipe = with_data_defaults(recipe)
    place_sentencepiece_models(recipe, run)
    started = time.monotonic()
    examples = read_examples(recipe, run, "train")
    rules = SuffixRules.learn(example[:3] for example in examples)
    seconds = time.monotonic() - started
    run.save_recipe(recipe)
    _save_vocabs(run, recipe, examples)
    rules.save(run.rules)
    dev = _dev_scores(recipe, run, rules, task_metrics(recipe.data))
    summary = Summary(dev, len(rules), seconds, len(examples) / max(seconds, 1e-9))
    save_summary(run, recipe.train, summary)
    say(f"suffix_rule: {len(rules):,} suffixes from {len(examples):,} pairs")


def _dev_scores(recipe: Recipe, run: RunFolder, rules: SuffixRules, metrics: Sequence[str]) -> dict[str, float]:
    """The metrics of suffix rules on the dev pairs."""
    dev = read_examples(recipe, run, "dev")
    outputs = Outputs.of(
        run.codec(recipe).target,
        [rules.apply(example.source, example.features) for example in dev],
        [[example.text] for example in dev],
    )
    return {name: score.value for name, score in score_outputs(outputs, metrics).items()}


def train_overlap(recipe: Recipe, run: RunFolder, say: Say) -> None:
    """Counts the words of the training sentences and saves a baseline of answer selection in the run folder."""
    train, dev = training_questions(recipe.data, say), dev_questions(recipe.data, say)
    started = time.monotonic()
    overlap = learn_overlap(recipe.data, train)
    seconds = time.monotonic() - started
    overlap.save(run.overlap)
    run.save_recipe(recipe)
    rankings = rankings_of(load_ranker(run, recipe), dev)
    scores = ranking_values(dev, rankings)
    summary = Summary(scores, len(overlap.document_frequency), seconds, overlap.sentences / max(seconds, 1e-9))
    save_summary(run, recipe.train, summary)


def _save_vocabs(run: RunFolder, recipe: Recipe, examples: Sequence[Example]) -> None:
    source, target, features = TokenCounts(), TokenCounts(), TokenCounts()
    for example in examples:
        source.encode_many(example.source)
        target.encode_many(example.target)
        features.encode_many(example.features)
    least = recipe.data.min_count
    run.save_vocabs(source.vocab(least), target.vocab(least), features.vocab())


def read_examples(recipe: Recipe, run: RunFolder, name: str) -> list[Example]:
    """The pairs of the recipe's ``train`` or ``dev`` that have text on both sides."""
    pairs: Iterator[Pair] = training_pairs(recipe) if name == "train" else dev_pairs(recipe)
    tokeniser = run.pair_tokeniser(recipe)
    read = (
        Example(tokeniser.source.tokens(pair.source), tokeniser.target.tokens(pair.target), pair.features, pair.target)
        for pair in pairs
    )
    examples = [example for example in read if example.source and example.target]
    if not examples:
        raise InputError(f"{getattr(recipe.data, name)}: no pairs to use, expected lines of source<TAB>target")
    return examples
