"""Weights of a noisy channel, found on lists of candidates."""
