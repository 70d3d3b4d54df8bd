"""Training: prepare the data, fit, and save what matters in the run folder."""
