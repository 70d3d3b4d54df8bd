"""Recipes: the settings of a run, read from TOML files and checked.

``recipe_file`` reads and writes them; ``sections`` and ``model_sections`` have every setting and its default,
``schema`` the whole and which settings each kind of model has; ``kinds`` is the registry of kinds, and ``shipped/`` has
the recipes of the package.
"""
