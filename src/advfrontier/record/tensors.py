"""Tensors and a few words about them in one safetensors file, checked tensor by tensor.

Every tensor has a checksum of its own, and the words have a seal that covers the checksums: a part
of the file can be read alone, and is as safe as the whole.
"""

from __future__ import annotations

import io
import json
from collections.abc import Collection, Mapping, Sequence
from hashlib import blake2b
from typing import Any, BinaryIO, NamedTuple

import torch
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor

_LENGTH = 8  # bytes before the header, which say how long it is
_LONGEST = 100_000_000  # bytes of a header; safetensors allows no more


class Damaged(Exception):  # noqa: N818  # a state of a file, not a user's mistake
    """Error: the file is cut short, was changed, or holds other content than its name says."""


def pack(tensors: Mapping[str, Tensor], words: Mapping[str, str] = {}) -> bytes:
    """Return one file with the tensors, the words, and checksums of both.

    Args:
        tensors: Tensors by name, on any device.
        words: Texts by key, stored beside the tensors.
    """
    held: dict[str, Tensor] = {}
    storages = set()
    for name, tensor in sorted(tensors.items()):
        whole = tensor.contiguous()
        storage = whole.untyped_storage().data_ptr()
        # The format does not allow two names of the same memory.
        held[name] = whole.clone() if storage in storages else whole
        storages.add(storage)
    checksums = json.dumps({name: _checksum(name, tensor) for name, tensor in held.items()})
    return save(held, metadata={**words, "checksums": checksums, "seal": seal(words, checksums)})


class _Part(NamedTuple):
    """Place of a tensor: bytes from `start` to `end` after the header, and its entry there."""

    start: int
    end: int
    entry: dict[str, Any]
    checksum: str


def unpack(
    content: bytes | BinaryIO, names: Collection[str] | None = None
) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Return the tensors and words that `pack` was given; raise Damaged if a part was changed.

    Args:
        content: Bytes of the file, or the open file, of which only what is asked for is read.
        names: Names of the tensors to read; one that ends in a dot stands for all that begin so.
            None for all.
    """
    file = io.BytesIO(content) if isinstance(content, bytes) else content
    parts, words, first = _read_header(file)
    length = first + max((part.end for part in parts.values()), default=0)
    if file.seek(0, io.SEEK_END) != length:
        raise Damaged("it is cut short, or longer than it says")
    tensors = {}
    for name, part in parts.items():
        if names is None or name in names or f"{name.partition('.')[0]}." in names:
            file.seek(first + part.start)
            tensors[name] = _tensor(name, part, file.read(part.end - part.start))
    return tensors, words


def _read_header(file: BinaryIO) -> tuple[dict[str, _Part], dict[str, str], int]:
    """Return where the tensors are, the words, and where the first tensor begins."""
    try:
        size = int.from_bytes(file.read(_LENGTH), "little")
        header = json.loads(file.read(size) if size <= _LONGEST else b"")
        words = {str(key): str(value) for key, value in header.pop("__metadata__").items()}
        checksums, stamp = words.pop("checksums"), words.pop("seal")
        known = dict(json.loads(checksums))
        parts = {}
        for name, entry in header.items():
            start, end = entry["data_offsets"]
            parts[name] = _Part(int(start), int(end), entry, str(known.pop(name)))
    except (
        ValueError,
        LookupError,
        AttributeError,
        TypeError,
        OverflowError,
        RecursionError,
    ) as error:
        raise Damaged(f"not a whole safetensors file ({type(error).__name__}: {error})") from error
    if stamp != seal(words, checksums) or known:
        raise Damaged("its checksum does not match its words")
    if any(not 0 <= part.start <= part.end for part in parts.values()):
        raise Damaged("its tensors have no place in it")
    return parts, words, _LENGTH + size


def _tensor(name: str, part: _Part, content: bytes) -> Tensor:
    """Return one tensor, read as the only one of a safetensors file."""
    alone = json.dumps({name: {**part.entry, "data_offsets": [0, len(content)]}}).encode()
    try:
        tensor = load(len(alone).to_bytes(_LENGTH, "little") + alone + content)[name]
    except (SafetensorError, ValueError, KeyError, RuntimeError, OverflowError) as error:
        raise Damaged(f"{name} is no whole tensor ({error})") from error
    if part.checksum != _checksum(name, tensor):
        raise Damaged(f"the checksum of {name} does not match its content")
    return tensor


def require(
    tensors: Mapping[str, Tensor],
    name: str,
    shape: Sequence[int | None],
    *dtypes: torch.dtype,
    low: float | None = None,
    high: float | None = None,
    nan: bool = False,
) -> Tensor:
    """Return a tensor of a file; raise Damaged if it is missing, or not of this form.

    Args:
        tensors: Tensors of the file, by name.
        name: Name of the tensor to check.
        shape: Expected shape; None stands for any number.
        dtypes: Types that it may have.
        low: Smallest value allowed.
        high: Largest value allowed, which may be inf.
        nan: Whether NaN is allowed.
    """
    if name not in tensors:
        raise Damaged(f"it has no {name}")
    tensor = tensors[name]
    if tensor.dtype not in dtypes:
        expected = " or ".join(str(dtype).removeprefix("torch.") for dtype in dtypes)
        found = str(tensor.dtype).removeprefix("torch.")
        raise Damaged(f"its {name} is {found}: expected {expected}")
    fits = len(tensor.shape) == len(shape)
    for size, wanted in zip(tensor.shape, shape, strict=False):
        fits = fits and wanted in {None, size}
    if not fits:
        sizes = ["any" if size is None else str(size) for size in shape]
        wanted_text = f"{sizes[0]}," if len(sizes) == 1 else ", ".join(sizes)
        raise Damaged(f"its {name} has the shape {tuple(tensor.shape)}: expected ({wanted_text})")
    if not tensor.numel() or tensor.dtype == torch.bool:
        return tensor
    if not nan and tensor.is_floating_point() and bool(tensor.isnan().any()):
        raise Damaged(f"its {name} holds values that are no numbers")
    values = tensor[~tensor.isnan()] if nan else tensor
    if not values.numel():
        return tensor
    smallest, largest = values.min().item(), values.max().item()
    if (low is not None and smallest < low) or (high is not None and largest > high):
        raise Damaged(
            f"its {name} ranges from {smallest:g} to {largest:g}: expected "
            f"{'anything' if low is None else f'{low:g}'} to "
            f"{'anything' if high is None else f'{high:g}'}"
        )
    return tensor


def _checksum(name: str, tensor: Tensor) -> str:
    digest = blake2b(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode(), digest_size=16)
    # NumPy does not know all kinds of numbers, but all are bytes.
    digest.update(tensor.flatten().view(torch.uint8).numpy().data)
    return digest.hexdigest()


def seal(words: Mapping[str, str], checksums: str) -> str:
    """Return the seal of a file: a digest of its words and of the checksums of its tensors.

    Args:
        words: Texts by key.
        checksums: JSON of the checksums of the tensors.
    """
    text = json.dumps([sorted(words.items()), checksums])
    return blake2b(text.encode(), digest_size=16).hexdigest()
