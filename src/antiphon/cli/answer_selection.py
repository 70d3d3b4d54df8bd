"""Answer selection on the command line: reads questions, writes rankings, evaluates and compares runs that rank."""

import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from antiphon.cli.options import load_run
from antiphon.exceptions import RunError
from antiphon.ranking.questions import (
    Judgements,
    Question,
    QuestionSet,
    check_judgements,
    in_trec_order,
    parse_questions,
    read_qrels,
    read_questions,
    select_questions,
)
from antiphon.terminal import count_of, print_note
from antiphon.torch_free.readers import STANDARD_INPUT, read_standard_input
from antiphon.torch_free.results import Evaluation, Ranked

if TYPE_CHECKING:
    from antiphon.api.ranking_model import RankingModel
    from antiphon.report.comparison import ComparedSystems
    from antiphon.report.ranking_errors import RankingErrors


def predict(run: Path, file: Path, *, as_json: bool, explain: bool, device: str, threads: int | None) -> None:
    """Writes a TREC run (``question Q0 candidate rank score run``), or one JSON object per question.

    With ``explain``, the objects have attention weights.
    """
    model = cast("RankingModel", load_run(run, device, threads))
    questions = _read(file)
    unknown = model.unknown_questions(questions)
    if unknown:
        print_note(f"{count_of(unknown, 'question')} without a known word: their scores mean little")
    name = "_".join(run.resolve().name.split())  # one word, as trec_eval reads it
    ranked = list(map(in_trec_order, questions, model.rank_questions(questions, explain=explain)))
    for question, candidates in zip(questions, ranked, strict=True):
        if as_json or explain:
            print(json.dumps(as_object(question, candidates), ensure_ascii=False))
            continue
        for rank, each in enumerate(candidates, 1):
            print(f"{question.id} Q0 {question.answers[each.index].id} {rank} {each.score!r} {name}")


def _read(file: Path, *, labelled: bool = False) -> list[Question]:
    """The questions of a file, or of standard input."""
    if file != Path("-"):
        return read_questions(file, print_note, labelled=labelled)
    return parse_questions(read_standard_input(), STANDARD_INPUT, print_note, labelled=labelled)


def as_object(question: Question, ranked: Sequence[Ranked]) -> dict[str, Any]:
    """One line of ``--format jsonl``."""
    candidates = []
    for each in ranked:
        shown = each.to_dict()
        candidates.append({"candidate_id": question.answers[shown.pop("index")].id, **shown})
    return {"question_id": question.id, "question": question.text, "ranking": candidates}


def find_errors(model: "RankingModel", file: Path, against: "RankingModel | None") -> "RankingErrors":
    """What a run gets wrong in the questions of a file, alone or beside another run."""
    questions = _read(file, labelled=True)
    skipped = len(questions) - len(select_questions(questions, "mixed"))
    if skipped:
        print_note(f"{file}: {count_of(skipped, 'question')} without a right or without a wrong candidate left out")
    return model.question_errors(questions, against=against)


def load_ranking_run(run: Path, device: str, threads: int | None) -> "RankingModel":
    """The model of a run that ranks candidates."""
    from antiphon.api.ranking_model import RankingModel

    model = load_run(run, device, threads)
    if not isinstance(model, RankingModel):
        raise RunError(f"{run}: a run of kind {model.kind} ranks no candidates, expected one that does")
    return model


def evaluate(model: "RankingModel", file: Path, which: QuestionSet, qrels: Path | None) -> Evaluation:
    """The metrics of a file of questions, by its own labels or by those of a qrels file."""
    questions, judged = read_judged(file, qrels)
    note_unmixed(questions, which)
    return model.evaluate_questions(questions, which=which, judged=judged)


def compare_rankings(
    runs: Sequence[Path], file: Path, which: QuestionSet, qrels: Path | None, device: str, threads: int | None
) -> "ComparedSystems":
    """Ranking runs compared on the same questions, with the pairs that each scores per second."""
    from antiphon.metrics.output_metrics import RANKING_METRICS
    from antiphon.metrics.output_statistics import bootstrap
    from antiphon.report.comparison import ComparedSystems, System
    from antiphon.runs.run_folder import RunFolder

    questions, judged = read_judged(file, qrels)
    note_unmixed(questions, which)
    pairs = sum(len(question.answers) for question in select_questions(questions, which))
    systems, measured = [], []
    for run in runs:
        model = load_ranking_run(run, device, threads)
        started = time.perf_counter()
        measured.append(model.question_metrics(questions, which=which, judged=judged))
        per_second = pairs / (time.perf_counter() - started)
        systems.append(System(str(run), model.kind, RunFolder.open(run).metrics(), per_second))
    return ComparedSystems(systems, {name: bootstrap([each[name] for each in measured]) for name in RANKING_METRICS})


def note_unmixed(questions: Sequence[Question], which: QuestionSet) -> None:
    """Says how many questions cannot be ranked well or badly, since training skips those on dev."""
    skipped = len(questions) - len(select_questions(questions, "mixed"))
    if which == "all" and skipped:
        print_note(
            f"{skipped:,} of {count_of(len(questions), 'question')} without a right or without a wrong candidate count "
            "too; --questions mixed skips them, as training does on dev"
        )


def read_judged(file: Path, qrels: Path | None) -> tuple[list[Question], Judgements | None]:
    """Labelled questions, and the judgements that override their labels in the metrics."""
    questions = _read(file, labelled=True)
    judged = None if qrels is None else read_qrels(qrels)
    if judged is not None and qrels is not None:
        check_judgements(judged, questions, qrels)
    return questions, judged
