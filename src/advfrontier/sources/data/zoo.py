"""`fashion-mnist`: the 1000 test images that ship with the package."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from advfrontier import zoo

if TYPE_CHECKING:
    from torch import Tensor

    from advfrontier.sources.samples import Samples
    from advfrontier.sources.spec import Spec


@dataclass(frozen=True, eq=False)
class Embedded:
    """The embedded images. They are pickled by name, since every process has them."""

    name: str

    def __getstate__(self) -> dict[str, Any]:
        return {"name": self.name}

    @cached_property
    def _content(self) -> tuple[Tensor, Tensor]:
        return zoo.images_and_labels()

    @property
    def labels(self) -> Tensor:
        """The labels."""
        return self._content[1]

    @property
    def class_names(self) -> tuple[str, ...]:
        """The ten kinds of clothing."""
        return tuple(zoo.CLASS_NAMES)

    def __len__(self) -> int:
        return len(self.labels)

    def images(self, rows: Tensor) -> Tensor:
        """Return these rows."""
        return self._content[0][rows]


def load(spec: Spec, *, download: bool) -> Samples:  # noqa: ARG001 (nothing to fetch)
    """Open the embedded data."""
    return Embedded(spec.text)
