"""Pixels as every model gets them: float32 NCHW in [0, 1]."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from advfrontier.errors import FrontierError

if TYPE_CHECKING:
    from numpy.typing import NDArray

LAYOUTS = ("NHWC", "NCHW")
_CHANNELS = (1, 3)
_TOLERANCE = 1e-6  # rounding, as in the engine's own check


def check_unit(images: Tensor, name: str) -> Tensor:
    """Return images as float32 in [0, 1]: 8-bit ones divided by 255, others as they are if they are in it.

    A model may take any shape; what comes out of files is NCHW.
    """
    if images.ndim < 2:
        raise FrontierError(f"{name}: images have shape {tuple(images.shape)}: expected (samples, channels, h, w)")
    if not images.numel():
        raise FrontierError(f"{name}: no images, shape {tuple(images.shape)}: expected at least one")
    if images.dtype == torch.uint8:
        return images.to(torch.float32) / 255
    if not images.is_floating_point():
        raise FrontierError(f"{name}: images are {images.dtype}: expected uint8, or floats in [0, 1]")
    low, high = float(images.min()), float(images.max())
    if not (math.isfinite(low) and math.isfinite(high)):
        raise FrontierError(f"{name}: pixels are not all finite: expected numbers in [0, 1]")
    if not (low >= -_TOLERANCE and high <= 1 + _TOLERANCE):
        cause = "divide them by 255" if high > 2 else "leave them as they are before normalisation"
        raise FrontierError(f"{name}: images range from {low:g} to {high:g}: expected [0, 1]; {cause}")
    images = images.to(torch.float32)
    return images.clamp(0, 1) if low < 0 or high > 1 else images


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
