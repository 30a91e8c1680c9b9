"""Samples of what a Python user has, and what all sources need to make samples: float32 NCHW in [0, 1]."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    Dataset,
    IterableDataset,
    Subset,
    TensorDataset,
    default_collate,
    default_convert,
)

from advfrontier.engine.checks import check_images
from advfrontier.engine.data import Samples
from advfrontier.errors import FrontierError
from advfrontier.sources.reading import explaining

CHANNELS = (1, 3)


@dataclass(frozen=True, eq=False)
class Rows:
    """Reads rows of an array that each process opens for itself: pickled as the way to open it, without the array."""

    open: Callable[[], Any]
    to_images: Callable[[Any], Tensor]

    def __getstate__(self) -> dict[str, Any]:
        return {"open": self.open, "to_images": self.to_images}

    @cached_property
    def array(self) -> Any:
        """The array, opened when it is first needed."""
        return self.open()

    def __call__(self, rows: Tensor) -> Tensor:
        """Read these rows."""
        return self.to_images(self.array[rows.numpy()])


def choose(source: Samples, samples: int | None, seed: int | None) -> Samples:
    """The first `samples` rows; with a seed, the first of one permutation, so that more samples contain fewer."""
    count = len(source) if samples is None else samples
    if not 1 <= count <= len(source):
        raise FrontierError(
            f"{source.name}: samples={samples}, but it has {len(source)}: expected 1 to {len(source)}"
        )
    if seed is None and count == len(source):
        return source
    if seed is None:
        chosen = torch.arange(count)
    elif -(2**63) <= seed < 2**64:
        order = torch.randperm(len(source), generator=torch.Generator().manual_seed(seed))
        chosen = order[:count].clone()  # a slice would be pickled whole
    else:
        raise FrontierError(
            f"{source.name}: the seed of the samples is {seed}: expected one from 0 to 2^64 - 1, as in "
            "--sample-seed 42 (in Python seed=42)"
        )
    return Samples(
        source.name,
        source.labels[chosen],
        partial(_read_chosen, source.read, chosen),
        source.class_names,
    )


def _read_chosen(read: Callable[[Tensor], Tensor], chosen: Tensor, rows: Tensor) -> Tensor:
    return read(chosen[rows])


def as_samples(images: Any, labels: Any = None, name: str | None = None) -> Samples:
    """Make samples of tensors, arrays or lists with labels; of a Dataset, a DataLoader, or batches of (images, labels).

    A Dataset is read on demand, and so is a DataLoader over one, in the order its sampler gives now; anything else, and
    a DataLoader with batches of the user's own, is read once and kept in memory. Samples are returned as they are.
    8-bit images are divided by 255, and channels that can only be the last axis are put first.
    """
    if isinstance(images, Samples) and labels is None:
        return images
    if isinstance(images, (Samples, Dataset, DataLoader)) and labels is not None:
        raise FrontierError(
            f"labels were given apart, but a {type(images).__name__} has its own: leave them out"
        )
    if isinstance(images, Dataset):
        return as_samples(DataLoader(images), name=name or _dataset_name(images))
    if isinstance(images, DataLoader) and _can_be_indexed(images):
        return _from_dataset(images, name or _dataset_name(images.dataset))
    name = name or "tensors"
    if labels is not None:
        with explaining(
            f"{name}: cannot be read", ": expected tensors, arrays or lists of numbers, of one size"
        ):
            pixels = check_unit(channels_first(as_tensor(images)), name)
            numbers = as_labels(as_tensor(labels), len(pixels), name)
        return Samples(name, numbers, partial(torch.index_select, pixels, 0))
    if isinstance(images, (Tensor, np.ndarray)):
        raise FrontierError(
            f"{name}: images without labels: type the labels behind them, as in (model, images, labels)"
        )
    with explaining(
        f"{name}: cannot be read", ": expected images with labels, or batches of (images, labels)"
    ):
        batches = list(images)
        if not batches or not all(isinstance(b, (tuple, list)) and len(b) >= 2 for b in batches):
            raise FrontierError(f"{name}: expected batches of (images, labels), at least one")
        pixels, numbers = (torch.cat([as_tensor(batch[k]) for batch in batches]) for k in (0, 1))
    return as_samples(pixels, numbers, name)


def as_tensor(values: Any) -> Tensor:
    """A tensor on the CPU of a tensor, an array, a picture, or a list of any of them."""
    if isinstance(values, Tensor):
        return values.detach().cpu()
    if hasattr(values, "getbands"):  # of Pillow
        return as_pixels(values if values.mode == "L" else as_rgb(values))
    if isinstance(values, (list, tuple)) and any(
        hasattr(value, "getbands") or isinstance(value, Tensor) for value in values
    ):
        return torch.stack([as_tensor(value) for value in values])
    return torch.from_numpy(np.require(values, requirements=("C", "W")))


def as_rgb(picture: Any) -> Any:
    """A picture of any mode in colours. Pillow would cut off what has more than 8 bits: it is refused."""
    if picture.mode[0] in "IF":
        raise ValueError(
            f"its pixels are of mode {picture.mode}: expected 8 bits per channel; convert it"
        )
    return picture.convert("RGB")


def as_pixels(picture: Any) -> Tensor:
    """A picture with one channel or three as uint8 CHW."""
    return torch.from_numpy(np.atleast_3d(picture).copy()).permute(2, 0, 1)


def _dataset_name(dataset: Any) -> str:
    """What a dataset is called, below whatever takes parts of it."""
    while isinstance(dataset, Subset):
        dataset = dataset.dataset
    return "tensors" if isinstance(dataset, TensorDataset) else type(dataset).__name__


def _can_be_indexed(loader: DataLoader[Any]) -> bool:
    """Whether its batches are the items of its dataset in the order of its sampler, and no item is left out."""
    batches, usual = loader.batch_sampler, loader.collate_fn in {default_collate, default_convert}
    if (
        isinstance(loader.dataset, IterableDataset)
        or isinstance(loader.sampler, BatchSampler)
        or not usual
    ):
        return False
    # One that the user has made draws from a sampler of its own, of which the loader does not know.
    own = (
        type(batches) is BatchSampler
        and batches.sampler is loader.sampler
        and not batches.drop_last
    )
    return batches is None or own


def _from_dataset(loader: DataLoader[Any], name: str) -> Samples:
    order = torch.tensor(list(loader.sampler), dtype=torch.int64)
    if not len(order):
        raise FrontierError(f"{name}: its dataset is empty: expected samples")
    item = loader.dataset[int(order[0])]
    if not isinstance(item, (tuple, list)) or len(item) < 2:
        raise FrontierError(
            f"{name}: its items are {type(item).__name__}: expected (image, label) pairs"
        )
    read = partial(_read_items, loader.dataset, order, name)
    read(torch.tensor([0]))  # what cannot be read should show here, not in the middle of a run
    with explaining(f"{name}: its labels cannot be read", ": expected class numbers as integers"):
        labels = torch.stack([torch.as_tensor(loader.dataset[i][1]) for i in order.tolist()])
    return Samples(name, as_labels(labels, len(order), name), read)


def _read_items(dataset: Any, order: Tensor, name: str, rows: Tensor) -> Tensor:
    return stack_images([dataset[item][0] for item in order[rows].tolist()], name)


def check_unit(images: Tensor, name: str) -> Tensor:
    """Return images as float32 in [0, 1]: 8-bit ones divided by 255, others as they are if they are in it.

    A model may take any shape; what comes out of files is NCHW.
    """
    if images.dtype == torch.uint8:
        images = images.to(torch.float32) / 255
    return check_images(images, name).to(torch.float32)


def channels_first(images: Tensor) -> Tensor:
    """Put the channels first where they can only be the last axis: 1 or 3 of them, behind two larger axes."""
    if (
        images.ndim != 4
        or images.shape[3] not in CHANNELS
        or min(images.shape[1:3]) <= max(CHANNELS) + 1
    ):
        return images
    return images.permute(0, 3, 1, 2).contiguous()


def stack_images(images: list[Any], name: str) -> Tensor:
    """Put single images into one batch."""
    with explaining(f"{name}: an image cannot be read", ": expected tensors, arrays or pictures"):
        tensors = [as_tensor(image) for image in images]
    if len({tensor.shape for tensor in tensors}) > 1:
        shapes = sorted({tuple(tensor.shape) for tensor in tensors})
        raise FrontierError(
            f"{name}: images of different sizes ({shapes[0]} and {shapes[1]}): expected one size; "
            "name a preprocessing, such as preprocessing=Res256Crop224"
        )
    return check_unit(channels_first(torch.stack(tensors)), name)


def as_labels(labels: Tensor, count: int, name: str) -> Tensor:
    """Return one int64 label per image."""
    if labels.is_floating_point() or labels.is_complex() or labels.dtype == torch.bool:
        raise FrontierError(
            f"{name}: labels are {labels.dtype}: expected class numbers as integers"
        )
    if labels.shape == (count, 1):
        labels = labels[:, 0]
    if labels.shape != (count,):
        raise FrontierError(
            f"{name}: {count} images but labels of shape {tuple(labels.shape)}: expected ({count},)"
        )
    return labels.detach().to("cpu", torch.int64)
