"""Weights with 8 bits: onnxruntime's dynamic quantisation, which rounds activations as they are computed."""

import logging
from pathlib import Path

from antiphon.exceptions import check_installed


def quantise_weights(path: Path) -> None:
    """Replaces the weights of a graph's matrix products, LSTMs and embeddings by integers of 8 bits with a scale."""
    check_installed("onnxruntime", "export", "antiphon export --int8")
    from onnxruntime.quantization import QuantType, quantize_dynamic

    logger, level = logging.getLogger(), logging.getLogger().level
    logger.setLevel(logging.ERROR)  # it advises to prepare graphs in a way that tracing has done
    try:
        quantize_dynamic(path, path, weight_type=QuantType.QInt8, per_channel=True)
    finally:
        logger.setLevel(level)
