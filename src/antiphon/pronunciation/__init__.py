"""How English text is pronounced: a lexicon, a model for words that it lacks, and rules for numbers and the like."""

from pathlib import Path

FOLDER = Path(__file__).parent
"""The folder of the shipped lexicon and model."""
