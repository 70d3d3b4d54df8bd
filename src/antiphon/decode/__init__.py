"""Finds the outputs of models.

``beam_search`` (for every model, alignments summed), ``path_search`` (the thesis's search, over alignments too),
``noisy_channel`` (rescoring by all models) with ``channel_lattice``, ``cell_search`` (the thesis's search with a noisy
channel), ``sampling``, ``alignments`` (of pairs and of outputs found; unknown words replaced; links of both directions
combined), ``streams`` (what online decoding computes; its policies are in ``torch_free``),
``noisy_channel_streams``.
"""
