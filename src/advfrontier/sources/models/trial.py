"""A first pass through a graph that was read from a file."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import nn

from advfrontier.errors import FrontierError
from advfrontier.sources.guards import explaining
from advfrontier.sources.spec import Spec

_BATCH = 3  # a size that nobody exports for
_LARGEST = 2**24  # numbers of an image: larger ones are not tried


def try_batches(spec: Spec, model: nn.Module, shape: Sequence[int], option: str) -> None:
    """Refuse a graph that does not compute, or only with the batch size it was exported for.

    Args:
        spec: where the model comes from.
        model: the model.
        shape: what the file says of its input; 0 for a size that may vary.
        option: what to export it with for batches of any size.
    """
    if len(shape) != 4 or not 0 < math.prod(shape[1:]) <= _LARGEST:
        return
    hint = f": expected any; export it with {option} for the first dimension"
    what = f"{spec.text}: works only with batches of {shape[0] or 'one size'}, or not at all"
    with explaining(what, hint), torch.no_grad():
        logits = model.eval()(torch.zeros(_BATCH, *shape[1:]))
        if logits.ndim != 2 or len(logits) != _BATCH or not logits.is_floating_point():
            kind = f"{logits.dtype} of shape {tuple(logits.shape)}"
            raise FrontierError(f"{what}: {_BATCH} images give {kind}{hint}, and logits (n, classes)")
