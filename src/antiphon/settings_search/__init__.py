"""Search of settings (``antiphon grid``): trials of a recipe with other values, by one process or several.

``search_space`` has the lists and ranges of values, ``search`` the study that all processes share and what it found.
"""
