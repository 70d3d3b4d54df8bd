"""ONNX graphs, run by onnxruntime with arrays of numpy by name, and models whose steps are graphs.

The interface of models is that of ``models/left_to_right.py``: ``start`` gives memory and the first state of sources,
``step`` log probabilities of the next token after each prefix and the next state. The tensors of a state are the inputs
of ``step`` that have an axis of prefixes, the rest is memory. ``export/graphs.py`` lists the graphs.
"""

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from antiphon.exceptions import RunError, check_installed
from antiphon.lite.folder import ExportedFolder
from antiphon.terminal import one_line
from antiphon.torch_free.batch import PaddedPairs
from antiphon.torch_free.codec import PairCodec
from antiphon.torch_free.vocab import NOT_COPIED, START

Array = NDArray[Any]
State = dict[str, Array]
"""The tensors of a state by name."""
IMPOSSIBLE = -np.inf
MEMORY, STATE, AFTER = "memory", "state", "_after"
"""How names of tensors of a memory and of a state begin, and how those of the next state end."""
PREFIXES = "prefixes"
"""The name of the axis of prefixes in every tensor of a state."""
SOURCE, TARGET, FACTORS = "source", "target", ("logits", "transition")
"""The two sides of a cell of a transducer, and what each contributes."""
TWIN = "twin_"
"""How the names of the graphs of a right-to-left twin begin."""
_LOG_WEIGHT = "state_log_weight"
"""In the state of a transducer, the weight of every row for the next token."""
_FOLDER_OF_WEIGHTS = "session.model_external_initializers_file_folder_path"
"""Where onnxruntime looks for weights outside of a graph, which no digest covers: nowhere."""
_ABOVE_ROUNDING = 0.01
"""No log probability is as large, however it was rounded."""


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


def tensor(element: str, *shape: int | str | None) -> TensorType:
    """The type of an array of ids (``int64``) or of numbers (``float``, ``double``)."""
    return TensorType(element, shape)


class OnnxGraph:
    """A graph in a file."""

    def __init__(self, path: Path, threads: int) -> None:
        check_installed("onnxruntime", "lite", "antiphon.lite")
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
        options.log_severity_level = 4  # what fails is raised, too
        # Graphs were optimised when they were exported.
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
        options.enable_mem_pattern = False
        options.add_session_config_entry(_FOLDER_OF_WEIGHTS, os.devnull)
        self._path = path
        try:
            content = path.read_bytes()
            self._session = onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
        except Exception as error:  # onnxruntime's own classes have no common base
            raise self._refusal("read", error) from None
        self.inputs, self.outputs = (  # onnxruntime describes their types as tensor(float)
            {each.name: TensorType(each.type[7:-1], tuple(each.shape)) for each in found}
            for found in (self._session.get_inputs(), self._session.get_outputs())
        )
        self.axes = {name: each.shape.index(PREFIXES) for name, each in self.inputs.items() if PREFIXES in each.shape}
        """The tensors of the state, each with its axis of prefixes."""

    def __call__(self, given: Mapping[str, Array], names: Sequence[str] = ()) -> dict[str, Array]:
        """Some or all outputs by name; inputs that the graph does not need are ignored."""
        names = names or [*self.outputs]
        try:
            found = self._session.run(names, {name: given[name] for name in self.inputs})
        except Exception as error:
            raise self._refusal("run", error) from None
        return dict(zip(names, found, strict=True))

    def advance(self, state: State, wanted: Sequence[str], **given: Array) -> tuple[dict[str, Array], State]:
        """Some outputs by name, and the next state."""
        found = self(given | state, [*wanted, *(f"{name}{AFTER}" for name in self.axes)])
        prefixes = dict.fromkeys(wanted, 0) | {f"{name}{AFTER}": axis for name, axis in self.axes.items()}
        for name, axis in prefixes.items():  # what a graph declares need not be true
            self.check_size(name, found[name], axis, len(given["tokens"]))
        return found, {name: found.pop(f"{name}{AFTER}") for name in self.axes}

    def check_size(self, name: str, found: Array, axis: int, expected: int) -> None:
        """Refuses a graph of which an output has another size than expected."""
        if found.shape[axis : axis + 1] != (expected,):
            shape = " x ".join(map(str, found.shape))
            raise self.mismatch(f"{name} is of {shape}", f"a size of {expected} in axis {axis + 1}")

    def select(self, state: State, index: Array) -> State:
        """The states of some prefixes; what has no axis of prefixes in the graph has them first."""
        return {name: each.take(index, self.axes.get(name, 0)) for name, each in state.items()}

    def join(self, state: State, others: State) -> State:
        """The states of two lists of prefixes, one after the other; the first may be empty."""
        if not state:
            return others
        return {name: np.concatenate([state[name], each], self.axes.get(name, 0)) for name, each in others.items()}

    def put(self, state: State, index: Array, others: State) -> None:
        """Replaces the states of some prefixes."""
        for name, each in others.items():
            axis = self.axes.get(name, 0)
            np.moveaxis(state[name], axis, 0)[index] = np.moveaxis(each, axis, 0)

    def _refusal(self, verb: str, error: Exception) -> RunError:
        reason = one_line(str(error))
        return RunError(f"{self._path}: onnxruntime cannot {verb} it ({reason}), expected a graph that antiphon wrote")

    def check(self, inputs: Mapping[str, TensorType], outputs: Mapping[str, TensorType]) -> None:
        """Refuses a graph that needs other inputs than these, or does not give these outputs and its own next state."""
        outputs = {**outputs, **{f"{name}{AFTER}": self.inputs[name] for name in self.axes}}
        has_names = self.inputs.keys() <= inputs.keys(), self.outputs.keys() >= outputs.keys()
        sides = ("inputs", self.inputs, inputs), ("outputs", self.outputs, outputs)
        for (what, found, expected), has in zip(sides, has_names, strict=True):
            wrong = [name for name in expected if name in found and not found[name].fits(expected[name])]
            if not has:
                raise self.mismatch(f"its {what} are {', '.join(found)}", ", ".join(expected))
            if wrong:
                raise self.mismatch(f"{wrong[0]} is {found[wrong[0]]}", str(expected[wrong[0]]))

    def mismatch(self, found: str, expected: str) -> RunError:
        """The error of a graph that gives something else than expected."""
        return RunError(f"{self._path}: {one_line(found)}, expected {expected}; export the run again")


class GraphModel:
    """A network: graphs for ``start`` and ``step``, and for ``rows`` if it knows where it writes.

    The names of the graphs of a right-to-left twin begin with ``prefix``.
    """

    def __init__(self, folder: ExportedFolder, threads: int, prefix: str = "") -> None:
        start, step, rows = (f"{prefix}{name}.onnx" for name in ("start", "step", "rows"))
        self._start, self._step = (OnnxGraph(folder.path / name, threads) for name in (start, step))
        self._rows = OnnxGraph(folder.path / rows, threads) if folder.has(rows) else None
        self.copies_unknown = bool(folder.settings["network"]["copies_unknown"])
        self.aligns = self._rows is not None
        self.knows_rows = _LOG_WEIGHT in self._step.axes
        self.select = self._step.select
        self._check(folder.codec)

    def _check(self, codec: PairCodec) -> None:
        """Refuses graphs that do not fit each other and the size of the vocabulary."""
        pairs, lengths = tensor("int64", "B", "I"), tensor("int64", "B")
        sources = {"source": pairs, "lengths": lengths, "features": tensor("int64", "B", "F"), "copied": pairs}
        self._start.check(sources, {name: self._step.inputs[name] for name in self._step.axes})
        known = {"tokens": tensor("int64", "N"), "sentence": tensor("int64", "N")} | self._start.outputs
        size = "W" if codec.copies_words and self.aligns else len(codec.target.vocab)
        outputs = {"log_next": tensor("float", "N", size)}
        self._width = size
        if self._rows is not None:
            outputs |= {"log_arrive": tensor("double", "N", "I"), "log_forward": tensor("double", "N", "I")}
            outputs |= {"log_read": tensor("float", "N", "I")}
            self._rows.check(known | {"parent": tensor("int64", "M")}, {"log_rows": tensor("double", "M", "I")})
        self._step.check(known, outputs)

    def start(self, pairs: PaddedPairs) -> tuple[State, State]:
        """Memory by name, and the state before the start symbol of every sentence."""
        copied = pairs.copied if pairs.copied.shape[1] else np.full_like(pairs.source, NOT_COPIED)
        given = {"source": pairs.source, "lengths": pairs.source_lengths, "features": pairs.features, "copied": copied}
        found = self._start(given)
        return found, {name: found.pop(name) for name in self._step.axes}

    def step(self, memory: State, state: State, tokens: Array, sentence: Array) -> tuple[Array, State]:
        """Log probabilities of the token after these, and the next state."""
        found, after = self._step.advance(state, ("log_next",), **memory, tokens=tokens, sentence=sentence)
        return self._checked(found["log_next"]), after

    def _checked(self, log_next: Array) -> Array:
        """The log probabilities of the next token; NaN, numbers above 0 and another number of tokens are refused."""
        if isinstance(self._width, int):
            self._step.check_size("log_next", log_next, 1, self._width)
        if not log_next.max(initial=IMPOSSIBLE) < _ABOVE_ROUNDING:
            raise self._step.mismatch("log_next holds NaN or numbers above 0", "log probabilities")
        return log_next

    def log_rows(self, memory: State, state: State, parent: Array, tokens: Array, sentence: Array) -> Array:
        """Log probabilities of the row in which one more token after each parent was written."""
        assert self._rows is not None
        return self._rows(memory | state | {"parent": parent, "tokens": tokens, "sentence": sentence})["log_rows"]

    def next_rows(self, state: State) -> Array:
        """The row in which each prefix will most probably write next."""
        return np.asarray(state[_LOG_WEIGHT].argmax(1))

    def token_log_probs(self, pairs: PaddedPairs) -> Array:
        """Log probabilities of the tokens of each target, as doubles; 0 at padding."""
        sentence = np.arange(len(pairs.target))
        steps = zip(pairs.target.T, self._forced(pairs, "log_next"), strict=True)
        found = np.stack([self._checked(found)[sentence, token].astype(np.float64) for token, (found,) in steps], 1)
        return np.where(np.arange(found.shape[1]) < pairs.target_lengths[:, None], found, 0.0)

    def best_rows(self, pairs: PaddedPairs) -> Array:
        """The input position of each target token on the best alignment of each pair; the last is that of its end."""
        arrive, forward, reads = zip(*self._forced(pairs, "log_arrive", "log_forward", "log_read"), strict=True)
        moves = []
        # The probability of having written a token in a row is that of reaching the row times that of the write.
        for log_forward, log_read, log_arrive in zip(forward, reads, [*arrive[1:], arrive[0]], strict=True):
            with np.errstate(invalid="ignore"):
                log_write = np.where(log_forward > IMPOSSIBLE, log_arrive - log_forward, IMPOSSIBLE)
            moves.append((log_write, log_read.astype(np.float64)))
        return best_path(moves, pairs.source_lengths, pairs.target_lengths)

    def _forced(self, pairs: PaddedPairs, *names: str) -> Iterator[list[Array]]:
        """Some outputs of ``step`` after each prefix of the targets."""
        memory, state = self.start(pairs)
        sentence, tokens = np.arange(len(pairs.target)), np.full(len(pairs.target), START)
        for following in pairs.target.T:
            given, state = self._step.advance(state, names, **memory, tokens=tokens, sentence=sentence)
            for name in names:
                width = self._width if name == "log_next" else pairs.source.shape[1]
                if isinstance(width, int):
                    self._step.check_size(name, given[name], 1, width)
            yield [given[name] for name in names]
            tokens = following


def best_path(moves: Sequence[tuple[Array, Array]], source_lengths: Array, target_lengths: Array) -> Array:
    """The row of each token on the path with the highest product of moves; among equals the one that reads sooner.

    ``moves`` are the log scores of writing each token in each row, up to a constant, and of reading there::

        best(i, j) = max(best(i, j-1) + write(i, j-1), best(i-1, j) + read(i-1, j))
    """
    best, came_from = np.where(np.arange(len(moves[0][0][0])) == 0, 0.0, IMPOSSIBLE), []
    best = np.broadcast_to(best, moves[0][0].shape)
    for log_write, log_read in moves:
        reading = log_read.cumsum(1) - log_read
        lead = best - reading
        reached = np.maximum.accumulate(lead, 1)
        rows = np.where(lead >= reached, np.arange(lead.shape[1]), 0)
        came_from.append(np.maximum.accumulate(rows, 1))
        best = reached + reading + log_write
    return _trace_back(came_from, source_lengths - 1, target_lengths)


def _trace_back(came_from: Sequence[Array], last_row: Array, target_lengths: Array) -> Array:
    """The row of each token: the last one for the end symbol, and before it the one from which each was reached."""
    J = len(came_from)
    found = np.empty((len(last_row), J), np.int64)
    row = last_row
    for column in reversed(range(J)):
        found[:, column] = row = np.where(column >= target_lengths - 1, last_row, row)
        row = came_from[column][np.arange(len(row)), row]
    return found
