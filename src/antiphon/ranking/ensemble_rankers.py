"""Ensembles of rankers: runs that rank answers, in one folder that holds copies of them."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import numpy as np
from torch import nn

from antiphon.exceptions import RunError
from antiphon.models.ensemble_model import Mean
from antiphon.ranking.question_files import Question
from antiphon.ranking.rankers import ExplainRanking, LogOddsRanker, Scores, WordWeights
from antiphon.ranking.saved_rankers import load_ranker
from antiphon.recipe.model_sections import MatcherSection, RankingEnsembleSection
from antiphon.recipe.schema import Recipe
from antiphon.runs.build import count_parameters
from antiphon.runs.combined_runs import combined_run, open_members
from antiphon.runs.copies import copy_files
from antiphon.runs.run_folder import RunFolder
from antiphon.storage.manifest import MEMBERS


@dataclass(frozen=True)
class EnsembleRanker(LogOddsRanker):
    """The log odds of the members' mean probability that a candidate is right, or the mean of their log odds."""

    members: Sequence[LogOddsRanker]
    mean: Mean
    explain: ExplainRanking | None = None

    @property
    def module(self) -> nn.Module:
        """The networks of all members."""
        return nn.ModuleList(member.module for member in self.members)

    def score(self, questions: Sequence[Question]) -> list[Scores]:
        """Log odds."""
        scores = [member.score(questions) for member in self.members]
        average = mean_log_odds if self.mean == "probabilities" else _mean
        return [average(np.stack(rows)) for rows in zip(*scores, strict=True)]


def mean_log_odds(log_odds: Scores) -> Scores:
    """The log odds of the mean probability over the first axis, also where probabilities round to 0 or 1."""
    right, wrong = (np.logaddexp.reduce(-np.logaddexp(0, -sign * log_odds), axis=0) for sign in (1, -1))
    odds: Scores = right - wrong
    return odds


def load_ensemble_ranker(run: RunFolder, recipe: Recipe, device: str = "cpu") -> EnsembleRanker:
    """The members of an ensemble as one ranker."""
    parts = run.parts()
    if not parts:
        raise RunError(f"{run.path}: no members in it, expected one in {run.path / 'member-1'}")
    _refuse_others({str(part.path): part for part in parts.values()})
    members = [cast(LogOddsRanker, load_ranker(part, part.recipe(), device)) for part in parts.values()]
    explanations = [member.explain for member in members if member.explain is not None]
    mean = cast(RankingEnsembleSection, recipe.model).mean
    return EnsembleRanker(members, mean, _mean_explanation(explanations) if explanations else None)


def ensemble_rankers(runs: Sequence[Path], out: Path, mean: Mean, *, force: bool) -> RunFolder:
    """Writes a run of kind ``ranking_ensemble`` that holds copies of its members."""
    folders = open_members(runs)
    _refuse_others(dict(zip(map(str, runs), folders, strict=True)))
    recipe = Recipe.model_validate(folders[0].recipe().model_dump() | {"model": RankingEnsembleSection(mean=mean)})
    with combined_run(dict(zip(MEMBERS, folders, strict=False)), recipe, out, force=force) as run:
        copy_files(folders[0], ("words.vocab",), run.path)
        run.save_metrics({"parameters": count_parameters(load_ensemble_ranker(run, recipe).module)})
    return RunFolder(out)


def _refuse_others(folders: dict[str, RunFolder]) -> None:
    """Refuses members that are no matchers."""
    for name, folder in folders.items():
        model = folder.recipe().model
        if not isinstance(model, MatcherSection):
            raise RunError(f"{name}: a run of kind {model.kind}, expected a matcher as the others of the ensemble")


def _mean_explanation(explanations: Sequence[ExplainRanking]) -> ExplainRanking:
    """The mean weights of those that have the same words as the first."""

    def explain(questions: Sequence[Question]) -> list[WordWeights]:
        return [_mean_weights(rows) for rows in zip(*(each(questions) for each in explanations), strict=True)]

    return explain


def _mean_weights(rows: Sequence[WordWeights]) -> WordWeights:
    words = [word for word, _ in rows[0]]
    weights = [[weight for _, weight in row] for row in rows if [word for word, _ in row] == words]
    return tuple(zip(words, np.mean(weights, 0).tolist(), strict=True))


def _mean(log_odds: Scores) -> Scores:
    mean: Scores = log_odds.mean(0)
    return mean
