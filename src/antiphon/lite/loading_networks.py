"""The network of an exported folder."""

from antiphon.exceptions import RunError
from antiphon.lite.exported_folder import ExportedFolder
from antiphon.lite.onnx_graph import OnnxGraph
from antiphon.lite.step_model import GraphModel, StepModel
from antiphon.lite.summed_transducer import SummedTransducer
from antiphon.lite.transducer_graphs import TransducerGraphs


def load_network(folder: ExportedFolder, threads: int) -> StepModel | None:
    """The network of a folder; None for suffix rules."""
    structure = folder.network["structure"]
    if structure == "transducer":
        return SummedTransducer(load_transducer(folder, threads))
    if structure == "steps":
        start, step = (OnnxGraph(folder.path / f"{name}.onnx", threads) for name in ("start", "step"))
        return GraphModel(start, step, folder.network["state"], folder.network["axes"])
    raise RunError(f"{folder.path}: a network of the unknown structure {structure}, expected one of this version")


def load_transducer(folder: ExportedFolder, threads: int) -> TransducerGraphs:
    """The graphs of a transducer."""
    encode, decode = (OnnxGraph(folder.path / f"{name}.onnx", threads) for name in ("encode", "decode"))
    step = OnnxGraph(folder.path / "encode_step.onnx", threads) if folder.has("encode_step.onnx") else None
    return TransducerGraphs(folder.network, encode, decode, step)
