"""The network of an exported folder; parts that do not fit together are refused."""

from antiphon.exceptions import RunError
from antiphon.lite.averaged_models import AveragedModels, Member
from antiphon.lite.exported_folder import ExportedFolder
from antiphon.lite.noisy_channel_search import Channel, Language, NoisyChannel
from antiphon.lite.onnx_graph import OnnxGraph
from antiphon.lite.step_model import GraphModel, StepModel
from antiphon.lite.summed_transducer import SummedTransducer
from antiphon.lite.transducer_graphs import TransducerGraphs
from antiphon.torch_free.hypothesis import Weights
from antiphon.torch_free.vocab import Vocab


def load_network(folder: ExportedFolder, threads: int) -> StepModel:
    """The network of a folder: a single one, or an ensemble."""
    if folder.structure != "ensemble":
        return _load_single(folder, threads)
    parts = [folder.part(name) for name in folder.network["members"]]
    members = [Member.of(_load_single(part, threads), part.codec, folder.codec) for part in parts]
    return AveragedModels(members, folder.network["mean"])


def _load_single(folder: ExportedFolder, threads: int) -> StepModel:
    _expect(folder, "transducer", "steps")
    return _load_steps(folder, threads) if folder.structure == "steps" else SummedTransducer(_load(folder, threads))


def _load_steps(folder: ExportedFolder, threads: int) -> GraphModel:
    """A model whose step is one graph."""
    start, step = (OnnxGraph(folder.file(f"{name}.onnx"), threads) for name in ("start", "step"))
    return GraphModel(start, step, len(folder.codec.target.vocab))


def _load(folder: ExportedFolder, threads: int) -> TransducerGraphs:
    """The graphs of a transducer."""
    source, target = folder.codec.source.vocab, folder.codec.target.vocab
    counterparts = folder.network["counterparts"]
    if len(counterparts) != len(source) or max(counterparts) >= len(target):
        raise RunError(f"{folder.path}: ties that do not fit its vocabularies, expected one for each source token")
    encode, decode = (OnnxGraph(folder.file(f"{name}.onnx"), threads) for name in ("encode", "decode"))
    step = OnnxGraph(folder.file("encode_step.onnx"), threads) if folder.has("encode_step.onnx") else None
    copies = folder.codec.copies_words
    return TransducerGraphs(folder.network, encode, decode, step, target_size=len(target), copies_words=copies)


def load_noisy_channel(folder: ExportedFolder, threads: int) -> NoisyChannel:
    """The models of a noisy channel."""
    parts = {name: folder.part(name) for name in folder.network["parts"]}
    if "direct" not in parts:
        raise RunError(f"{folder.path}: no direct model in it, expected one in {folder.path / 'direct'}")
    if _vocabularies(folder) != _vocabularies(parts["direct"]):
        raise RunError(f"{folder.path}: its vocabularies differ from those of its direct model, expected the same")
    _expect(parts["direct"], "transducer", "ensemble")
    direct = load_network(parts["direct"], threads)
    if isinstance(direct, AveragedModels) and direct.member_with("log_rows") is None:
        raise RunError(f"{folder.path}: a direct model without a transducer, expected one that knows how far it read")
    return NoisyChannel(
        direct,
        _load_channel(parts["channel"], folder, threads) if "channel" in parts else None,
        _load_language(parts["lm"], folder, threads) if "lm" in parts else None,
        Weights(*folder.network["weights"]),
        folder.network["reading"],
    )


def _load_channel(part: ExportedFolder, folder: ExportedFolder, threads: int) -> Channel:
    _expect(part, "transducer")
    graphs = _load(part, threads)
    if not graphs.can_stream or graphs.copies_words:
        raise RunError(f"{part.path}: not a channel, expected an LSTM that reads from the left and copies no words")
    return Channel.of(graphs, part.codec, folder.codec)


def _load_language(part: ExportedFolder, folder: ExportedFolder, threads: int) -> Language:
    _expect(part, "steps")
    return Language.of(_load_steps(part, threads), part.codec, folder.codec)


def _expect(folder: ExportedFolder, *structures: str) -> None:
    """Refuses a part of another structure."""
    if folder.structure not in structures:
        raise RunError(f"{folder.path}: a network of structure {folder.structure}, expected {' or '.join(structures)}")


def _vocabularies(folder: ExportedFolder) -> tuple[Vocab, Vocab, Vocab, bool]:
    codec = folder.codec
    return codec.source.vocab, codec.target.vocab, codec.features, codec.copies_words
