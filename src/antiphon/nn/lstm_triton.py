"""Triton kernels for one LSTM layer: all steps of a sequence in one launch, weights read once.

    i, f, g, o = sigmoid, sigmoid, tanh, sigmoid of (W x_t + b) + U h_{t-1}
    c_t        = f c_{t-1} + i g
    h_t        = o tanh(c_t)

The products with the inputs are one matrix product before the launch, those for the weights' gradients come after it.
The rest is a chain of small products. Each program keeps its slice of ``U`` for some units of the state and works
on some sequences; before every step the programs of the same sequences wait for each other, since each needs the
output of all of them. So all programs of a launch must be on the GPU at once, which a cooperative launch guarantees.
Products are in TF32, which training allows unless configured otherwise. Reference: ``torch.nn.LSTM``.
"""

from typing import Any

import torch
import triton
import triton.language as tl
from jaxtyping import Float
from torch import Tensor
from torch.autograd.function import once_differentiable

from antiphon.device import AMPERE, gpu_properties

_UNITS = 16
"""Units of the state per program; a product of tiles needs at least sixteen."""
_ROWS = 16
"""Sequences per program."""


def can_sweep(B: int, H: int, device: torch.device) -> bool:
    """Whether the kernel can run: TF32 is allowed and available, and all programs fit on the GPU at once."""
    gpu = gpu_properties(device)
    if torch.get_float32_matmul_precision() == "highest" or torch.version.cuda is None or gpu.major < AMPERE:
        return False
    programs = triton.cdiv(H, _UNITS) * triton.cdiv(B, _ROWS)
    kept = 4 * _state(H) * (_ROWS + _UNITS) * torch.float32.itemsize
    return bool(programs <= gpu.multi_processor_count and kept <= gpu.shared_memory_per_block_optin)


def lstm_states(
    gates: Float[Tensor, "B T 4H"],
    weight: Float[Tensor, "4H H"],
    hidden: Float[Tensor, "B H"] | None = None,
    cell: Float[Tensor, "B H"] | None = None,
) -> tuple[Float[Tensor, "B T H"], Float[Tensor, "B T H"]]:
    """Hidden and cell values after every step, from what inputs and biases contribute to the gates."""
    nothing = gates.new_zeros(gates.shape[0], weight.shape[1])
    return _States.apply(  # type: ignore[no-untyped-call,no-any-return]
        gates, weight, nothing if hidden is None else hidden, nothing if cell is None else cell
    )


def _state(H: int) -> int:
    return max(16, int(triton.next_power_of_2(H)))


class _States(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, gates: Tensor, weight: Tensor, hidden: Tensor, cell: Tensor) -> tuple[Tensor, Tensor]:
        weight, hidden = weight.contiguous(), hidden.contiguous()
        activations, states, cells = _sweep_forward(gates.contiguous(), weight, hidden, cell)
        ctx.save_for_backward(activations, states, cells, weight, hidden)
        ctx.set_materialize_grads(False)
        return states, cells[:, 1:]

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, for_states: Tensor | None, for_cells: Tensor | None) -> tuple[Tensor | None, ...]:
        activations, states, cells, weight, hidden = ctx.saved_tensors
        for_states = torch.zeros_like(states) if for_states is None else for_states.contiguous()
        for_cells = None if for_cells is None else for_cells.contiguous()
        for_gates, for_cell = _sweep_backward(activations, cells, weight, for_states, for_cells)
        before = torch.cat([hidden[:, None], states[:, :-1]], 1)
        for_weight = for_gates.flatten(0, 1).mT @ before.flatten(0, 1)
        for_hidden = for_gates[:, 0] @ weight if ctx.needs_input_grad[2] else None
        return for_gates, for_weight, for_hidden, for_cell


def _sweep_forward(
    gates: Float[Tensor, "B T 4H"],
    weight: Float[Tensor, "4H H"],
    hidden: Float[Tensor, "B H"],
    cell: Float[Tensor, "B H"],
) -> tuple[Float[Tensor, "B T 4H"], Float[Tensor, "B T H"], Float[Tensor, "B T+1 H"]]:
    """The gates after their nonlinearities, the states of every step, and its cells after those given."""
    B, T, _ = gates.shape
    H = weight.shape[1]
    activations, states, cells = torch.empty_like(gates), gates.new_empty(B, T, H), gates.new_empty(B, T + 1, H)
    cells[:, 0] = cell
    grid, options = _launch(B, H, gates.device)
    arrived = torch.zeros(grid[1], dtype=torch.int32, device=gates.device)
    _forward[grid](gates, weight, hidden, activations, states, cells, arrived, B, T, H, **options)
    return activations, states, cells


def _sweep_backward(
    activations: Float[Tensor, "B T 4H"],
    cells: Float[Tensor, "B T+1 H"],
    weight: Float[Tensor, "4H H"],
    for_states: Float[Tensor, "B T H"],
    for_cells: Float[Tensor, "B T H"] | None,
) -> tuple[Float[Tensor, "B T 4H"], Float[Tensor, "B H"]]:
    """Gradients of the gates before their nonlinearities, and of the first cell values."""
    B, T, H = for_states.shape
    for_gates, for_cell = torch.empty_like(activations), cells.new_empty(B, H)
    grid, options = _launch(B, H, cells.device)
    arrived = torch.zeros(grid[1], dtype=torch.int32, device=cells.device)
    _backward[grid](
        activations, cells, weight, for_states, for_states if for_cells is None else for_cells, for_gates,
        for_cell, arrived, B, T, H, HAS_CELLS=for_cells is not None, **options
    )  # fmt: skip
    return for_gates, for_cell


def _launch(B: int, H: int, device: torch.device) -> tuple[tuple[int, int], dict[str, Any]]:
    """The grid: programs that share their sequences, and how many such groups there are; and how each is compiled.

    In the interpreter programs run one after the other and cannot wait for each other, so one has all units.
    """
    on_gpu = device.type == "cuda"
    units = _UNITS if on_gpu else _state(H)
    options = {"ROWS": _ROWS, "UNITS": units, "STATE": _state(H), "num_warps": 8, "num_stages": 1}
    return (triton.cdiv(H, units), triton.cdiv(B, _ROWS)), options | (
        {"launch_cooperative_grid": True} if on_gpu else {}
    )


@triton.jit
def _sigmoid(x):
    return 1.0 / (1.0 + tl.exp(-x))


@triton.jit
def _tanh(x):
    return 1.0 - 2.0 / (1.0 + tl.exp(2.0 * x))


@triton.jit
def _arrive(arrived):
    """Signals to the other programs that this one has written its state."""
    tl.debug_barrier()
    tl.atomic_add(arrived, 1, sem="release")


@triton.jit
def _wait_for(arrived, count):
    """Waits until programs have signalled this many times in total."""
    while tl.atomic_add(arrived, 0, sem="acquire") < count:
        pass
    tl.debug_barrier()


@triton.jit(do_not_specialize=["B", "T"])
def _forward(
    gates,
    weight,
    hidden,
    activations,
    states,
    cells,
    arrived,
    B,
    T,
    H,
    ROWS: tl.constexpr,
    UNITS: tl.constexpr,
    STATE: tl.constexpr,
):
    """Column ``4 u + k`` of a program's product is gate ``k`` of its unit ``u``."""
    partners = tl.num_programs(0)
    arrived += tl.program_id(1)
    b = (tl.program_id(1) * ROWS + tl.arange(0, ROWS)).to(tl.int64)[:, None]
    first = tl.program_id(0) * UNITS
    u = first + tl.arange(0, UNITS)[None, :]
    column = tl.arange(0, 4 * UNITS)[None, :]
    unit = first + column // 4
    row_of_weight = (column % 4) * H + unit
    k = tl.arange(0, STATE)
    mine = tl.load(weight + row_of_weight * H + k[:, None], (unit < H) & (k[:, None] < H), 0.0)
    known, inside = (b < B) & (u < H), (b < B) & (unit < H)
    c = tl.load(cells + b * (T + 1) * H + u, known, 0.0)
    everywhere = (b < B) & (k[None, :] < H)
    h = tl.load(hidden + b * H + k[None, :], everywhere, 0.0)
    for t in range(T):
        step = b * T + t
        own = tl.load(gates + step * 4 * H + row_of_weight, inside, 0.0)
        if t > 0:
            _wait_for(arrived, t * partners)
            h = tl.load(states + (step - 1) * H + k[None, :], everywhere, 0.0, cache_modifier=".cg")
        own = tl.dot(h, mine, own, input_precision="tf32")
        even, odd = tl.split(tl.reshape(own, (ROWS, UNITS, 2, 2)))
        i_gate, g_gate = tl.split(even)
        f_gate, o_gate = tl.split(odd)
        i_gate, f_gate, g_gate, o_gate = _sigmoid(i_gate), _sigmoid(f_gate), _tanh(g_gate), _sigmoid(o_gate)
        c = f_gate * c + i_gate * g_gate
        tl.store(states + step * H + u, o_gate * _tanh(c), known, cache_modifier=".cg")
        _arrive(arrived)
        tl.store(cells + (step + b + 1) * H + u, c, known)
        tl.store(activations + step * 4 * H + u, i_gate, known)
        tl.store(activations + step * 4 * H + H + u, f_gate, known)
        tl.store(activations + step * 4 * H + 2 * H + u, g_gate, known)
        tl.store(activations + step * 4 * H + 3 * H + u, o_gate, known)


@triton.jit(do_not_specialize=["B", "T"])
def _backward(
    activations,
    cells,
    weight,
    for_states,
    for_cells,
    for_gates,
    for_cell,
    arrived,
    B,
    T,
    H,
    HAS_CELLS: tl.constexpr,
    ROWS: tl.constexpr,
    UNITS: tl.constexpr,
    STATE: tl.constexpr,
):
    """From the last step to the first: ``dh_t`` is given from outside, and comes back through ``U`` from the gates."""
    partners = tl.num_programs(0)
    arrived += tl.program_id(1)
    b = (tl.program_id(1) * ROWS + tl.arange(0, ROWS)).to(tl.int64)[:, None]
    u = tl.program_id(0) * UNITS + tl.arange(0, UNITS)[None, :]
    known = (b < B) & (u < H)
    gate, k = tl.arange(0, 4)[:, None, None], tl.arange(0, STATE)
    mine = tl.load(
        weight + (gate * H + k[None, :, None]) * H + u[None, :, :], (k[None, :, None] < H) & (u[None, :, :] < H), 0.0
    )
    all_gates = gate * H + k[None, None, :]
    everywhere = (b[None, :, :] < B) & (k[None, None, :] < H) & (gate < 4)
    dc = tl.zeros((ROWS, UNITS), tl.float32)
    for back in range(T):
        t = T - 1 - back
        step = b * T + t
        i_gate = tl.load(activations + step * 4 * H + u, known, 0.0)
        f_gate = tl.load(activations + step * 4 * H + H + u, known, 0.0)
        g_gate = tl.load(activations + step * 4 * H + 2 * H + u, known, 0.0)
        o_gate = tl.load(activations + step * 4 * H + 3 * H + u, known, 0.0)
        before = tl.load(cells + (step + b) * H + u, known, 0.0)
        tanh_c = _tanh(tl.load(cells + (step + b + 1) * H + u, known, 0.0))
        dh = tl.load(for_states + step * H + u, known, 0.0)
        if back > 0:
            _wait_for(arrived, back * partners)
            pointer = for_gates + (step[None, :, :] + 1) * 4 * H + all_gates
            theirs = tl.load(pointer, everywhere, 0.0, cache_modifier=".cg")
            dh += tl.sum(tl.dot(theirs, mine, input_precision="tf32"), 0)
        dc += dh * o_gate * (1.0 - tanh_c * tanh_c)
        if HAS_CELLS:
            dc += tl.load(for_cells + step * H + u, known, 0.0)
        own = for_gates + step * 4 * H + u
        tl.store(own, dc * g_gate * i_gate * (1.0 - i_gate), known, cache_modifier=".cg")
        tl.store(own + H, dc * before * f_gate * (1.0 - f_gate), known, cache_modifier=".cg")
        tl.store(own + 2 * H, dc * i_gate * (1.0 - g_gate * g_gate), known, cache_modifier=".cg")
        tl.store(own + 3 * H, dh * tanh_c * o_gate * (1.0 - o_gate), known, cache_modifier=".cg")
        dc = dc * f_gate
        _arrive(arrived)
    tl.store(for_cell + b * H + u, dc, known)
