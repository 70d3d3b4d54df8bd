"""Training data: ``corpus`` (encoded pairs on disk), ``batch`` (padded, of PyTorch), ``augmentation``.

``part_files`` has large inputs cut into parts. How text is read and becomes ids is in ``torch_free``.
"""
