"""Lets other programs use runs. Each module needs a package that antiphon does not install."""
