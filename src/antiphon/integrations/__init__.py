"""Runs driven by other programs. Each module needs a package that antiphon itself does not install."""
