"""Tensors and a few words about them in one safetensors file, with a checksum over all of it."""

from __future__ import annotations

import json
from hashlib import blake2b
from typing import TYPE_CHECKING

from safetensors import SafetensorError
from safetensors.torch import load, save

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import Tensor


class Damaged(Exception):  # noqa: N818  # a state of a file, not a user's mistake
    """The file is cut short or was changed."""


def pack(tensors: Mapping[str, Tensor], words: Mapping[str, str] | None = None) -> bytes:
    """One file: the tensors, the words, and a checksum of both."""
    held = {name: tensor.contiguous() for name, tensor in tensors.items()}
    words = dict(words or {})
    return save(held, metadata={**words, "checksum": _checksum(held, words)})


def unpack(content: bytes) -> tuple[dict[str, Tensor], dict[str, str]]:
    """What `pack` was given. Raises Damaged unless it is all there and unchanged."""
    try:
        tensors = load(content)
        size = int.from_bytes(content[:8], "little")
        words = {str(k): str(v) for k, v in json.loads(content[8 : 8 + size]).get("__metadata__", {}).items()}
    except (SafetensorError, ValueError, KeyError, AttributeError) as error:
        raise Damaged(f"not a whole safetensors file ({error})") from error
    if words.pop("checksum", None) != _checksum(tensors, words):
        raise Damaged("its checksum does not match its content")
    return tensors, words


def _checksum(tensors: Mapping[str, Tensor], words: Mapping[str, str]) -> str:
    digest = blake2b(json.dumps(sorted(words.items())).encode(), digest_size=16)
    for name in sorted(tensors):
        tensor = tensors[name]
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        digest.update(tensor.numpy().tobytes())
    return digest.hexdigest()
