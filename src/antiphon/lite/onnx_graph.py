"""ONNX graphs, run by onnxruntime with arrays of numpy by name."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from antiphon.exceptions import RunError, check_installed
from antiphon.lite.log_space import Array
from antiphon.terminal import one_line


class TensorType(NamedTuple):
    """The element type of an input or output, and its shape: fixed sizes, and names of sizes that vary."""

    element: str
    shape: tuple[int | str | None, ...]

    def fits(self, other: "TensorType") -> bool:
        """Whether both can be one tensor."""
        if self.element != other.element or len(self.shape) != len(other.shape):
            return False
        sizes = zip(self.shape, other.shape, strict=True)
        return all(one == two for one, two in sizes if isinstance(one, int) and isinstance(two, int))

    def __str__(self) -> str:
        return f"{self.element} of {' x '.join(map(str, self.shape))}"


Types = Mapping[str, TensorType]


def ids(*shape: str) -> TensorType:
    """The type of an array of ids."""
    return TensorType("int64", shape)


def numbers(*shape: int | str | None) -> TensorType:
    """The type of an array of numbers in single precision."""
    return TensorType("float", shape)


class OnnxGraph:
    """A graph in a file."""

    def __init__(self, path: Path, threads: int) -> None:
        check_installed("onnxruntime", "lite", "antiphon.lite")
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
        options.log_severity_level = 4  # what fails is raised, too
        self._path = path
        try:
            self._session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
        except Exception as error:  # onnxruntime's own classes have no common base
            raise self._refusal("read", error) from None
        self.inputs, self.outputs = _types(self._session.get_inputs()), _types(self._session.get_outputs())

    def __call__(self, **given: Array | None) -> dict[str, Array]:
        """The outputs by name; inputs that the graph does not need are ignored."""
        try:
            found = self._session.run(None, {name: given[name] for name in self.inputs})
        except Exception as error:
            raise self._refusal("run", error) from None
        return dict(zip(self.outputs, found, strict=True))

    def _refusal(self, verb: str, error: Exception) -> RunError:
        reason = one_line(str(error))
        return RunError(f"{self._path}: onnxruntime cannot {verb} it ({reason}), expected a graph that antiphon wrote")

    def check(self, inputs: Types, outputs: Types) -> None:
        """Refuses a graph that needs other inputs than these, or does not give these outputs."""
        self._check("inputs", self.inputs, inputs, self.inputs.keys() <= inputs.keys())
        self._check("outputs", self.outputs, outputs, self.outputs.keys() >= outputs.keys())

    def _check(self, what: str, found: Types, expected: Types, has_names: bool) -> None:
        if not has_names:
            raise self._mismatch(f"its {what} are {', '.join(found)}", ", ".join(expected))
        for name in expected:
            if name in found and not found[name].fits(expected[name]):
                raise self._mismatch(f"{name} is {found[name]}", str(expected[name]))

    def _mismatch(self, found: str, expected: str) -> RunError:
        return RunError(f"{self._path}: {one_line(found)}, expected {expected}; export the run again")


def _types(tensors: Sequence[Any]) -> dict[str, TensorType]:
    """The types of inputs or outputs, as onnxruntime describes them: ``tensor(float)``."""
    return {
        each.name: TensorType(each.type.removeprefix("tensor(").removesuffix(")"), tuple(each.shape))
        for each in tensors
    }
