"""One recipe trained with several seeds: an ensemble, made in one go."""

from collections.abc import Sequence
from pathlib import Path

from antiphon.exceptions import RunError
from antiphon.recipe.kinds import KINDS
from antiphon.recipe.schema import Recipe
from antiphon.runs.combined_runs import check_member_kind, ensemble_runs
from antiphon.runs.run_folder import RunFolder, locked_folder
from antiphon.storage.files import beside
from antiphon.storage.manifest import MEMBERS, check_new_run, holds_run, remove_run
from antiphon.terminal import Say, count_of, silent
from antiphon.torch_free.inputs import check_whole
from antiphon.training.callback import Callback
from antiphon.training.distributed import from_rank_zero
from antiphon.training.fit import train


def train_seeds(
    recipe: Recipe,
    out: Path,
    seeds: int,
    *,
    say: Say = silent,
    resume: bool = False,
    force: bool = False,
    device: str = "auto",
    threads: int | None = None,
    callbacks: Sequence[Callback] = (),
) -> RunFolder:
    """Trains a recipe with ``seeds`` seeds, ``train.seed`` and those after it; returns their ensemble, the run ``out``.

    Members are trained one after another, each in a folder beside ``out``. These are removed once ``out`` has copies;
    runs that are there before are continued with ``resume``, and else refused: ``force`` replaces nothing but ``out``.
    """
    members = {member_folder(out, n): with_seed(recipe, n) for n in range(seeds)}
    if not from_rank_zero(lambda: _is_done(recipe, out, list(members), say, resume=resume, force=force)):
        for folder, own in members.items():
            say(f"{folder}: train.seed = {own.train.seed}")
            train(own, folder, say=say, resume=resume, device=device, threads=threads, callbacks=callbacks)
        from_rank_zero(lambda: _combine(list(members), out, force=force))
    return RunFolder(out)


def member_folder(out: Path, n: int) -> Path:
    """Where a member is trained."""
    return beside(out, f"member-{n + 1}")


def with_seed(recipe: Recipe, n: int) -> Recipe:
    """The recipe of a member, whose seed is ``n`` above that of all."""
    return recipe.model_copy(update={"train": recipe.train.model_copy(update={"seed": recipe.train.seed + n})})


def _is_done(recipe: Recipe, out: Path, members: Sequence[Path], say: Say, *, resume: bool, force: bool) -> bool:
    """Whether the ensemble is there already, to be resumed; what cannot become one is refused."""
    check_whole("seeds", len(members), least=2, most=len(MEMBERS))
    check_member_kind("--seeds", KINDS[recipe.model.kind])
    if not resume or not holds_run(out):
        check_new_run(out, force=force)
        for folder in () if resume else members:
            check_new_run(folder, force=False)
        return False
    found = len(RunFolder.open(out).parts())
    if found != len(members):
        raise RunError(f"{out}: a run with {count_of(found, 'member')}, expected {len(members)}; choose another --out")
    say(f"{out}: training has ended already, nothing to resume")
    return True


def _combine(members: Sequence[Path], out: Path, *, force: bool) -> None:
    """Makes the ensemble, and removes the runs that it has copies of."""
    ensemble_runs(members, out, force=force)
    for folder in members:
        with locked_folder(folder):
            remove_run(folder)
