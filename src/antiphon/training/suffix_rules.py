"""Suffix rules: trained by counting, alone or beside a network with a weight that is fitted on the dev pairs."""

import time
from collections.abc import Iterable, Iterator, Sequence
from statistics import fmean
from typing import NamedTuple, cast

from antiphon.data.batch import Batch
from antiphon.exceptions import InputError, RecipeError
from antiphon.metrics.output_metrics import Outputs, score_outputs
from antiphon.models.left_to_right import LeftToRight, output_scorer
from antiphon.recipe.kinds import KINDS
from antiphon.recipe.schema import Recipe
from antiphon.runs.build import build_beam, build_search, task_metrics
from antiphon.runs.run_folder import RunFolder, load_network
from antiphon.terminal import Say
from antiphon.torch_free.codec import PairCodec
from antiphon.torch_free.readers import Pair
from antiphon.torch_free.suffix_rule import HeldOutAnswers, SuffixRules, as_answer, fit_weight, held_out_answers
from antiphon.torch_free.vocab import END, TokenCounts
from antiphon.training.prepare import dev_pairs, train_sentencepiece_models, training_pairs
from antiphon.training.resolution import resolve_reading, share_vocabulary
from antiphon.training.state import Summary

_BATCH = 64


class Example(NamedTuple):
    """A pair as tokens; ``text`` is its target as it stands in the file."""

    source: list[str]
    target: list[str]
    features: tuple[str, ...]
    text: str


def train_suffix_rules(recipe: Recipe, run: RunFolder, say: Say) -> None:
    """Counts the suffix rules of the training pairs and saves them in the run folder."""
    recipe = resolve_reading(recipe).recipe
    train_sentencepiece_models(recipe, run)
    started = time.monotonic()
    examples = read_examples(recipe, run, "train")
    rules = SuffixRules.learn(example[:3] for example in examples)
    seconds = time.monotonic() - started
    run.save_recipe(recipe)
    _save_vocabs(run, recipe, examples)
    rules.save(run.rules)
    dev = _dev_scores(recipe, run, rules, task_metrics(recipe.data))
    Summary(dev, len(rules), seconds, len(examples) / max(seconds, 1e-9)).save(run, recipe.train.seed)
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


def _save_vocabs(run: RunFolder, recipe: Recipe, examples: Sequence[Example]) -> None:
    source, target, features = TokenCounts(), TokenCounts(), TokenCounts()
    for example in examples:
        source.encode(example.source)
        target.encode(example.target)
        features.encode(example.features)
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


def has_rules(recipe: Recipe, codec: PairCodec) -> bool:
    """Whether suffix rules suit the task: they change word endings, by features if there are any, and copy the rest."""
    is_inflection = recipe.data.target_tokens == "chars" and share_vocabulary(recipe, codec)
    answers = KINDS[recipe.model.kind].search is not None and recipe.search.over == "outputs"
    return is_inflection and answers and recipe.train.dev_metric == "accuracy"


def check_rule_weight(recipe: Recipe, codec: PairCodec) -> None:
    """Refuses a weight for suffix rules where there will be none."""
    if recipe.search.rule_weight and not has_rules(recipe, codec):
        raise RecipeError(
            f"search.rule_weight = {recipe.search.rule_weight:g}: no suffix rules here, expected 0, or characters with "
            'one vocabulary on both sides, search.over = "outputs" and train.dev_metric = "accuracy"'
        )


def weigh_rules(recipe: Recipe, run: RunFolder, new: RunFolder, device: str) -> dict[str, float]:
    """Saves the rules of a run's training pairs in ``new``, with their weight; returns dev accuracies.

    A weight that the recipe sets is not fitted; 0 means no rules.
    """
    if recipe.search.rule_weight == 0 or not has_rules(recipe, run.codec(recipe)):
        return {}
    rules = SuffixRules.learn(example[:3] for example in read_examples(recipe, run, "train"))
    answers = list(_answers(recipe, run, rules, device))
    weight = fit_weight(answers) if recipe.search.rule_weight is None else recipe.search.rule_weight
    search = recipe.search.model_copy(update={"rule_weight": round(weight, 4)})
    new.save_recipe(recipe.model_copy(update={"search": search}))
    measured = {"rule_accuracy": _percent(answer.rule_is_right for answer in answers)}
    if weight:
        rules.save(new.rules)
        right = (answer.rule_is_right if weight > answer.break_even else answer.is_right for answer in answers)
        measured["accuracy_with_rules"] = _percent(right)
    return measured


def _percent(right: Iterable[bool]) -> float:
    return 100 * fmean(right)


def _answers(recipe: Recipe, run: RunFolder, rules: SuffixRules, device: str) -> Iterator[HeldOutAnswers]:
    """The answers of network and rules for every dev pair."""
    codec = run.codec(recipe)
    model, search, settings = load_network(run, recipe).to(device), build_search(recipe), build_beam(recipe.search)
    assert search is not None
    examples = read_examples(recipe, run, "dev")
    for first in range(0, len(examples), _BATCH):
        some = examples[first : first + _BATCH]
        batch = _batch(codec, some).to(device)
        encode = codec.target.vocab.encode
        outputs = (encode(rules.apply(each.source, each.features)).tolist() for each in some)
        answers = [as_answer(output, copies_unknown=cast(LeftToRight, model).copies_unknown) for output in outputs]
        references = [(*encode(each.target).tolist(), END) for each in some]
        score = output_scorer(cast(LeftToRight, model), batch)
        yield from held_out_answers(score, search(model, batch, settings), answers, references)


def _batch(codec: PairCodec, examples: Sequence[Example]) -> Batch:
    sources = [codec.source.vocab.encode(each.source) for each in examples]
    return Batch.of(sources, None, [codec.encode_features(each.features) for each in examples])
