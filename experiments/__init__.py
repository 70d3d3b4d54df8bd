"""Experiments as data: a TOML file per table, and a record of every figure (``python -m experiments --help``)."""
