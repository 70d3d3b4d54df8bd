"""Models: ordinary ``torch.nn.Module``s on batches of token ids."""
