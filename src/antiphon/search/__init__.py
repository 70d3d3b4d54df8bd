"""Search for the best output: hypotheses, and one module per way of finding them."""
