"""Trained models: how they are loaded, and what every kind has; a kind refuses what it cannot do."""

import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Unpack

import torch
from torch import nn

from antiphon.api.evaluation import (
    LocatedPair,
    check_breakdowns,
    evaluate_outputs,
    evaluation_of,
    find_errors,
    find_suspicious,
    score_task,
    with_references,
)
from antiphon.api.word_links import LinkOptions, WordLinker, WordLinks
from antiphon.device import choose_device
from antiphon.exceptions import AntiphonError
from antiphon.metrics.breakdown import EVERY_BREAKDOWN, By
from antiphon.metrics.delay import Delays, score_delays
from antiphon.metrics.gold_links import GoldLinks
from antiphon.metrics.output_metrics import Outputs
from antiphon.ranking.question_files import Judgements, Question, QuestionSet
from antiphon.recipe.kinds import KINDS
from antiphon.recipe.recipe_file import Settings, change_search
from antiphon.recipe.schema import Recipe
from antiphon.report.error_report import ErrorReport, Suspect
from antiphon.runs.run_folder import RunFolder
from antiphon.torch_free.codec import PairCodec
from antiphon.torch_free.inputs import (
    PairsLike,
    StreamOptions,
    as_pair,
    as_path,
    check_model,
    check_not_empty,
    check_positive,
    check_settings,
    check_stream_options,
    check_threads,
)
from antiphon.torch_free.prediction import PredictionInterface
from antiphon.torch_free.readers import Pair, Source
from antiphon.torch_free.results import Alignment, Evaluation, Ranked
from antiphon.torch_free.streams import Timed, run_streams
from antiphon.training.prepare import pairs_of

_IN_PYTHON = {
    "antiphon train --resume": "resume=True",
    r"--(resume|force)\b": r"\1=True",
    r"--set ([\w.]+)=(\w+)": r'settings={"\1": "\2"}',
    r"another --out\b": "another folder",
    r"--(out|device)\b": r"\1",
}
"""Options of commands in messages, and what they are called in Python."""


def in_python(message: str) -> str:
    """A message in the words of Python instead of those of commands."""
    for option, argument in _IN_PYTHON.items():
        message = re.sub(option, argument, message)
    return message


@contextmanager
def errors_in_python() -> Iterator[None]:
    """Inside, errors speak of arguments instead of options."""
    try:
        yield
    except AntiphonError as error:
        error.args = (in_python(str(error)),)
        raise


class Model(PredictionInterface):
    """A trained model with everything needed to use it."""

    def __init__(self, recipe: Recipe, codec: PairCodec, module: nn.Module | None = None) -> None:
        super().__init__(
            codec,
            recipe.model.kind,
            can_predict=KINDS[recipe.model.kind].predicts,
            reads_features=bool(recipe.data.features),
            swaps_columns=recipe.data.swap,
            column_order=recipe.data.columns,
            batch_size=recipe.search.batch_size,
        )
        self.recipe, self._module = recipe, module

    @classmethod
    def open(cls, folder: RunFolder, recipe: Recipe, device: str) -> "Model":
        """The trained model of a run folder."""
        raise NotImplementedError

    @property
    def module(self) -> nn.Module:
        """The ``torch.nn.Module``; kinds without a network refuse."""
        if self._module is None:
            raise self._cannot("give a torch.nn.Module", "a neural kind")
        return self._module

    @property
    def can_align(self) -> bool:
        """Whether the model has alignments or attention weights."""
        return KINDS[self.kind].explain is not None

    def check_can_align(self) -> None:
        """Refuses a model without alignments or attention weights."""
        if not self.can_align:
            raise self._cannot("align", "a transducer or an attention model")

    def align(self, pairs: PairsLike) -> Iterator[Alignment]:
        """The most probable alignment of each pair, with posteriors; for an attention model, its weights."""
        self.check_can_align()
        given = self._given_pairs(pairs, "align")
        return (self._align(*as_pair(pair, reads_features=self.reads_features)) for pair in given)

    def rank(self, question: str, sentences: Sequence[str], *, explain: bool = False) -> list[Ranked]:
        """The sentences, the most probable answer first; with ``explain``, with attention weights of their words."""
        raise self._cannot("rank", "a run of answer selection")

    def evaluate_questions(
        self, questions: Sequence[Question], *, which: QuestionSet = "all", judged: Judgements | None = None
    ) -> Evaluation:
        """MAP, MRR and P@1 of a run of answer selection over a set of labelled questions."""
        raise self._cannot("rank", "a run of answer selection")

    def errors(
        self,
        pairs: PairsLike,
        *,
        against: "Model | None" = None,
        by: Sequence[By] | None = None,
        most: int | None = None,
        beam: int | None = None,
    ) -> ErrorReport:
        """The mistakes of the model in the order of the pairs, accuracy by group, and frequent edits.

        ``by`` chooses the groups: features, length, unseen; None means all. At most ``most`` mistakes are listed.
        With ``against``, another model with the same inputs, pairs that only one of the two gets right are listed too.
        """
        check_positive("most", most)
        check_model("against", against)
        self.check_can_predict()
        given = self._located(pairs, "errors")
        by = self._breakdowns(by)
        return find_errors(self, given, against=against, by=by, most=most, beam=beam)

    def suspicious(self, pairs: PairsLike, *, most: int | None = None, beam: int | None = None) -> list[Suspect]:
        """Pairs with improbable targets, the least probable per token first; at most ``most``."""
        check_positive("most", most)
        return find_suspicious(self, self._located(pairs, "suspicious"), most=most, beam=beam)

    def _located(self, pairs: PairsLike, name: str) -> list[LocatedPair]:
        """The pairs with their file and line, if known."""
        return [
            LocatedPair(
                *as_pair(pair, reads_features=self.reads_features), pair.where if isinstance(pair, Pair) else ""
            )
            for pair in self._given_pairs(pairs, name)
        ]

    def _breakdowns(self, by: Sequence[By] | None) -> Sequence[By]:
        """The requested groups, or all that apply to the model."""
        if by is None:
            return [each for each in EVERY_BREAKDOWN if each != "features" or self.reads_features]
        return check_breakdowns(self, by)

    def evaluate(
        self,
        pairs: PairsLike,
        *,
        beam: int | None = None,
        more_references: Sequence[Sequence[str]] = (),
        by: Sequence[By] = (),
    ) -> Evaluation:
        """All metrics of the task; ``more_references[n]`` are further references of pair ``n``.

        ``pairs`` can be the path of a file of pairs, here and in ``errors``, ``suspicious``, ``score`` and ``align``.
        ``by`` adds the metrics of groups of pairs: by features, length or unseen.
        """
        if not self.can_predict and not self.can_score:
            raise self._cannot("evaluate pairs", "evaluate_questions")
        given = self._pairs(pairs, "evaluate")
        check_not_empty(given, "evaluate")
        if by:
            self.check_can_predict()
            check_breakdowns(self, by)
        outputs = self.outputs(given, beam=beam, more_references=more_references) if self.can_predict else None
        scored = self._score(given) if self.can_score else None
        return evaluate_outputs(self, given, outputs, scored, by)

    def word_links(self, pairs: PairsLike, **options: Unpack[LinkOptions]) -> Iterator[WordLinks]:
        """The links between the words of each pair.

        Options: ``threshold``, ``reverse``, ``combine`` (see ``LinkOptions``).
        """
        return WordLinker(self, **options).links(self._pairs(pairs, "word_links"))

    def evaluate_alignments(
        self, pairs: PairsLike, gold: Sequence[GoldLinks | str], **options: Unpack[LinkOptions]
    ) -> Evaluation:
        """Alignment error rate, precision and recall of ``word_links``; ``gold[n]`` are the links of pair ``n``.

        Links given as text count words from 0: ``i-j`` is a sure link and ``ipj`` a possible one.
        """
        given = self._pairs(pairs, "evaluate_alignments")
        return evaluation_of(self, given, WordLinker(self, **options).scores(given, gold))

    def outputs(
        self,
        given: Sequence[tuple[Source, str]],
        *,
        beam: int | None = None,
        more_references: Sequence[Sequence[str]] = (),
    ) -> Outputs:
        """The outputs of the model with all their references."""
        sources = [source for source, _ in given]
        predictions = self.predict(sources, beam=beam, align=False, allow_unknown_features=True)
        return with_references(self.codec, [each.tokens for each in predictions], given, more_references)

    def evaluate_online(
        self,
        pairs: PairsLike,
        *,
        more_references: Sequence[Sequence[str]] = (),
        **options: Unpack[StreamOptions],
    ) -> Evaluation:
        """The metrics and the delay of outputs that are written while inputs are read token by token."""
        given = self._pairs(pairs, "evaluate_online")
        check_not_empty(given, "evaluate_online")
        sources = [self.codec.source.tokens(source.text) for source, _ in given]
        check_stream_options(options)
        timed: list[Timed] = []
        for start in range(0, len(given), self.batch_size):
            some = slice(start, start + self.batch_size)
            group = self._streams([source.features for source, _ in given[some]], options)
            timed += run_streams(group, sources[some])
        outputs = with_references(self.codec, [each.tokens for each in timed], given, more_references)
        delays = [
            Delays(each.read, len(source), len(wanted[0]))
            for each, source, wanted in zip(timed, sources, outputs.reference_tokens, strict=True)
        ]
        return evaluation_of(self, given, score_task(self, outputs) | score_delays(delays))

    def target_tokens(self, given: Sequence[tuple[Source, str]]) -> int:
        """The number of target tokens, end symbols included."""
        return sum(len(self.codec.target.tokens(target)) + 1 for _, target in given)

    def _file_pairs(self, path: Path) -> Iterable[Pair]:
        return pairs_of(self.recipe, path)

    def _align(self, source: Source, target: str) -> Alignment:
        raise NotImplementedError


@errors_in_python()
def load(run: str | Path, *, device: str = "auto", threads: int | None = None, settings: Settings = ()) -> Model:
    """The trained model of a run, to predict, score, align, rank and evaluate.

    ``run`` is a run folder, or a file of ``antiphon pack``.
    ``device`` is "auto", "cpu" or "cuda". ``threads`` sets PyTorch's number of threads for the whole process; None
    leaves it as it is. ``settings`` change how outputs are searched: ``{"search.length_normalisation": 0.7}``.
    """
    check_threads(threads)
    check_settings(settings, "search.beam", 20)
    folder = RunFolder.open(as_path("run", run))
    if threads is not None:
        torch.set_num_threads(threads)
    return load_opened(folder, Path(run), device=device, settings=settings)


def load_opened(folder: RunFolder, path: Path, *, device: str = "auto", settings: Settings = ()) -> Model:
    """The trained model of a run whose files are verified already; errors name it by ``path``."""
    recipe = change_search(folder.recipe(), settings)
    interface = KINDS[recipe.model.kind].interface()
    with folder.errors_named(path), torch.random.fork_rng(devices=[]):
        # initial weights are drawn before the trained ones replace them
        return interface.open(folder, recipe, choose_device(device))


def load_planner(run: str | Path, settings: Settings = ()) -> Model:
    """The model of a run without its weights: it plans batches and fills in blank inputs, but predicts nothing."""
    folder = RunFolder.open(Path(run))
    recipe = change_search(folder.recipe(), settings)
    return load(run, device="cpu") if KINDS[recipe.model.kind].ranks else Model(recipe, folder.codec(recipe))
