"""Plain forms of results: curves as two rows of numbers, dataclasses as what JSON can hold."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields, is_dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from advfrontier.frontier.curve import Curve

if TYPE_CHECKING:
    from numpy.typing import ArrayLike


@dataclass(frozen=True)
class CurveData:
    """A robustness curve as numbers: robust accuracy is `accuracies[k]` from `epsilons[k]` up to the next one."""

    epsilons: tuple[float, ...]
    accuracies: tuple[float, ...]

    @classmethod
    def of(cls, distances: ArrayLike) -> CurveData:
        """The curve of per-sample distances."""
        curve = Curve.of(distances)
        return cls(tuple(curve.epsilons.tolist()), tuple(curve.accuracies.tolist()))

    def at(self, epsilon: float) -> float:
        """Robust accuracy at one ε."""
        return self.accuracies[int(np.searchsorted(self.epsilons, epsilon, side="right")) - 1]


def plain(value: Any) -> Any:
    """Reduce to dicts, lists, text, numbers and None, as JSON holds them.

    JSON has no infinite numbers: they become "inf" or "-inf". NaN, which here only ever means "not known", becomes
    null, as None does. Fields that hold arrays (images) are left out.
    """
    if is_dataclass(value) and not isinstance(value, type):
        parts = {field.name: getattr(value, field.name) for field in fields(value)}
        return {name: plain(part) for name, part in parts.items() if not isinstance(part, np.ndarray)}
    if isinstance(value, Mapping):
        return {str(key): plain(part) for key, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(part) for part in value]
    return _number(float(value)) if isinstance(value, (float, np.floating)) else value


def _number(value: float) -> float | str | None:
    if math.isnan(value):
        return None
    return ("inf" if value > 0 else "-inf") if math.isinf(value) else value
