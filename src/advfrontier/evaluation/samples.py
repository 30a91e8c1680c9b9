"""Names of samples, by which records of different models know that they are of the same ones."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


def sample_names(ids: NDArray[np.uint64]) -> tuple[str, ...]:
    """The ids in hexadecimal; copies of one image are told apart by a number."""
    seen: Counter[int] = Counter()
    names = []
    for key in ids.tolist():
        seen[key] += 1
        names.append(f"{key:016x}" if seen[key] == 1 else f"{key:016x}-{seen[key]}")
    return tuple(names)
