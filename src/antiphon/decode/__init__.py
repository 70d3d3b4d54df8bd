"""Finds the outputs of models.

``beam_search`` (for every model, alignments summed), ``noisy_channel`` (rescoring by all models) with
``channel_lattice``, ``thesis_searches`` (over alignments too, without and with a noisy channel), ``sampling``,
``alignments`` (of pairs and of outputs found; unknown words replaced; links of both directions combined), ``streams``
(what online decoding computes; its policies are in ``torch_free``), ``noisy_channel_streams``.
"""
