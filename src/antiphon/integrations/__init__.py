"""Lets other programs use runs and pronunciations.

``batch`` (Ray Data, Spark) and ``simuleval`` need packages of their own; ``phonemizer`` and ``misaki`` have the
interfaces of what speech synthesis calls for phonemes, and need none.
"""
