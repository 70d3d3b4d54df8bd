"""Tuning: MERT for the weights of a noisy channel, and grid search over settings."""
