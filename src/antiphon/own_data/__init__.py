"""From a file of pairs, as people have them, to a recipe: ``antiphon train pairs.csv``.

``table_file`` reads the rows of a text file in any usual form; ``plan`` decides what its columns are, how each side is
split into tokens, which pairs are for validation, and which recipe fits, with the reason for each.
"""
