"""RobustBench's preprocessings by name, with Pillow: what they call Resize, CenterCrop and ToTensor.

`Res256Crop224` scales the shorter side to 256 and cuts out the central 224 x 224; `Res224` scales to 224 x 224 whatever
the shape; `Crop288` only cuts; `Bicubic…` scales with bicubic instead of bilinear interpolation; `None` does nothing.
Other sizes go by the same names.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from advfrontier.errors import FrontierError
from advfrontier.sources.extras import need

_NAME = re.compile(r"(Bicubic(?=Res))?(?:Res([1-9]\d{0,3}))?(?:Crop([1-9]\d{0,3}))?")


@dataclass(frozen=True)
class Preprocessing:
    """How a picture becomes an image of the model's size."""

    size: int | None
    crop: int | None
    bicubic: bool

    @classmethod
    def named(cls, name: str, source: str) -> Preprocessing:
        """Read a name."""
        match = _NAME.fullmatch("" if name == "None" else name)
        if match is None or (not name):
            raise FrontierError(
                f"{source}: unknown preprocessing {name!r}: expected a name such as Res256Crop224, "
                "BicubicRes256Crop224, Res224, Crop288 or None"
            )
        bicubic, size, crop = match.groups()
        return cls(int(size) if size else None, int(crop) if crop else None, bool(bicubic))

    def __call__(self, picture: Any) -> Tensor:
        """Return the picture as uint8 CHW."""
        picture = self._cropped(self._resized(picture.convert("RGB")))
        return torch.from_numpy(np.array(picture)).permute(2, 0, 1)

    def _resized(self, picture: Any) -> Any:
        if self.size is None:
            return picture
        image = need("PIL.Image", extra="images", source="preprocessing")
        width, height = picture.size
        if self.crop is None:
            width = height = self.size
        else:
            short = min(width, height)
            width, height = (int(self.size * side / short) for side in (width, height))
        if (width, height) == picture.size:
            return picture
        return picture.resize((width, height), image.Resampling.BICUBIC if self.bicubic else image.Resampling.BILINEAR)

    def _cropped(self, picture: Any) -> Any:
        """Cut out the middle; where there is too little, Pillow adds black on both sides."""
        if self.crop is None:
            return picture
        lack = [self.crop - side for side in picture.size]
        left, top = (-(part // 2) if part > 0 else round(-part / 2) for part in lack)
        return picture.crop((left, top, left + self.crop, top + self.crop))
