"""The network of an exported folder; parts that do not fit together are refused."""

from antiphon.exceptions import RunError
from antiphon.lite.ensemble import Ensemble, IdMaps, Member
from antiphon.lite.folder import ExportedFolder
from antiphon.lite.graphs import GraphModel, OnnxGraph, doubles, numbers
from antiphon.lite.noisy_channel import NoisyChannel, Part
from antiphon.lite.streams import StreamGraphs
from antiphon.torch_free.hypothesis import Weights
from antiphon.torch_free.vocab import Vocab


def load_network(folder: ExportedFolder, threads: int) -> GraphModel | Ensemble:
    """The network of a folder: a single one, or an ensemble."""
    if folder.structure != "ensemble":
        return _load_steps(folder, threads)
    parts = [folder.part(name) for name in folder.network["members"]]
    members = [Member(_load_steps(part, threads), IdMaps.of(folder.codec, part.codec)) for part in parts]
    return Ensemble(members, folder.network["mean"])


def load_stream_graphs(folder: ExportedFolder, threads: int) -> StreamGraphs | None:
    """The graphs of a transducer that reads the source token by token; None if the folder has none."""
    names = ("open", "read", "write", "cell")
    if not all(folder.has(f"{name}.onnx") for name in names):
        return None
    codec = folder.codec
    opening, read, write, cell = (OnnxGraph(folder.file(f"{name}.onnx"), threads) for name in names)
    graphs = StreamGraphs(opening, read, write, cell, len(codec.target.vocab), codec.copies_words)
    graphs.check()
    return graphs


def load_noisy_channel(folder: ExportedFolder, threads: int) -> NoisyChannel:
    """The models of a noisy channel."""
    parts = {name: folder.part(name) for name in folder.network["parts"]}
    if "direct" not in parts:
        raise RunError(f"{folder.path}: no direct model in it, expected one in {folder.path / 'direct'}")
    if _vocabularies(folder) != _vocabularies(parts["direct"]):
        raise RunError(f"{folder.path}: its vocabularies differ from those of its direct model, expected the same")
    direct = load_network(parts["direct"], threads)
    if not direct.aligns:
        raise RunError(f"{folder.path}: a direct model without a transducer, expected one that knows how far it read")
    channel = language = None
    if part := parts.get("channel"):
        ids = IdMaps.of(folder.codec, part.codec, reverse=True)._replace(copies_words=False)
        channel = Part(_load_steps(part, threads, "channel"), ids)
    if part := parts.get("lm"):
        language = Part(_load_steps(part, threads), IdMaps.of(folder.codec, part.codec))
    return NoisyChannel(direct, channel, language, Weights(*folder.network["weights"]), folder.network["reading"])


def _load_steps(folder: ExportedFolder, threads: int, structure: str = "steps") -> GraphModel:
    """A model of one of the structures whose step is a graph; another one is refused."""
    if folder.structure != structure:
        raise RunError(f"{folder.path}: a network of structure {folder.structure}, expected {structure}")
    start, step = (OnnxGraph(folder.file(f"{name}.onnx"), threads) for name in ("start", "step"))
    if structure == "channel":
        return GraphModel(start, step, None, doubles("N", "I"), copies_unknown=False)
    rows = OnnxGraph(folder.file("rows.onnx"), threads) if folder.has("rows.onnx") else None
    log_next = numbers("N", "W" if folder.codec.copies_words and rows else len(folder.codec.target.vocab))
    return GraphModel(start, step, rows, log_next, copies_unknown=folder.network["copies_unknown"])


def _vocabularies(folder: ExportedFolder) -> tuple[Vocab, Vocab, Vocab, bool]:
    codec = folder.codec
    return codec.source.vocab, codec.target.vocab, codec.features, codec.copies_words
