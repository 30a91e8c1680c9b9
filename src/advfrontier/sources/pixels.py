"""Pixels as every model gets them, float32 NCHW in [0, 1], and normalisation as part of a model that wants others."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from advfrontier.engine.checks import check_images
from advfrontier.errors import FrontierError

LAYOUTS = ("NHWC", "NCHW")
_CHANNELS = (1, 3)


def check_unit(images: Tensor, name: str) -> Tensor:
    """Return images as float32 in [0, 1]: 8-bit ones divided by 255, others as they are if they are in it.

    A model may take any shape; what comes out of files is NCHW.
    """
    if images.dtype == torch.uint8:
        images = images.to(torch.float32) / 255
    return check_images(images, name).to(torch.float32)


def channels_first(images: Tensor) -> Tensor:
    """Put the channels first where they can only be the last axis: 1 or 3 of them, behind two larger axes."""
    if images.ndim != 4 or images.shape[3] not in _CHANNELS or min(images.shape[1:3]) <= max(_CHANNELS) + 1:
        return images
    return images.permute(0, 3, 1, 2).contiguous()


def layout_of(shape: tuple[int, ...], name: str, *, asked: str | None = None) -> str:
    """Where the channels are: the axis with 1 or 3 entries. (n, h, w) counts as NHW."""
    if len(shape) == 3:
        return "NHW"
    if len(shape) != 4:
        raise FrontierError(f"{name}: images have shape {shape}: expected (n, h, w, channels) or (n, channels, h, w)")
    if asked is not None:
        return asked
    first, last = shape[1] in _CHANNELS, shape[3] in _CHANNELS
    if first == last:
        raise FrontierError(
            f"{name}: images have shape {shape}: cannot tell where the channels are; add ?layout=NHWC or ?layout=NCHW"
        )
    return "NCHW" if first else "NHWC"


def to_unit(rows: NDArray[np.generic], layout: str, name: str) -> Tensor:
    """Return rows of a stored array as float32 NCHW in [0, 1]."""
    if rows.dtype != np.uint8 and rows.dtype.kind != "f":
        raise FrontierError(f"{name}: images are {rows.dtype}: expected uint8, or floats in [0, 1]")
    pixels = torch.from_numpy(np.ascontiguousarray(rows, np.uint8 if rows.dtype == np.uint8 else np.float32))
    pixels = pixels[:, None] if layout == "NHW" else pixels.permute(0, 3, 1, 2) if layout == "NHWC" else pixels
    return check_unit(pixels.contiguous(), name)


class Normalised(nn.Module):
    """(x - mean) / std per channel, then the network."""

    mean: Tensor
    std: Tensor

    def __init__(self, net: nn.Module, mean: Sequence[float], std: Sequence[float]) -> None:
        super().__init__()
        self.net = net
        self.register_buffer("mean", torch.tensor(mean, dtype=torch.float32).view(1, -1, 1, 1))
        self.register_buffer("std", torch.tensor(std, dtype=torch.float32).view(1, -1, 1, 1))

    def forward(self, images: Tensor) -> Tensor:
        """Return the logits of images in [0, 1]."""
        logits: Tensor = self.net((images - self.mean) / self.std)
        return logits
