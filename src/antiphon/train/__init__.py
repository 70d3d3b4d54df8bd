"""Training through Lightning: prepare the data, fit, keep what matters in the run folder."""
