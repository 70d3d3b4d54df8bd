"""Training data: ``corpus`` (encoded pairs) and ``batch`` (padded, of PyTorch).

How text is read and becomes ids is in ``torch_free``.
"""
