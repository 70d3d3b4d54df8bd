"""Decoding: finds outputs, given a trained model."""
