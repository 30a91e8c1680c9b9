"""Images of a record: stored beside it where points are kept, verified when read."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from advfrontier.engine import check_data
from advfrontier.engine.data import Samples
from advfrontier.errors import FrontierError
from advfrontier.record.folder import Folder, open_folder
from advfrontier.record.tensors import Damaged, pack, require, unpack
from advfrontier.record.units import shards_of
from advfrontier.threat.domain import Space
from advfrontier.threat.random import sample_ids

IMAGES = "images"
_LIMIT = 2**28  # bytes of images that one reader keeps in memory


def image_file(first: int, count: int) -> str:
    """Return the name of the file of a shard's images.

    Args:
        first: First row of the shard.
        count: Number of its rows.
    """
    return f"{IMAGES}/{first:05d}+{count:03d}.safetensors"


def store_images(
    folder: Folder, first: int, images: Tensor, limits: tuple[float, float] = (0, 1)
) -> None:
    """Store a shard's images unless they are there.

    They are stored as bytes where that loses nothing, in a quarter of the space.

    Args:
        folder: Folder of the record.
        first: Row of the first image.
        images: (n, …).
        limits: The smallest and the largest value that they may have.
    """
    whole = images.float().cpu()
    stored = stored_images(folder, first, len(images), limits=limits)
    if stored is not None and torch.equal(stored, whole):
        return
    levels = (whole * 255).round().to(torch.uint8)
    content = levels if torch.equal(levels / 255, whole) else whole
    folder.write(image_file(first, len(images)), pack({"images": content}))


def stored_images(
    folder: Folder,
    first: int,
    count: int,
    shape: tuple[int, ...] | None = None,
    limits: tuple[float, float] = (0, 1),
) -> Tensor | None:
    """Return a shard's images as they are stored; None if they are missing or damaged.

    Args:
        folder: Folder of the record.
        first: Row of the first image.
        count: Number of images.
        shape: Shape of one image, where it is known.
        limits: The smallest and the largest value that may be there.
    """
    content = folder.read(image_file(first, count))
    if content is None:
        return None
    try:
        tensors, _ = unpack(content)
        images = tensors.get("images")
        if images is None:
            return None
        one = tuple(images.shape[1:]) if shape is None else shape
        require(tensors, "images", (count, *one), torch.uint8, torch.float32)
        if images.dtype == torch.uint8:
            return images / 255
        low, high = limits
        return require(tensors, "images", (count, *one), torch.float32, low=low, high=high)
    except Damaged:
        return None


def read_stored(
    place: str,
    shape: tuple[int, ...],
    shard: int,
    samples: int,
    rows: Tensor,
    *,
    limits: tuple[float, float] = (0, 1),
) -> Tensor:
    """Return images that lie beside a record.

    Args:
        place: Path or address of the record's folder.
        shape: Shape of one image.
        shard: Samples per file.
        samples: Samples of the record.
        rows: Rows to read, int64 (k,), all of one shard.
        limits: The smallest and the largest value that images may have.
    """
    first = int(rows[0]) // shard * shard
    count = min(shard, samples - first)
    images = stored_images(open_folder(place), first, count, shape, limits)
    if images is None:
        raise FrontierError(
            f"{place} does not hold the images of samples {first}–{first + count - 1}, or they "
            "were damaged: evaluate again with the data set, which writes them again"
        )
    return images[rows - first]


class VerifiedImages:
    """Reads images shard by shard, and refuses others than those that a record was begun with.

    Images that were read stay in memory, up to a limit, so that every unit of a shard finds them
    there. Sent to another process, it goes without them.

    Args:
        read: Returns the images of some rows.
        ids: (n,) uint64, hashes of the images' contents.
        shard: Samples that are read and verified together.
        name: Name of the data, for messages.
        limit: Bytes of images to keep in memory; the images of one shard are always kept.
        space: The domain; None for images in [0, 1].
    """

    def __init__(
        self,
        read: Callable[[Tensor], Tensor],
        ids: NDArray[np.uint64],
        shard: int,
        name: str,
        *,
        limit: int = _LIMIT,
        space: Space | None = None,
    ) -> None:
        self.read, self.ids, self.shard, self.name, self.limit = read, ids, shard, name, limit
        self.space = space
        self._kept: OrderedDict[int, Tensor] = OrderedDict()  # the one used last comes last

    @classmethod
    def of(cls, samples: Samples, shard: int, *, limit: int = _LIMIT) -> VerifiedImages:
        """Identify samples: read all images once, shard by shard, and check images and labels.

        Args:
            samples: Samples to read, and whose ids are computed.
            shard: Samples that are read together.
            limit: Bytes of images to keep in memory.
        """
        if not len(samples):
            raise FrontierError(f"{samples.name} holds no samples: expected at least one")
        ids: list[NDArray[np.uint64]] = []
        verified = cls(
            samples.read,
            np.zeros(0, np.uint64),
            shard,
            samples.name,
            limit=limit,
            space=samples.space,
        )
        shape = None
        for k, (first, count) in enumerate(shards_of(len(samples), shard)):
            rows = torch.arange(first, first + count)
            images = check_data(samples.read(rows), samples.labels[rows], samples.space)
            if shape is not None and images.shape[1:] != shape:
                raise FrontierError(
                    f"{samples.name} gives images of the shape {tuple(images.shape[1:])} after "
                    f"{tuple(shape)}: expected one shape; resize them"
                )
            shape = images.shape[1:]
            ids.append(sample_ids(images.float().cpu().numpy()))
            verified._keep(k, images)
        verified.ids = np.concatenate(ids)
        return verified

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_kept": OrderedDict()}

    def __call__(self, rows: Tensor) -> Tensor:
        """Return the images of these rows, in their order."""
        if not len(rows):
            return self._shard(0)[:0]
        shards = rows // self.shard
        used = torch.unique(shards).tolist()
        parts = [self._shard(k)[rows[shards == k] % self.shard] for k in used]
        order = torch.argsort(shards, stable=True)  # the parts stand in the order of the shards
        return torch.cat(parts)[torch.argsort(order)]

    @cached_property
    def shape(self) -> tuple[int, ...]:
        """Shape of one image."""
        return tuple(self._shard(0).shape[1:])

    def _shard(self, k: int) -> Tensor:
        if k in self._kept:
            self._kept.move_to_end(k)
            return self._kept[k]
        rows = torch.arange(k * self.shard, min((k + 1) * self.shard, len(self.ids)))
        labels = torch.zeros(len(rows), dtype=torch.int64)
        images = check_data(self.read(rows), labels, self.space)
        ids = sample_ids(images.float().cpu().numpy())
        others = rows[torch.from_numpy(ids != self.ids[rows.numpy()])]
        if len(others):
            raise FrontierError(
                f"{self.name} gives other images than when the record was begun ({len(others)} of "
                f"{len(rows)} differ, the first is sample {int(others[0])}): expected the same; "
                "take random transforms out of the data set, or read it once into tensors"
            )
        self._keep(k, images)
        return images

    def _keep(self, k: int, images: Tensor) -> None:
        self._kept[k] = images
        size = sum(kept.nbytes for kept in self._kept.values())
        while len(self._kept) > 1 and size > self.limit:
            _, oldest = self._kept.popitem(last=False)
            size -= oldest.nbytes
