"""The network of an exported folder."""

from antiphon.exceptions import RunError
from antiphon.lite.averaged_models import AveragedModels, Member
from antiphon.lite.exported_folder import ExportedFolder
from antiphon.lite.noisy_channel_search import Channel, Language, NoisyChannel
from antiphon.lite.onnx_graph import OnnxGraph
from antiphon.lite.step_model import GraphModel, StepModel
from antiphon.lite.summed_transducer import SummedTransducer
from antiphon.lite.transducer_graphs import TransducerGraphs
from antiphon.models.channel_weights import Weights


def load_network(folder: ExportedFolder, threads: int) -> StepModel:
    """The network of a folder: a single one, or an ensemble."""
    structure = folder.network["structure"]
    if structure == "transducer":
        return SummedTransducer(load_transducer(folder, threads))
    if structure == "steps":
        return _load_steps(folder, threads)
    if structure == "ensemble":
        parts = [folder.part(name) for name in folder.network["members"]]
        members = [Member.of(load_network(part, threads), part.codec, folder.codec) for part in parts]
        return AveragedModels(members, folder.network["mean"])
    raise RunError(f"{folder.path}: a network of the unknown structure {structure}, expected one of this version")


def _load_steps(folder: ExportedFolder, threads: int) -> GraphModel:
    """A model whose step is one graph."""
    start, step = (OnnxGraph(folder.file(f"{name}.onnx"), threads) for name in ("start", "step"))
    return GraphModel(start, step, folder.network["state"], folder.network["axes"])


def load_noisy_channel(folder: ExportedFolder, threads: int) -> NoisyChannel:
    """The models of a noisy channel."""
    parts = {name: folder.part(name) for name in folder.network["parts"]}
    channel, language = parts.get("channel"), parts.get("lm")
    ours = folder.codec
    return NoisyChannel(
        load_network(parts["direct"], threads),
        None if channel is None else Channel.of(load_transducer(channel, threads), channel.codec, ours),
        None if language is None else Language.of(_load_steps(language, threads), language.codec, ours),
        Weights(*folder.network["weights"]),
        folder.network["reading"],
    )


def load_transducer(folder: ExportedFolder, threads: int) -> TransducerGraphs:
    """The graphs of a transducer."""
    encode, decode = (OnnxGraph(folder.file(f"{name}.onnx"), threads) for name in ("encode", "decode"))
    step = OnnxGraph(folder.file("encode_step.onnx"), threads) if folder.has("encode_step.onnx") else None
    return TransducerGraphs(folder.network, encode, decode, step)
