"""Layers: no loss over pairs, no vocabulary, no configuration.

``recurrent`` (embeddings, dropout, LSTMs), ``transformer_layers``, ``transducer_layers`` (whether to write or to read),
``factored_softmax`` (probabilities in all cells, and of the next token, summed over positions),
``copying`` (of source words), ``transducer_loss`` (for any model); each ``_triton`` twin is a GPU kernel.
"""
