"""Writes a trained run as a folder for ``antiphon.lite``."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from antiphon import __version__
from antiphon.exceptions import RunError, check_installed
from antiphon.export.graphs import GraphSpec, write_graph
from antiphon.export.network_graphs import ChannelSteps, TransformerSteps, can_stream, step_graphs, stream_graphs
from antiphon.export.replacement import replaced_export
from antiphon.lite.folder import write_settings
from antiphon.models.left_to_right import LeftToRight, copies_unknown
from antiphon.models.transducer import Transducer
from antiphon.models.transformer import Transformer
from antiphon.nn.recurrent import SourceEncoder
from antiphon.recipe.kinds import KINDS
from antiphon.recipe.schema import Recipe
from antiphon.runs.build import build_beam, build_normalisation
from antiphon.runs.combined_runs import load_noisy_channel
from antiphon.runs.copies import copy_files, copy_vocabs
from antiphon.runs.run_folder import RunFolder, load_network, refuse_inside

Network = dict[str, Any]
"""What the settings of an exported run say about its network."""
WriteNetwork = Callable[[RunFolder, Recipe, Path, bool], Network]
"""Writes the network of a run, with ``int8`` weights or not, into a folder."""


def export_run(run: Path, out: Path, *, int8: bool = False, force: bool = False) -> None:
    """Writes the run as a folder of graphs, vocabularies and settings; nothing is left behind if that fails.

    An existing exported run is refused, or replaced with ``force``. With ``int8``, weights have 8 bits.
    """
    check_installed("onnx", "export", "antiphon export")
    folder = RunFolder.open(run)
    if (over := folder.recipe().search.over) != "outputs":
        raise RunError(f'{run}: search.over = "{over}", expected a search over outputs: only this one is exported')
    refuse_inside(out, [folder])
    with replaced_export(out, force=force) as new, torch.random.fork_rng(devices=[]):
        write_run(folder, new, int8=int8)


def write_run(run: RunFolder, out: Path, *, int8: bool, write_network: WriteNetwork | None = None) -> None:
    """Writes a run, or a part of one, into an empty folder; its network as usual for its kind, or as given."""
    recipe = run.recipe()
    write_network = write_network or _network_writer(run, recipe)
    network = write_network(run, recipe, out, int8)
    copy_vocabs(run, RunFolder(out))
    rule_weight = _copy_rules(run, recipe, out)
    settings = _settings(run, recipe) | {"rule_weight": rule_weight, "weights": "int8" if int8 else "float32"}
    write_settings(out, settings | {"network": network})


def _network_writer(run: RunFolder, recipe: Recipe) -> WriteNetwork:
    """The function that writes the network of a run's kind; kinds that cannot be exported are refused."""
    kind = KINDS[recipe.model.kind]
    if kind.ranks:
        raise RunError(f"{run.path}: a run of kind {kind.name} cannot be exported, expected one that writes outputs")
    return _WRITERS.get(kind.name, _write_network)


def _settings(run: RunFolder, recipe: Recipe) -> dict[str, Any]:
    """All settings that ``antiphon.lite`` needs, without those of the network."""
    codec = run.codec(recipe)
    tokens = {f"{side}_tokens": kind for side, kind in run.token_kinds(recipe).items()}
    search = asdict(build_beam(recipe.search))
    del search["nbest"]
    return {
        "antiphon": __version__,
        "kind": recipe.model.kind,
        "predicts": KINDS[recipe.model.kind].predicts,
        "text": {
            "normalisation": asdict(build_normalisation(recipe.data)),
            **tokens,
            "copies_words": codec.copies_words,
            "reads_features": bool(recipe.data.features),
            "swap": recipe.data.swap,
            "columns": recipe.data.columns,
        },
        "vocab_sizes": {
            "source": len(codec.source.vocab),
            "target": len(codec.target.vocab),
            "features": len(codec.features),
        },
        "search": search,
        "batch_size": recipe.search.batch_size,
    }


def _copy_rules(run: RunFolder, recipe: Recipe, out: Path) -> float:
    """Copies the suffix rules if they have a weight, which is returned."""
    is_alone = recipe.model.kind == "suffix_rule"
    weight = 1.0 if is_alone else recipe.search.rule_weight or 0.0
    if weight:
        copy_files(run, ("rules.tsv",), out)
    return weight if (out / "rules.tsv").exists() else 0.0


def _write_network(run: RunFolder, recipe: Recipe, out: Path, int8: bool) -> Network:
    """Writes the graphs of a single network."""
    model = load_network(run, recipe)
    if isinstance(model, Transformer):
        _refuse_replacing(run, recipe)
        model = TransformerSteps(model)
    if not isinstance(model, LeftToRight):
        raise RunError(f"{run.path}: a run of kind {recipe.model.kind} cannot be exported, expected token by token")
    _write_graphs(step_graphs(model), out, int8)
    if isinstance(model, Transducer) and can_stream(model):
        _write_graphs(stream_graphs(model), out, int8)
    return {"structure": "steps", "copies_unknown": copies_unknown(model)}


def _refuse_replacing(run: RunFolder, recipe: Recipe) -> None:
    """Refuses a transformer that replaces unknown words: the graph of its step has no attention weights."""
    if recipe.search.replace_unknown:
        raise RunError(f"{run.path}: a transformer with search.replace_unknown cannot be exported, expected it off")


def _write_graphs(graphs: Iterator[GraphSpec], out: Path, int8: bool) -> None:
    for graph in graphs:
        write_graph(graph, out / f"{graph.name}.onnx", int8=int8)


def _write_rules(run: RunFolder, recipe: Recipe, out: Path, int8: bool) -> Network:
    """Nothing: suffix rules have no network."""
    return {"structure": "rules"}


def _write_ensemble(run: RunFolder, recipe: Recipe, out: Path, int8: bool) -> Network:
    """Writes the members of an ensemble into folders of their own."""
    return {"structure": "ensemble", "mean": recipe.search.ensemble, "members": _write_parts(run, out, int8)}


def _write_noisy_channel(run: RunFolder, recipe: Recipe, out: Path, int8: bool) -> Network:
    """Writes the models of a noisy channel into folders of their own."""
    load_noisy_channel(run, recipe)  # refuses parts that do not fit together
    parts = _write_parts(run, out, int8)
    settings = {"weights": recipe.search.weights, "reading": recipe.search.channel_prefix}
    return {"structure": "noisy_channel", "parts": parts, **settings}


def _write_channel(run: RunFolder, recipe: Recipe, out: Path, int8: bool) -> Network:
    """Writes the graphs of the lattice of a channel model."""
    model = load_network(run, recipe)
    if not isinstance(model, Transducer) or not isinstance(model.encoder, SourceEncoder):
        raise RunError(f"{run.path}: a channel that a transformer reads cannot be exported, expected one with an LSTM")
    _write_graphs(step_graphs(ChannelSteps(model)), out, int8)
    return {"structure": "channel"}


def _write_parts(run: RunFolder, out: Path, int8: bool) -> list[str]:
    """Writes the runs that another one is made of; their names."""
    for name, part in run.parts().items():
        (out / name).mkdir()
        write_run(part, out / name, int8=int8, write_network=_write_channel if name == "channel" else None)
    return list(run.parts())


_WRITERS: Mapping[str, WriteNetwork] = {
    "suffix_rule": _write_rules,
    "ensemble": _write_ensemble,
    "noisy_channel": _write_noisy_channel,
}
"""The writers of kinds that are not a single network."""
