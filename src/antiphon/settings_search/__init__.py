"""Search of settings: trials of a recipe with other values, on one machine or several (``antiphon grid``)."""
