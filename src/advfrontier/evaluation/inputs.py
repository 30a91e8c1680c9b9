"""What users hand over, as the jobs take it: models and data, as objects or by name."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from advfrontier.errors import FrontierError
from advfrontier.jobs import Model
from advfrontier.record import Terms
from advfrontier.sources import as_samples, load_data, load_model
from advfrontier.threat.names import norm_name

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from torch import Tensor

    from advfrontier.engine.data import Samples
    from advfrontier.execution import Machine


def as_model(model: Model | Callable[[Tensor], Tensor] | str, name: str | None = None) -> Model:
    """A model by its source, or the object itself."""
    if isinstance(model, Model):
        return model
    if isinstance(model, str):
        return Model(name or model, source=model, load=load_model)
    return Model(name or type(model).__name__, model)


def as_data(images: Tensor | Samples | Iterable[Any] | str, labels: Tensor | None) -> Samples:
    """Samples by their source, or of tensors, arrays, a DataLoader or batches."""
    return load_data(images) if isinstance(images, str) else as_samples(images, labels)


def as_terms(norm: str, *, seed: int, batch_size: int, machine: Machine) -> Terms:
    """What decides the bits of a record."""
    if batch_size < 1:
        raise FrontierError(f"a batch size of {batch_size}: expected at least 1")
    values = {
        "norm": norm_name(norm),
        "seed": int(seed),
        "shard": int(batch_size),
        "device": machine.device,
        "dtype": machine.dtype,
        "threads": int(machine.threads or torch.get_num_threads()),
    }
    return Terms.model_validate(values)
