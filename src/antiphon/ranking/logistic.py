"""A logistic regression in readable form, fitted by scikit-learn."""

import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from antiphon.exceptions import InputError, RunError, how_to_install
from antiphon.torch_free.files import read_text

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Logistic:
    """``p = sigmoid(features . weights + intercept)``."""

    names: tuple[str, ...]
    weights: tuple[float, ...]
    intercept: float

    @classmethod
    def fit(cls, names: Sequence[str], features: Array, labels: NDArray[np.float32], l2: float) -> "Logistic":
        """The weights that minimise ``l2/2 |weights|^2 - sum log p(label)``, by L-BFGS."""
        try:
            from sklearn.linear_model import LogisticRegression
        except ImportError:
            raise InputError(
                f"model.overlap: scikit-learn is missing, expected it installed: {how_to_install('qa')}"
            ) from None
        fitted = LogisticRegression(C=1 / l2, solver="lbfgs", max_iter=1000).fit(features, labels)
        weights = tuple(float(weight) for weight in fitted.coef_[0])
        return cls(tuple(names), weights, float(fitted.intercept_[0]))

    def log_odds(self, features: Array) -> Array:
        """The log odds of each row of features."""
        odds: Array = features @ np.array(self.weights) + self.intercept
        return odds

    def save(self, path: Path) -> None:
        """Writes JSON."""
        path.write_text(json.dumps(asdict(self), indent=2) + "\n", encoding="utf-8")

    @classmethod
    def load(cls, path: Path) -> "Logistic":
        """Reads what ``save`` wrote."""
        try:
            stored = json.loads(read_text(path))
            loaded = cls(tuple(stored["names"]), tuple(map(float, stored["weights"])), float(stored["intercept"]))
        except (ValueError, KeyError, TypeError, OverflowError, RecursionError) as error:
            raise RunError(f"{path}: damaged ({error!r}), expected names, weights and an intercept") from None
        if len(loaded.names) != len(loaded.weights):
            raise RunError(f"{path}: {len(loaded.weights)} weights, expected one for each of {len(loaded.names)} names")
        if not all(map(math.isfinite, (*loaded.weights, loaded.intercept))):
            raise RunError(f"{path}: weights that are not finite, expected numbers")
        return loaded
