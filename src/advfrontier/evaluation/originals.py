"""The unperturbed images beside a record, so that it can be extended and looked at without the data set."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

import torch

from advfrontier.errors import FrontierError
from advfrontier.store import Store

if TYPE_CHECKING:
    from torch import Tensor


def write_originals(store: Store, first: int, images: Tensor) -> None:
    """Store a shard's images: as bytes where that loses nothing, a quarter of the space."""
    whole = images.float().cpu()
    levels = (whole * 255).round().to(torch.uint8)
    store.write(_name(first, len(images)), {"images": levels if torch.equal(levels / 255, whole) else whole})


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

    def images(self, rows: Tensor) -> Tensor:
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
            f"{place} does not hold the images of samples {first}–{first + count - 1}, or they were damaged; evaluate "
            "again with the data set to write them anew"
        )
    images = found[0]["images"]
    return images / 255 if images.dtype == torch.uint8 else images


def _name(first: int, count: int) -> str:
    return f"originals/{first:05d}+{count:03d}"
