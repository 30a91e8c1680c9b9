"""A model as work sees it: the function itself here, and in other processes what loads it again."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn

from advfrontier.engine import Oracle, find_device, model_digest
from advfrontier.errors import FrontierError
from advfrontier.record import Terms


class Model:
    """A classifier with a name. One that has a source is sent to other processes as what loads it, and loaded once.

    Args:
        name: What tables call it.
        function: From images in [0, 1] to logits; None if it is to be loaded.
        source: What the record says it was loaded from.
        load: Loads it from its source, here or in another process.
    """

    def __init__(
        self,
        name: str,
        function: Callable[[Tensor], Tensor] | None = None,
        *,
        source: str | None = None,
        load: Callable[[str], nn.Module] | None = None,
    ) -> None:
        if function is None and (source is None or load is None):
            raise FrontierError(f"{name} is neither a model nor the source of one: expected one of them")
        self.name, self.source = name, source
        self._given, self._load = function, load
        self._placed: tuple[str, str] | None = None

    def __getstate__(self) -> dict[str, Any]:
        loadable = self._load is not None and self.source is not None
        state = {key: value for key, value in self.__dict__.items() if key not in {"function", "digest"}}
        return state | ({"_given": None, "_placed": None} if loadable else {})

    @cached_property
    def function(self) -> Callable[[Tensor], Tensor]:
        """The model, loaded by whoever asks first."""
        if self._given is not None:
            return self._given
        assert self._load is not None  # noqa: S101  # as the constructor has seen
        assert self.source is not None  # noqa: S101
        return self._load(self.source)

    @cached_property
    def digest(self) -> str:
        """What tells it from others."""
        return model_digest(self.function)

    def oracle(self, terms: Terms) -> Oracle:
        """The model, ready to be asked. One that was loaded here is put where it is to run."""
        if self._given is None and self._placed != (terms.device, terms.dtype) and isinstance(self.function, nn.Module):
            self.function.to(find_device(terms.device), precision(terms))
            self._placed = terms.device, terms.dtype
        return Oracle(self.function, device=terms.device, dtype=precision(terms), eot=terms.eot)


def precision(terms: Terms) -> torch.dtype:
    """The dtype that the terms name."""
    return {"float32": torch.float32, "float64": torch.float64}[terms.dtype]
