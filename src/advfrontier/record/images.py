"""The images of a record: stored beside it where points are kept, and never taken for others than they were."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from advfrontier.engine import check_data
from advfrontier.errors import FrontierError
from advfrontier.record.folder import Folder, open_folder
from advfrontier.record.tensors import Damaged, pack, unpack
from advfrontier.threat.random import sample_ids

Shape = tuple[int, ...]  # of one image: the ids tell contents alone

IMAGES = "images"
_LIMIT = 2**28  # bytes of images kept in memory, all records of this process together
_KEPT: OrderedDict[tuple[bytes, Shape], Tensor] = (
    OrderedDict()
)  # shards by the ids of their images, and the shape


def image_file(first: int, count: int) -> str:
    """Where a shard's images are."""
    return f"{IMAGES}/{first:05d}+{count:03d}.safetensors"


def store_images(folder: Folder, first: int, images: Tensor) -> None:
    """Store a shard's images unless they are there: as bytes where that loses nothing, a quarter of the space."""
    whole, there = images.float().cpu(), stored_images(folder, first, len(images))
    if there is not None and torch.equal(there, whole):
        return
    levels = (whole * 255).round().to(torch.uint8)
    stored = levels if torch.equal(levels / 255, whole) else whole
    folder.write(image_file(first, len(images)), pack({"images": stored}))


def stored_images(folder: Folder, first: int, count: int) -> Tensor | None:
    """A shard's images as they are stored; None if they are missing or damaged."""
    content = folder.read(image_file(first, count))
    try:
        images = unpack(content)[0]["images"] if content is not None else None
    except (Damaged, KeyError):
        return None
    return images / 255 if images is not None and images.dtype == torch.uint8 else images


def read_stored(place: str, shard: int, samples: int, rows: Tensor) -> Tensor:
    """These rows, all of one shard, of the images that lie beside a record."""
    first = int(rows[0]) // shard * shard
    count = min(shard, samples - first)
    images = stored_images(open_folder(place), first, count)
    if images is None or len(images) != count:
        raise FrontierError(
            f"{place} does not hold the images of samples {first}–{first + count - 1}, or they were damaged: evaluate "
            "again with the data set, which writes them anew"
        )
    return images[rows - first]


@dataclass(frozen=True, eq=False)
class VerifiedImages:
    """Reads images shard by shard, and refuses others than those that a record was begun with.

    What was read once stays in memory, up to a limit, so that every unit of a shard finds it there.
    """

    read: Callable[[Tensor], Tensor]
    ids: NDArray[np.uint64]
    shard: int
    name: str

    def __call__(self, rows: Tensor) -> Tensor:
        """These rows, in their order."""
        if not len(rows):
            return self._shard(0)[:0]
        shards = rows // self.shard
        parts = [self._shard(int(k))[rows[shards == k] % self.shard] for k in torch.unique(shards)]
        order = torch.argsort(shards, stable=True)  # the parts stand in the order of the shards
        return torch.cat(parts)[torch.argsort(order)]

    @cached_property
    def _shape(self) -> Shape:
        return tuple(self.read(torch.arange(1)).shape[1:])

    def _shard(self, k: int) -> Tensor:
        rows = torch.arange(k * self.shard, min((k + 1) * self.shard, len(self.ids)))
        ids = self.ids[rows.numpy()]
        known = _KEPT.get((ids.tobytes(), self._shape))
        if known is not None:
            return known
        images = check_data(self.read(rows), torch.zeros(len(rows), dtype=torch.int64))
        others = rows[torch.from_numpy(sample_ids(images.float().numpy()) != ids)]
        if len(others):
            raise FrontierError(
                f"{self.name} gives other images than when the record was begun ({len(others)} of {len(rows)} differ, "
                f"the first is sample {int(others[0])}): expected the same; take random transforms out of the data "
                "set, or read it once into tensors"
            )
        keep_images(ids, images)
        return images


def keep_images(ids: NDArray[np.uint64], images: Tensor) -> None:
    """Keep a shard's images in memory; the oldest ones leave where there is no room."""
    _KEPT[ids.tobytes(), tuple(images.shape[1:])] = images
    while len(_KEPT) > 1 and sum(kept.nbytes for kept in _KEPT.values()) > _LIMIT:
        _KEPT.popitem(last=False)
