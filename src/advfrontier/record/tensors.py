"""Tensors and a few words about them in one safetensors file, checked tensor by tensor.

Every tensor has a checksum of its own, and the words have one that covers those: a part of the file can be read, and is
as sure as the whole.
"""

from __future__ import annotations

import io
import json
from collections.abc import Collection, Mapping
from hashlib import blake2b
from typing import Any, BinaryIO

import torch
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor

_LENGTH = 8  # bytes before the header, which say how long it is
_LONGEST = 100_000_000  # bytes of a header; safetensors allows no more


class Damaged(Exception):  # noqa: N818  # a state of a file, not a user's mistake
    """The file is cut short or was changed."""


def pack(tensors: Mapping[str, Tensor], words: Mapping[str, str] = {}) -> bytes:
    """One file: the tensors, the words, and checksums of both."""
    held = {name: tensor.contiguous() for name, tensor in tensors.items()}
    checksums = json.dumps({name: _checksum(name, tensor) for name, tensor in sorted(held.items())})
    return save(held, metadata={**words, "checksums": checksums, "seal": _seal(words, checksums)})


def unpack(
    content: bytes | BinaryIO, names: Collection[str] | None = None
) -> tuple[dict[str, Tensor], dict[str, str]]:
    """What `pack` was given: the tensors, or only those named, and the words. Of a file nothing else is read.

    Raises Damaged if it is cut short, or if anything that is read was changed.
    """
    file = io.BytesIO(content) if isinstance(content, bytes) else content
    try:
        begin = file.read(_LENGTH)
        size = int.from_bytes(begin, "little")
        text = file.read(size) if size <= _LONGEST else b""
        header = json.loads(text)
        words = {str(key): str(value) for key, value in header.pop("__metadata__").items()}
        checksums, seal = words.pop("checksums"), words.pop("seal")
        ends = {
            name: (int(entry["data_offsets"][0]), int(entry["data_offsets"][1]))
            for name, entry in header.items()
        }
        known = dict(json.loads(checksums))
    except (
        ValueError,
        LookupError,
        AttributeError,
        TypeError,
        OverflowError,
        RecursionError,
    ) as error:
        raise Damaged(f"not a whole safetensors file ({type(error).__name__}: {error})") from error
    if seal != _seal(words, checksums) or set(known) != set(ends):
        raise Damaged("its checksum does not match its words")
    if any(not 0 <= start <= end for start, end in ends.values()):
        raise Damaged("its tensors have no place in it")
    first = _LENGTH + size
    if file.seek(0, io.SEEK_END) != first + max((end for _, end in ends.values()), default=0):
        raise Damaged("it is cut short, or longer than it says")
    found = {}
    for name in ends if names is None else (name for name in ends if name in names):
        start, end = ends[name]
        file.seek(first + start)
        found[name] = _tensor(name, header[name], file.read(end - start))
        if known[name] != _checksum(name, found[name]):
            raise Damaged(f"the checksum of {name} does not match its content")
    return found, words


def _tensor(name: str, entry: dict[str, Any], content: bytes) -> Tensor:
    """One tensor, read as the only one of a safetensors file."""
    alone = json.dumps({name: {**entry, "data_offsets": [0, len(content)]}}).encode()
    try:
        return load(len(alone).to_bytes(_LENGTH, "little") + alone + content)[name]
    except (SafetensorError, ValueError, KeyError) as error:
        raise Damaged(f"{name} is no whole tensor ({error})") from error


def _checksum(name: str, tensor: Tensor) -> str:
    digest = blake2b(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode(), digest_size=16)
    digest.update(
        tensor.flatten().view(torch.uint8).numpy().data
    )  # NumPy does not know all kinds of numbers
    return digest.hexdigest()


def _seal(words: Mapping[str, str], checksums: str) -> str:
    return blake2b(
        json.dumps([sorted(words.items()), checksums]).encode(), digest_size=16
    ).hexdigest()
