"""A model as work sees it: the function itself here, and in other processes what loads it again."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn

from advfrontier.engine import Oracle, find_device, model_digest
from advfrontier.errors import FrontierError
from advfrontier.record import Terms


@dataclass(eq=False, repr=False)
class Model:
    """A classifier with a name. One that has a source is sent to other processes as what loads it, and loaded once."""

    name: str  # what tables call it
    given: Callable[[Tensor], Tensor] | None = None  # from images in [0, 1] to logits; None if it is to be loaded
    source: str | None = None  # what the record says it was loaded from
    load: Callable[[str], nn.Module] | None = None  # loads it from its source, here or in another process
    placed: tuple[str, str] | None = None  # device and precision that it was put to, once it is loaded

    def __getstate__(self) -> dict[str, Any]:
        state = {key: value for key, value in vars(self).items() if key not in {"function", "digest"}}
        return state | ({"given": None, "placed": None} if self.load is not None and self.source is not None else {})

    @cached_property
    def function(self) -> Callable[[Tensor], Tensor]:
        """The model, loaded by whoever asks first."""
        if self.given is not None:
            return self.given
        if self.source is None or self.load is None:
            raise FrontierError(f"{self.name} is neither a model nor the source of one: expected one of them")
        return self.load(self.source)

    @cached_property
    def digest(self) -> str:
        """What tells it from others."""
        return model_digest(self.function)

    def oracle(self, terms: Terms) -> Oracle:
        """The model, ready to be asked. One that was loaded here is put where it is to run."""
        precision: torch.dtype = getattr(torch, terms.dtype)
        if self.given is None and self.placed != (terms.device, terms.dtype) and isinstance(self.function, nn.Module):
            _ = self.digest  # of its numbers as they were loaded
            self.function.to(find_device(terms.device), precision)
            self.placed = terms.device, terms.dtype
        return Oracle(self.function, device=terms.device, dtype=precision, eot=terms.eot)
