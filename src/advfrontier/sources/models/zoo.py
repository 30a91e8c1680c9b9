"""`zoo:F3`: the models that ship with the package."""

from __future__ import annotations

from typing import TYPE_CHECKING

from advfrontier import zoo

if TYPE_CHECKING:
    from torch import nn

    from advfrontier.sources.spec import Spec


def load(spec: Spec, *, download: bool) -> nn.Module:  # noqa: ARG001 (nothing to fetch)
    """Load an embedded model."""
    return zoo.load(spec.place)
