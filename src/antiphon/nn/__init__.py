"""Layers: no loss, no vocabulary, no configuration."""
