"""Run folders and the models in them."""
