"""Tuning of the weights of a noisy channel on n-best lists (``antiphon tune``)."""
