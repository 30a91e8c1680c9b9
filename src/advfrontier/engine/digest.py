"""Digest of a model: a hash of its structure, numbers and other state."""

from __future__ import annotations

import re
from collections.abc import Mapping
from hashlib import blake2b
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.parameter import UninitializedBuffer, UninitializedParameter

from advfrontier.errors import FrontierError

if TYPE_CHECKING:
    from collections.abc import Callable


def check_parameters(model: nn.Module) -> None:
    """Refuse a model some of whose numbers do not exist yet.

    Args:
        model: Any module.
    """
    for name, tensor in (*model.named_parameters(), *model.named_buffers()):
        if isinstance(tensor, (UninitializedParameter, UninitializedBuffer)):
            raise FrontierError(
                f"the model's {name} is not initialised: expected a model with its weights; call "
                "a lazy module once on an image, and load its weights"
            )
        if tensor.is_meta:
            raise FrontierError(
                f"the model's {name} is on the device meta and has no numbers: expected a model "
                "with its weights; use model.to_empty(device='cpu') and load them"
            )


def model_digest(model: Callable[[Tensor], Tensor]) -> str:
    """Hash a model: of an nn.Module its structure and all its numbers, else its name.

    What a model computes with them cannot be seen: see `answers_as`.

    Args:
        model: An nn.Module, or any function from images to logits.
    """
    if not isinstance(model, nn.Module):
        module = getattr(model, "__module__", "")
        name = f"{module}.{getattr(model, '__qualname__', type(model).__name__)}"
        return blake2b(name.encode(), digest_size=16).hexdigest()
    check_parameters(model)
    found = blake2b(_without_addresses(str(model)).encode(), digest_size=16)
    try:
        state = model.state_dict()
    except Exception as error:
        raise FrontierError(
            f"the model's state_dict() failed ({type(error).__name__}: {error}): expected one that "
            "lists its weights"
        ) from error
    _add(found, "", state)
    return found.hexdigest()


def _add(found: blake2b, name: str, value: object) -> None:
    """Hash a part of the state: a tensor, a collection of parts, or any other value."""
    if isinstance(value, Tensor):
        found.update(f"{name} {value.dtype} {tuple(value.shape)}".encode())
        for part in _numbers(value.detach().cpu()):
            # As bytes: NumPy knows neither bfloat16 nor the smaller types.
            found.update(part.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
    elif isinstance(value, np.ndarray):  # which prints only its ends if it is long
        _add(
            found,
            f"{name} {value.dtype} {value.shape}",
            value.tolist() if value.dtype.hasobject else value.tobytes(),
        )
    elif isinstance(value, (set, frozenset)):  # in an order of its own in every process
        _add(found, name, sorted(map(repr, value)))
    elif isinstance(value, Mapping):
        for key in value:
            _add(found, f"{name}.{key}", value[key])
    elif isinstance(value, (tuple, list)):
        for place, part in enumerate(value):
            _add(found, f"{name}.{place}", part)
    else:
        found.update(
            f"{name} {type(value).__qualname__} {_without_addresses(repr(value))}".encode()
        )


def _without_addresses(text: str) -> str:
    """Strip ` at 0x…` addresses, which differ between processes."""
    return re.sub(r" at 0x[0-9A-Fa-f]+", "", text)


def _numbers(tensor: Tensor) -> tuple[Tensor, ...]:
    """Return the dense tensors that a tensor is made of."""
    if tensor.is_quantized:
        if tensor.qscheme() in (torch.per_tensor_affine, torch.per_tensor_symmetric):
            return tensor.int_repr(), torch.tensor(
                [tensor.q_scale(), tensor.q_zero_point()], dtype=torch.float64
            )
        return tensor.int_repr(), tensor.q_per_channel_scales(), tensor.q_per_channel_zero_points()
    if tensor.layout == torch.strided:
        return (torch.view_as_real(tensor.resolve_conj()) if tensor.is_complex() else tensor,)
    return (tensor.to_dense(),)
