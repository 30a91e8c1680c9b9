"""The only door to the model: every forward and backward pass goes through it and is counted, row by row."""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Self

import torch
from torch import Tensor, nn

from advfrontier.errors import FrontierError

if TYPE_CHECKING:
    from collections.abc import Callable


@dataclass
class Counts:
    """Rows passed through the model, forward plus backward, by purpose."""

    checks: int = 0
    setup: int = 0
    attack: int = 0
    verification: int = 0

    def as_dict(self) -> dict[str, int]:
        """By name."""
        return asdict(self)


def find_device(name: str | torch.device) -> torch.device:
    """The device of this name, if it is there."""
    try:
        device = torch.device(name)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:  # the latter is how a torch without CUDA says so
        reason = str(error).split("\n", maxsplit=1)[0]
        raise FrontierError(f"the device {name} cannot be used here ({reason}): expected one such as cpu") from error
    return device


class Oracle(AbstractContextManager["Oracle"]):
    """A model on a device. Inside its `with` block the model is in eval mode with frozen parameters, then as it was.

    `purpose` names the counter that passes are charged to.
    """

    def __init__(
        self,
        model: Callable[[Tensor], Tensor],
        *,
        device: str | torch.device = "cpu",
        dtype: torch.dtype = torch.float32,
    ) -> None:
        self.model, self.device, self.dtype = model, find_device(device), dtype
        self.counts = Counts()
        self.purpose = "checks"
        self._restore: list[Callable[[], object]] = []

    def __enter__(self) -> Self:
        if isinstance(self.model, nn.Module):
            for module in self.model.modules():
                self._restore.append(_setter(module, "training", module.training))
            for parameter in self.model.parameters():
                self._restore.append(_setter(parameter, "requires_grad", parameter.requires_grad))
            self.was_training = self.model.training
            self.model.eval().requires_grad_(requires_grad=False)
        return self

    def __exit__(self, *_: object) -> None:
        for restore in reversed(self._restore):
            restore()
        self._restore.clear()

    def logits(self, images: Tensor) -> Tensor:
        """One forward pass. Gradients can be taken if `images` asks for them, whatever mode the caller is in."""
        self._charge(len(images))
        with torch.set_grad_enabled(images.requires_grad):
            return self.model(images)

    def gradient(self, value: Tensor, images: Tensor) -> Tensor:
        """One backward pass: the gradient of the summed value, contiguous and owned by the caller."""
        self._charge(len(images))
        (gradient,) = torch.autograd.grad(value, images, torch.ones_like(value))
        return gradient.contiguous()

    def _charge(self, rows: int) -> None:
        setattr(self.counts, self.purpose, getattr(self.counts, self.purpose) + rows)


def _setter(owner: object, name: str, value: object) -> Callable[[], None]:
    return lambda: setattr(owner, name, value)
