"""Compiles the softmax kernels for a GPU that need not be there: python -m tests.nn.compile_kernels CAPABILITY."""

import sys

import torch
from triton.backends.compiler import GPUTarget
from triton.runtime.driver import driver
from triton.runtime.jit import JITFunction

from antiphon.nn import factored_softmax_triton as kernels


class Gpu:
    """What Triton asks of a driver before it compiles."""

    def __init__(self, capability):
        self.capability = capability

    def get_current_target(self):
        return GPUTarget("cuda", self.capability, 32)

    def get_current_device(self):
        return 0

    def get_current_stream(self, device):
        return 0


def compile_only(run):
    def compiled(kernel, *given, grid, warmup, **settings):
        print(kernel.fn.__name__)
        return run(kernel, *given, grid=grid, warmup=True, **settings)

    return compiled


def main(capability):
    driver.set_active(Gpu(capability))
    JITFunction.run = compile_only(JITFunction.run)
    is_large = capability >= 90
    kernels._pipeline = lambda device: kernels._PIPELINE if is_large else kernels._NO_PIPELINE
    kernels._precision = lambda device: "bf16x3" if is_large else "tf32x3"
    for I, J in ((50, 25), (70, 25)):
        for dtype in (torch.float32, torch.bfloat16):
            source, target = torch.zeros(2, I, 400, dtype=dtype), torch.zeros(2, J, 400, dtype=dtype)
            gradient, tokens = torch.zeros(2, I, J), torch.zeros(2, J, dtype=torch.long)
            at_tokens = kernels._TokenGradients.of(tokens, gradient, None)
            kernels._gradients(source, target, gradient, at_tokens, kernels._normalisers(source, target))


if __name__ == "__main__":
    main(int(sys.argv[1]))
