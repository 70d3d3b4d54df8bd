"""Training of what learns by counting: suffix rules, and words in common."""

import time
from collections.abc import Iterable, Mapping, Sequence
from datetime import date

from antiphon import __version__
from antiphon.build import build_text_steps, fitting_measures
from antiphon.config import Recipe
from antiphon.data.codec import feature_symbol
from antiphon.data.questions import judgements_of
from antiphon.data.readers import Pair
from antiphon.data.vocab import Tally
from antiphon.errors import InputError
from antiphon.metrics import Outputs, rank_measures, score_outputs
from antiphon.models.suffix_rule import SuffixRules
from antiphon.ranker import load_ranker
from antiphon.run import RunFolder, token_kinds
from antiphon.search.ranking import rankings_of
from antiphon.train.prepare import Say, dev_pairs, settle_features, training_pairs
from antiphon.train.questions import dev_questions, learn_overlap, training_questions

Example = tuple[list[str], list[str], tuple[str, ...]]
"""Source tokens, target tokens, features."""


def train_suffix_rules(recipe: Recipe, run: RunFolder, say: Say) -> None:
    """Counts the rules of the training pairs and leaves them in the run folder."""
    recipe = settle_features(recipe)
    started = time.monotonic()
    examples = list(_token_pairs(recipe, run, "train"))
    rules = SuffixRules.learn(examples)
    seconds = time.monotonic() - started
    dev = list(_token_pairs(recipe, run, "dev"))
    predicted = [rules.apply(source, features) for source, _, features in dev]
    wanted = [[target] for _, target, _ in dev]
    texts = ["".join(tokens) for tokens in predicted], [["".join(target)] for _, target, _ in dev]
    scores = score_outputs(Outputs(*texts, predicted, wanted), fitting_measures(recipe.data))
    run.save_recipe(recipe)
    _save_vocabs(run, recipe, examples)
    rules.save(run.rules)
    measured = {name: score.value for name, score in scores.items()}
    _save_metrics(run, recipe, measured, len(rules), len(examples), seconds)
    say(f"suffix_rule: {len(rules):,} suffixes from {len(examples):,} pairs")


def train_overlap(recipe: Recipe, run: RunFolder, say: Say) -> None:
    """Counts the words of the training sentences and leaves a baseline of answer selection in the run folder."""
    train, dev = training_questions(recipe.data, say), dev_questions(recipe.data, say)
    started = time.monotonic()
    overlap = learn_overlap(recipe.data, train)
    seconds = time.monotonic() - started
    overlap.save(run.overlap)
    run.save_recipe(recipe)
    rankings = rankings_of(load_ranker(run, recipe), dev)
    measured = {name: shares.score().value for name, shares in rank_measures(judgements_of(dev), rankings).items()}
    _save_metrics(run, recipe, measured, len(overlap.document_frequency), overlap.sentences, seconds)


def _save_metrics(
    run: RunFolder, recipe: Recipe, measured: Mapping[str, float], parameters: int, pairs: int, seconds: float
) -> None:
    run.save_metrics(
        {
            "best_epoch": 1,
            "epochs": 1,
            **{f"dev_{name}": value for name, value in measured.items()},
            "parameters": parameters,
            "training_seconds": round(seconds, 1),
            "pairs_per_second": round(pairs / max(seconds, 1e-9), 1),
            "seed": recipe.train.seed,
            "date": date.today().isoformat(),
            "antiphon": __version__,
        }
    )


def _save_vocabs(run: RunFolder, recipe: Recipe, examples: Sequence[Example]) -> None:
    source, target = Tally(), Tally()
    features = [feature_symbol(feature) for _, _, tag in examples for feature in tag]
    source.encode_many(features + [token for tokens, _, _ in examples for token in tokens])
    target.encode_many([token for _, tokens, _ in examples for token in tokens])
    run.save_vocabs(source.vocab(recipe.data.min_count, always=set(features)), target.vocab(recipe.data.min_count))


def _token_pairs(recipe: Recipe, run: RunFolder, name: str) -> Iterable[Example]:
    steps = build_text_steps(recipe.data)
    source, target = (run.tokeniser(side, kind) for side, kind in token_kinds(recipe.data))
    pairs: list[Pair] = list(training_pairs(recipe) if name == "train" else dev_pairs(recipe))
    filled = [pair for pair in pairs if pair.source.strip() and pair.target.strip()]
    if not filled:
        raise InputError(f"{getattr(recipe.data, name)}: no pairs to use, expected lines of source<TAB>target")
    for pair in filled:
        yield source.split(steps(pair.source)), target.split(steps(pair.target)), pair.features
