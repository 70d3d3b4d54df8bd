"""One training step, and what wraps it: CUDA graphs, retries after out-of-memory errors, estimates."""
