"""Training data: ``corpus`` (encoded pairs on disk), ``batch`` (padded, of PyTorch), ``augmentation``.

How text is read and becomes ids is in ``torch_free``.
"""
