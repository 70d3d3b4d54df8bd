"""Values and gradients of a function, to compare an implementation with its reference."""

import torch


def value_and_gradients(function, scores, *others, weight):
    leaves = [tensor.detach().clone().requires_grad_() for tensor in scores]
    value = function(*leaves, *others)
    gradients = torch.autograd.grad((value * weight).masked_fill(value.isneginf(), 0.0).sum(), leaves)
    return value.detach().cpu(), *(gradient.cpu() for gradient in gradients)
