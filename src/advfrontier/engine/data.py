"""Labelled images, read when they are asked for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from advfrontier.errors import FrontierError

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

    from advfrontier.threat.domain import Space

_EIGHT_BITS = 1e-9  # by which float64 images of 8 bits may differ from multiples of 1/255


@dataclass(frozen=True, eq=False)
class Samples:
    """Images with their labels.

    `read` returns the images of some rows, in their order, as float32 NCHW in [0, 1], or in the box
    of `space`, and reads only these. Worker processes get a pickled copy, so `read` should be an
    object that names files rather than one that holds them.

    Args:
        name: Name of the data, as tables show it.
        labels: True classes, int64 (n,).
        read: Returns the images of given rows, int64 (k,): (k, …) in the box.
        class_names: Names of the classes, where the data set knows them.
        goals: (n,), the class that each sample is attacked towards; None if the attack is
            untargeted.
        space: Domain of the images; None for [0, 1].
    """

    name: str
    labels: Tensor
    read: Callable[[Tensor], Tensor]
    class_names: tuple[str, ...] | None = None
    goals: Tensor | None = None
    space: Space | None = None

    def __len__(self) -> int:
        return len(self.labels)


def as_float32(images: Tensor, source: str = "") -> Tensor:
    """Return images as float32; raise if that would round them.

    Images of 8 bits divided by 255 in float64 are the same pictures in float32, so they pass.

    Args:
        images: Floats in [0, 1], of any shape.
        source: The source, for the message.
    """
    single = images.to(torch.float32)
    if images.dtype.itemsize <= single.dtype.itemsize:
        return single
    levels = images * 255
    pictures = (levels - levels.round()).abs() <= 255 * _EIGHT_BITS
    rounded = (single.to(images.dtype) != images) & ~pictures
    if bool(rounded.any()):
        which = f"{source}: images" if source else "images"
        raise FrontierError(
            f"{which} are {str(images.dtype).removeprefix('torch.')}, and float32, in which images "
            "are kept, would round them: distances would be of other images; if that is all right, "
            "type images.float() (of an array images.astype('float32'))"
        )
    return single
