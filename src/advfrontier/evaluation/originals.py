"""The unperturbed images beside a record, so that it can be extended and looked at without the data set."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

import torch

from advfrontier.errors import FrontierError
from advfrontier.store import Store

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

_FOLDER = "originals"


def write_originals(store: Store, first: int, images: Tensor) -> None:
    """Store a shard's images: as bytes where that loses nothing, a quarter of the space."""
    whole = images.float().cpu()
    levels = (whole * 255).round().to(torch.uint8)
    store.write(_name(first, len(images)), {"images": levels if torch.equal(levels / 255, whole) else whole})


def lacking_originals(store: Store, layout: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """The shards (first row, rows) whose images are not there, from the names of the files alone."""
    there = set(store.folder.names(_FOLDER))
    return [(first, count) for first, count in layout if f"{_name(first, count)}.safetensors" not in there]


def remove_other_originals(store: Store, layout: Sequence[tuple[int, int]]) -> None:
    """Remove images of shards that have grown since."""
    wanted = {f"{_name(first, count)}.safetensors" for first, count in layout}
    for name in store.folder.names(_FOLDER):
        if name not in wanted:
            store.folder.remove(name)


@dataclass(frozen=True, eq=False)
class StoredSamples:
    """The samples of a record, read back from it."""

    place: str
    name: str
    labels: Tensor
    shard: int
    mark: str  # of the record's clean pass, so that images read of another record in this place are not taken for its
    class_names: tuple[str, ...] | None = None

    def __len__(self) -> int:
        return len(self.labels)

    def read(self, rows: Tensor) -> Tensor:
        """These rows; only the shards they lie in are read."""
        parts = [
            self._shard(int(k))[rows[rows // self.shard == k] % self.shard] for k in torch.unique(rows // self.shard)
        ]
        found = torch.cat(parts)
        order = torch.argsort(rows // self.shard, stable=True)  # the parts stand in the order of the shards
        return found[torch.argsort(order)]

    def _shard(self, k: int) -> Tensor:
        first = k * self.shard
        return _read(self.place, first, min(self.shard, len(self) - first), self.mark)


@lru_cache(maxsize=2)
def _read(place: str, first: int, count: int, _mark: str) -> Tensor:
    found = Store(place).read(_name(first, count))
    if found is None:
        raise FrontierError(
            f"{place} does not hold the images of samples {first}–{first + count - 1}, or they were damaged; remove "
            f"{_name(first, count)}.safetensors if it is there, and evaluate again with the data set to write it anew"
        )
    images = found[0]["images"]
    return images / 255 if images.dtype == torch.uint8 else images


def _name(first: int, count: int) -> str:
    return f"{_FOLDER}/{first:05d}+{count:03d}"
