"""Runs: ``run_folder`` (what one holds), ``build`` (from a recipe to objects), ``combined_runs`` (and copies)."""
