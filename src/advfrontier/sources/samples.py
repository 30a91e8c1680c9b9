"""Images with their labels, read when they are asked for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import BatchSampler, DataLoader, IterableDataset

from advfrontier.errors import FrontierError
from advfrontier.sources.pixels import check_unit

if TYPE_CHECKING:
    from collections.abc import Iterable


class Samples(Protocol):
    """Labelled images. Those that read from files pickle as the names of the files."""

    @property
    def name(self) -> str:
        """As the user typed it."""
        ...

    @property
    def labels(self) -> Tensor:
        """The class of each image, int64."""
        ...

    @property
    def class_names(self) -> tuple[str, ...] | None:
        """What the classes are called, if that is known."""
        ...

    def __len__(self) -> int: ...

    def images(self, rows: Tensor) -> Tensor:
        """Return these rows in this order as float32 NCHW in [0, 1]; only they are read."""
        ...


@dataclass(frozen=True, eq=False)
class TensorSamples:
    """Images that are in memory."""

    name: str
    pixels: Tensor
    labels: Tensor
    class_names: tuple[str, ...] | None = None

    def __len__(self) -> int:
        return len(self.labels)

    def images(self, rows: Tensor) -> Tensor:
        """Return these rows."""
        return self.pixels[rows]


@dataclass(frozen=True, eq=False)
class DatasetSamples:
    """A map-style dataset of (image, label) pairs, read item by item in a given order."""

    name: str
    dataset: Any
    order: Tensor
    labels: Tensor
    class_names: tuple[str, ...] | None = None

    def __len__(self) -> int:
        return len(self.order)

    def images(self, rows: Tensor) -> Tensor:
        """Read these items."""
        return stack_images([self.dataset[i][0] for i in self.order[rows].tolist()], self.name)


@dataclass(frozen=True, eq=False)
class Chosen:
    """Some rows of other samples."""

    source: Samples
    rows: Tensor

    @property
    def name(self) -> str:
        """The name of the source."""
        return self.source.name

    @property
    def labels(self) -> Tensor:
        """The labels of the chosen rows."""
        return self.source.labels[self.rows]

    @property
    def class_names(self) -> tuple[str, ...] | None:
        """The class names of the source."""
        return self.source.class_names

    def __len__(self) -> int:
        return len(self.rows)

    def images(self, rows: Tensor) -> Tensor:
        """Read these of the chosen rows."""
        return self.source.images(self.rows[rows])


def choose(source: Samples, samples: int | None, seed: int | None) -> Samples:
    """The first `samples` rows; with a seed, the first of one permutation, so that more samples contain fewer."""
    count = len(source) if samples is None else samples
    if not 1 <= count <= len(source):
        raise FrontierError(f"{source.name}: samples={samples}, but it has {len(source)}: expected 1 to {len(source)}")
    if seed is not None:
        rows = torch.randperm(len(source), generator=torch.Generator().manual_seed(seed))[:count]
        return Chosen(source, rows)
    return source if count == len(source) else Chosen(source, torch.arange(count))


def as_samples(images: Tensor | Iterable[Any], labels: Tensor | None = None, name: str = "tensors") -> Samples:
    """Make samples of tensors, of a DataLoader, or of any iterable of (images, labels) batches.

    A DataLoader over a map-style dataset is read on demand, in the order its sampler gives now; anything else is read
    once and kept in memory.
    """
    if isinstance(images, Tensor):
        if labels is None:
            raise FrontierError(f"{name}: images without labels: expected as_samples(images, labels)")
        return TensorSamples(name, check_unit(images.detach().cpu(), name), as_labels(labels, len(images), name))
    if isinstance(images, np.ndarray) and isinstance(labels, np.ndarray):
        return as_samples(torch.from_numpy(images), torch.from_numpy(labels), name)
    if labels is not None:
        raise FrontierError(
            f"{name}: images are a {type(images).__name__} with labels given apart: expected tensors, arrays, or an "
            "iterable of (images, labels) batches"
        )
    if isinstance(images, DataLoader) and _can_be_indexed(images):
        return _from_dataset(images, name)
    batches = list(images)
    if not batches or not all(isinstance(b, (tuple, list)) and len(b) >= 2 for b in batches):
        raise FrontierError(f"{name}: expected batches of (images, labels), at least one")
    pixels, labels = (torch.cat([torch.as_tensor(batch[k]).detach().cpu() for batch in batches]) for k in (0, 1))
    return as_samples(pixels, labels, name)


def _can_be_indexed(loader: DataLoader[Any]) -> bool:
    plain = loader.batch_sampler is None or type(loader.batch_sampler) is BatchSampler
    return plain and not isinstance(loader.dataset, IterableDataset) and not getattr(loader, "drop_last", False)


def _from_dataset(loader: DataLoader[Any], name: str) -> Samples:
    order = torch.tensor(list(loader.sampler), dtype=torch.int64)
    if not len(order):
        raise FrontierError(f"{name}: its dataset is empty: expected samples")
    item = loader.dataset[int(order[0])]
    if not isinstance(item, (tuple, list)) or len(item) < 2:
        raise FrontierError(f"{name}: its items are {type(item).__name__}: expected (image, label) pairs")
    stack_images([item[0]], name)
    labels = torch.tensor([int(loader.dataset[i][1]) for i in order.tolist()], dtype=torch.int64)
    return DatasetSamples(name, loader.dataset, order, labels)


def stack_images(images: list[Any], name: str) -> Tensor:
    """Put single images into one batch."""
    tensors = [torch.as_tensor(image).detach().cpu() for image in images]
    if len({tensor.shape for tensor in tensors}) > 1:
        shapes = sorted({tuple(tensor.shape) for tensor in tensors})
        raise FrontierError(
            f"{name}: images of different sizes ({shapes[0]} and {shapes[1]}): expected one size; "
            "name a preprocessing, such as preprocessing=Res256Crop224"
        )
    return check_unit(torch.stack(tensors), name)


def as_labels(labels: Tensor, count: int, name: str) -> Tensor:
    """Return one int64 label per image."""
    if labels.is_floating_point() or labels.is_complex() or labels.dtype == torch.bool:
        raise FrontierError(f"{name}: labels are {labels.dtype}: expected class numbers as integers")
    if labels.shape == (count, 1):
        labels = labels[:, 0]
    if labels.shape != (count,):
        raise FrontierError(f"{name}: {count} images but labels of shape {tuple(labels.shape)}: expected ({count},)")
    return labels.detach().to("cpu", torch.int64)
