"""Tables and pictures: metrics, comparisons, errors, alignments, training curves."""
