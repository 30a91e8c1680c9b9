"""Samples of what a Python user has, and what all sources need: float32 NCHW in [0, 1]."""

from __future__ import annotations

from collections.abc import Callable, Sequence
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
from advfrontier.engine.data import Samples, as_float32
from advfrontier.errors import FrontierError
from advfrontier.sources.reading import explaining

CHANNELS = (1, 3)


class Rows:
    """Reads rows of an array that each process opens for itself.

    A pickled copy holds the way to open the array, not the array.

    Args:
        open_array: Opens the array.
        to_images: Turns some rows of it into float32 NCHW in [0, 1].
    """

    def __init__(self, open_array: Callable[[], Any], to_images: Callable[[Any], Tensor]) -> None:
        self.open_array = open_array
        self.to_images = to_images

    def __getstate__(self) -> dict[str, Any]:
        return {"open_array": self.open_array, "to_images": self.to_images}

    @cached_property
    def array(self) -> Any:
        """Return the array, opened when it is first needed."""
        return self.open_array()

    def __call__(self, rows: Tensor) -> Tensor:
        """Return the images of these rows.

        Args:
            rows: Row numbers, int64 (k,).
        """
        return self.to_images(self.array[rows.numpy()])


def choose(source: Samples, samples: int | None, seed: int | None) -> Samples:
    """Return the first `samples` rows, or with a seed the first rows of a fixed permutation.

    With one seed, more samples contain all those that fewer samples contain.

    Args:
        source: Samples to choose from.
        samples: Number of samples; all by default.
        seed: Seed of the permutation; rows keep their order by default.
    """
    count = len(source) if samples is None else samples
    if not 1 <= count <= len(source):
        raise FrontierError(
            f"{source.name}: samples={samples}, but it has {len(source)}: expected 1 to "
            f"{len(source)}"
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
            f"{source.name}: the seed of the samples is {seed}: expected one from 0 to 2^64 - 1, "
            "as in --sample-seed 42 (in Python seed=42)"
        )
    read = partial(_read_chosen, source.read, chosen)
    return Samples(source.name, source.labels[chosen], read, source.class_names)


def _read_chosen(read: Callable[[Tensor], Tensor], chosen: Tensor, rows: Tensor) -> Tensor:
    return read(chosen[rows])


def as_samples(
    images: Any, labels: Any = None, name: str | None = None, *, unit: bool = True
) -> Samples:
    """Return samples of tensors, arrays, lists, a Dataset, a DataLoader or batches.

    A Dataset is read on demand, and so is a DataLoader over one, in the order that its sampler
    gives now. Anything else, and a DataLoader with batches of the user's own, is read once and
    kept in memory. 8-bit images are divided by 255. Channels that can only be the last axis are
    put first.

    Args:
        images: Images (n, …), or something that yields (images, labels); Samples are returned as
            they are.
        labels: Class numbers (n,); None if `images` has its own.
        name: Display name of the data.
        unit: Whether images must be in [0, 1].
    """
    if isinstance(images, Samples) and labels is None:
        return images
    if isinstance(images, (Samples, Dataset, DataLoader)) and labels is not None:
        raise FrontierError(
            f"labels were given apart, but a {type(images).__name__} has its own: leave them out"
        )
    if isinstance(images, Dataset):
        return as_samples(DataLoader(images), name=name or _dataset_name(images), unit=unit)
    if isinstance(images, DataLoader) and _can_be_indexed(images):
        return _from_dataset(images, name or _dataset_name(images.dataset), unit=unit)
    name = name or "tensors"
    if labels is not None:
        return _from_arrays(images, labels, name, unit=unit)
    if isinstance(images, (Tensor, np.ndarray)):
        raise FrontierError(
            f"{name}: images without labels: type the labels behind them, as in "
            "(model, images, labels)"
        )
    hint = ": expected images with labels, or batches of (images, labels)"
    with explaining(f"{name}: cannot be read", hint):
        pixels, numbers = [], []
        for batch in images:
            if not isinstance(batch, (tuple, list)) or len(batch) < 2:
                raise FrontierError(f"{name}: expected batches of (images, labels), at least one")
            pixels.append(as_tensor(batch[0]))
            numbers.append(as_tensor(batch[1]))
        if not pixels:
            raise FrontierError(f"{name}: expected batches of (images, labels), at least one")
        return _from_arrays(torch.cat(pixels), torch.cat(numbers), name, unit=unit)


def _from_arrays(images: Any, labels: Any, name: str, *, unit: bool) -> Samples:
    hint = ": expected tensors, arrays or lists of numbers, of one size"
    with explaining(f"{name}: cannot be read", hint):
        pixels = check_unit(channels_first(as_tensor(images)), name, unit=unit)
        numbers = as_labels(as_tensor(labels), len(pixels), name)
    return Samples(name, numbers, partial(torch.index_select, pixels, 0))


def as_tensor(values: Any) -> Tensor:
    """Return a CPU tensor of a tensor, an array, a picture, or a list of any of them.

    Args:
        values: Tensor, array, or nested list of numbers.
    """
    if isinstance(values, Tensor):
        return values.detach().cpu()
    if is_picture(values):
        return as_pixels(values if values.mode == "L" else as_rgb(values))
    if isinstance(values, (list, tuple)) and any(
        is_picture(value) or isinstance(value, Tensor) for value in values
    ):
        return torch.stack([as_tensor(value) for value in values])
    return torch.from_numpy(np.require(values, requirements=("C", "W")))


def is_picture(value: Any) -> bool:
    """Return whether a value is a picture of Pillow, which need not be installed.

    Args:
        value: Object of any type.
    """
    return hasattr(value, "getbands")


def as_rgb(picture: Any) -> Any:
    """Return a picture in colours; raise if it has more than 8 bits, which Pillow would cut off.

    Args:
        picture: A picture of any mode.
    """
    if picture.mode[0] in "IF":
        raise ValueError(
            f"its pixels are of mode {picture.mode}: expected 8 bits per channel; convert it"
        )
    return picture.convert("RGB")


def as_pixels(picture: Any) -> Tensor:
    """Return a picture with one channel or three as uint8 (channels, height, width).

    Args:
        picture: A picture of mode L or RGB.
    """
    return torch.from_numpy(np.atleast_3d(picture).copy()).permute(2, 0, 1)


def _dataset_name(dataset: Any) -> str:
    while isinstance(dataset, Subset):
        dataset = dataset.dataset
    return "tensors" if isinstance(dataset, TensorDataset) else type(dataset).__name__


def _can_be_indexed(loader: DataLoader[Any]) -> bool:
    """Return whether the batches are the dataset's items in the sampler's order, and complete."""
    if isinstance(loader.dataset, IterableDataset) or isinstance(loader.sampler, BatchSampler):
        return False
    if loader.collate_fn not in {default_collate, default_convert}:
        return False
    batches = loader.batch_sampler
    if type(batches) is BatchSampler:  # one of the user's own may draw from another sampler
        return batches.sampler is loader.sampler and not batches.drop_last
    return batches is None


def _from_dataset(loader: DataLoader[Any], name: str, *, unit: bool) -> Samples:
    order = torch.tensor(list(loader.sampler), dtype=torch.int64)
    if not len(order):
        raise FrontierError(f"{name}: its dataset is empty: expected samples")
    item = loader.dataset[int(order[0])]
    if not isinstance(item, (tuple, list)) or len(item) < 2:
        raise FrontierError(
            f"{name}: its items are {type(item).__name__}: expected (image, label) pairs"
        )
    read = partial(_read_items, loader.dataset, order, name, unit)
    read(torch.tensor([0]))  # an unreadable image shows here, not during a run
    with explaining(f"{name}: its labels cannot be read", ": expected class numbers as integers"):
        labels = torch.stack([torch.as_tensor(loader.dataset[i][1]) for i in order.tolist()])
    return Samples(name, as_labels(labels, len(order), name), read)


def _read_items(dataset: Any, order: Tensor, name: str, unit: bool, rows: Tensor) -> Tensor:  # noqa: FBT001
    return stack_images([dataset[item][0] for item in order[rows].tolist()], name, unit=unit)


def check_unit(images: Tensor, name: str, *, unit: bool = True) -> Tensor:
    """Return images as float32 in [0, 1]: 8-bit ones divided by 255, others unchanged.

    Args:
        images: Images of any shape (n, …).
        name: The source, for messages.
        unit: Whether they must be in [0, 1]; samples of a domain are checked with it.
    """
    if images.dtype == torch.uint8:
        images = images.to(torch.float32) / 255
    if unit:
        images = check_images(images, name)
    elif not images.is_floating_point():
        raise FrontierError(f"{name}: samples are {images.dtype}: expected floats; type .float()")
    return as_float32(images, name)


def channels_first(images: Tensor) -> Tensor:
    """Put the channels first where they can only be the last axis, behind two larger axes.

    Args:
        images: Images (n, …).
    """
    if images.ndim != 4 or images.shape[3] not in CHANNELS:
        return images
    if min(images.shape[1:3]) <= max(CHANNELS) + 1:
        return images
    return images.permute(0, 3, 1, 2).contiguous()


def stack_images(images: Sequence[Any], name: str, *, unit: bool = True) -> Tensor:
    """Return single images as one batch, float32 NCHW in [0, 1].

    Args:
        images: Tensors, arrays or pictures of one size.
        name: The source, for messages.
        unit: Whether they must be in [0, 1].
    """
    with explaining(f"{name}: an image cannot be read", ": expected tensors, arrays or pictures"):
        tensors = [as_tensor(image) for image in images]
    shapes = sorted({tuple(tensor.shape) for tensor in tensors})
    if len(shapes) > 1:
        raise FrontierError(
            f"{name}: images of different sizes ({shapes[0]} and {shapes[1]}): expected one size; "
            "name a preprocessing, such as preprocessing=Res256Crop224"
        )
    return check_unit(channels_first(torch.stack(tensors)), name, unit=unit)


def as_labels(labels: Tensor, count: int, name: str) -> Tensor:
    """Return one label per image, int64 (count,).

    Args:
        labels: Class numbers (count,) or (count, 1).
        count: The number of images.
        name: The source, for messages.
    """
    if labels.is_floating_point() or labels.is_complex() or labels.dtype == torch.bool:
        raise FrontierError(
            f"{name}: labels are {labels.dtype}: expected class numbers as integers"
            + (
                "; labels.argmax(1) of one-hot labels"
                if labels.ndim == 2 and labels.shape[1] > 1
                else "; labels.long()"
            )
        )
    if labels.shape == (count, 1):
        labels = labels[:, 0]
    if labels.ndim == 2 and len(labels) == count:
        raise FrontierError(
            f"{name}: labels have shape {tuple(labels.shape)}, as one-hot labels do: expected "
            f"class numbers ({count},); give labels.argmax(1)"
        )
    if labels.shape != (count,):
        raise FrontierError(
            f"{name}: {count} images but labels of shape {tuple(labels.shape)}: expected ({count},)"
        )
    return labels.detach().to("cpu", torch.int64)
