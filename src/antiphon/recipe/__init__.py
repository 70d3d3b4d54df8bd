"""Recipes: the settings of a run, read from TOML files and checked.

``recipe_file`` reads and writes them; ``schema`` and ``model_sections`` have every setting and its default, made of
``section``; ``kinds`` is the registry of kinds of models, ``settings`` says which settings each has, and ``shipped/``
has the recipes of the package.
"""
