"""Search of settings (``antiphon grid``): trials of a recipe with other values, on one machine or several.

``search_space`` has the lists and ranges of values, ``search`` the state that all processes share in a database of
Optuna, and ``trials`` the trainings of one process, with what was found. A training that is a trial reports its epochs
by ``training/callback.py``.
"""
