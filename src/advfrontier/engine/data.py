"""Labelled images, read when they are asked for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor


@dataclass(frozen=True, eq=False)
class Samples:
    """Images with their labels.

    `read` returns the images of some rows, in their order, as float32 NCHW in [0, 1], and reads
    only these. Worker processes get a pickled copy, so `read` should be an object that names files
    rather than one that holds them.
    """

    name: str  # as the user typed it
    labels: Tensor  # int64
    read: Callable[[Tensor], Tensor]
    class_names: tuple[str, ...] | None = None

    def __len__(self) -> int:
        return len(self.labels)
