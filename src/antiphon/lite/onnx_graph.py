"""ONNX graphs, run by onnxruntime with arrays of numpy by name."""

from pathlib import Path

from antiphon.exceptions import RunError, check_installed
from antiphon.lite.log_space import Array


class OnnxGraph:
    """A graph in a file."""

    def __init__(self, path: Path, threads: int) -> None:
        check_installed("onnxruntime", "lite", "antiphon.lite")
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
        options.log_severity_level = 3
        try:
            self._session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
        except Exception as error:  # onnxruntime's own classes have no common base
            raise RunError(
                f"{path}: onnxruntime cannot read it ({error}), expected a graph that antiphon wrote"
            ) from None
        self._inputs = [given.name for given in self._session.get_inputs()]
        self.outputs = [found.name for found in self._session.get_outputs()]

    def __call__(self, **given: Array | None) -> dict[str, Array]:
        """The outputs by name; inputs that the graph does not need are ignored."""
        found = self._session.run(None, {name: given[name] for name in self._inputs})
        return dict(zip(self.outputs, found, strict=True))
