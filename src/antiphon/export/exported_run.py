"""Writes a trained run as a folder for ``antiphon.lite``."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from itertools import chain
from pathlib import Path
from typing import Any

import torch

from antiphon import __version__
from antiphon.exceptions import RunError, check_installed
from antiphon.export.graphs import exportable, step_graphs, stream_graphs, write_graph
from antiphon.lite.folder import write_settings
from antiphon.lite.graphs import TWIN
from antiphon.models.left_to_right import LeftToRight
from antiphon.recipe.kinds import KINDS
from antiphon.recipe.schema import Recipe
from antiphon.runs.build import build_beam, build_normalisation
from antiphon.runs.combined_runs import copy_files, copy_vocabs
from antiphon.runs.run_folder import RunFolder, load_any_network, refuse_inside
from antiphon.storage.files import (
    final_name_in_errors,
    locked,
    new_scratch_folder,
    remove_tree,
    sweep,
    sync_path,
    synced_files,
)


def export_run(run: Path, out: Path, *, int8: bool = False) -> None:
    """Writes the run as a new folder of graphs, vocabularies and settings; with ``int8``, weights have 8 bits."""
    check_installed("onnx", "export", "antiphon export")
    folder = RunFolder.open(run)
    recipe = folder.recipe()
    _refuse_kind(folder, recipe)
    refuse_inside(out, [folder])
    with _new_folder(out) as new, torch.random.fork_rng(devices=[]):
        network = _write_network(folder, recipe, new, int8)
        copy_vocabs(folder, RunFolder(new))
        rule_weight = 1.0 if recipe.model.kind == "suffix_rule" else recipe.search.rule_weight or 0.0
        if rule_weight := rule_weight * folder.rules.exists():
            copy_files(folder, ("rules.tsv",), new)
        settings = _settings(folder, recipe) | {"rule_weight": rule_weight, "weights": "int8" if int8 else "float32"}
        write_settings(new, settings | {"network": network})


@contextmanager
def _new_folder(out: Path) -> Iterator[Path]:
    """An empty folder that is renamed to ``out`` once everything in it is synced, or else removed."""
    _refuse_existing(out)
    with locked(out.parent, wait=True), final_name_in_errors(out):
        _refuse_existing(out)  # another process may have written it meanwhile
        sweep(out.parent)
        new = new_scratch_folder(out.parent)
        try:
            yield new
            synced_files(new)
            new.rename(out)
        except BaseException:
            remove_tree(new)
            raise
        sync_path(out.parent)


def _refuse_existing(out: Path) -> None:
    if out.is_symlink() or (out.exists() and not (out.is_dir() and not any(out.iterdir()))):
        raise RunError(f"{out}: exists already, expected the name of a new folder; remove it, or choose another --out")


def _refuse_kind(run: RunFolder, recipe: Recipe) -> None:
    """Refuses kinds and searches that cannot be exported."""
    kind = KINDS[recipe.model.kind]
    expected = "one that writes outputs" if kind.ranks else ""
    if kind.name == "noisy_channel":
        expected = f"a single model or an ensemble, such as its direct model in {run.path / 'direct'}"
    if expected:
        raise RunError(f"{run.path}: a run of kind {kind.name} cannot be exported, expected {expected}")
    if (over := recipe.search.over) != "outputs":
        raise RunError(f'{run.path}: search.over = "{over}", expected a search over outputs: only this one is exported')


def _write_network(run: RunFolder, recipe: Recipe, out: Path, int8: bool) -> dict[str, Any]:
    """Writes the graphs of the network, if the kind has one; what the settings say about it."""
    if recipe.model.kind == "suffix_rule":
        return {"structure": "rules", "copies_unknown": False}
    model = load_any_network(run, recipe)
    if not isinstance(model, LeftToRight):
        raise RunError(f"{run.path}: a run of kind {recipe.model.kind} cannot be exported, expected token by token")
    twin = model.twin
    for graph in chain(step_graphs(exportable(model)), stream_graphs(model)):
        write_graph(graph, out / f"{graph.name}.onnx", int8=int8)
    for graph in step_graphs(exportable(twin)) if twin is not None else ():
        write_graph(graph, out / f"{TWIN}{graph.name}.onnx", int8=int8)
    return {"structure": "steps", "copies_unknown": model.copies_unknown}


def _settings(run: RunFolder, recipe: Recipe) -> dict[str, Any]:
    """All settings that ``antiphon.lite`` needs, without those of the network."""
    codec = run.codec(recipe)
    search = asdict(build_beam(recipe.search))
    del search["nbest"]
    return {
        "antiphon": __version__,
        "kind": recipe.model.kind,
        "predicts": KINDS[recipe.model.kind].predicts,
        "text": {
            "normalisation": asdict(build_normalisation(recipe.data)),
            **{f"{side}_tokens": kind for side, kind in run.token_kinds(recipe).items()},
            "copies_words": codec.copies_words,
            "reads_features": bool(recipe.data.features),
            "swap": recipe.data.swap,
            "columns": recipe.data.columns,
        },
        "vocab_sizes": dict(zip(("source", "target", "features"), map(len, codec.vocabs), strict=True)),
        "search": search,
        "batch_size": recipe.search.batch_size,
    }
