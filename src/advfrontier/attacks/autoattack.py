"""Standard AutoAttack at one radius, with every pass through the model counted.

AutoAttack answers one question, who is robust at this radius, and tells no distances. It drops
samples as it breaks them, so what it costs is counted row by row at the model.
"""

from __future__ import annotations

import logging
import re
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from advfrontier.engine import Oracle
from advfrontier.errors import FrontierError
from advfrontier.threat.names import norm_name
from advfrontier.threat.norms import make_norm

NORMS = ("L1", "L2", "Linf")
_LEAST_CLASSES = 4  # the targeted DLR loss looks at the four largest logits


@dataclass(frozen=True, eq=False)
class AtRadius:
    """Result and cost of AutoAttack at one radius.

    Args:
        radius: Radius of the perturbation, in units of the norm.
        robust: (n,) bool, classified correctly and not broken.
        forwards: Rows of the attack's forward passes.
        backwards: Rows of its backward passes.
        counts: Rows by purpose: `attack`, and `checks` for AutoAttack's own passes and its last
            look at the points.
        seconds: Time it took.
        flags: Warnings, as sentences.
    """

    radius: float
    robust: NDArray[np.bool_]
    forwards: int
    backwards: int
    counts: Mapping[str, int]
    seconds: float
    flags: tuple[str, ...] = ()


@dataclass(frozen=True)
class KnownPoints:
    """Robust accuracy at some radii, and the queries per sample.

    Args:
        radii: Radii, in units of the norm.
        accuracies: Robust accuracy at every radius.
        queries: Queries per sample at every radius.
        flags: Warnings, as sentences.
    """

    radii: tuple[float, ...]
    accuracies: tuple[float, ...]
    queries: tuple[float, ...]
    flags: tuple[str, ...] = ()

    def at(self, radius: float) -> tuple[float, float] | None:
        """Robust accuracy and queries at a radius it was run at; None at any other.

        Args:
            radius: Radius in units of the norm.
        """
        where = np.flatnonzero(np.isclose(self.radii, radius, rtol=1e-9, atol=0))
        return (self.accuracies[where[0]], self.queries[where[0]]) if where.size else None


def check_norm(norm: str) -> str:
    """Return the norm's name, or raise if AutoAttack does not attack in it.

    Args:
        norm: Name of the norm; AutoAttack knows L1, L2 and Linf.
    """
    if (name := norm_name(norm)) not in NORMS:
        raise FrontierError(
            f"AutoAttack does not attack in {name}: expected one of {', '.join(NORMS)}"
        )
    return name


def check_radius(radius: float) -> None:
    """Refuse radii that hold no ball, or everything.

    Args:
        radius: Radius, in units of the norm.
    """
    if not (radius > 0 and np.isfinite(radius)):
        raise FrontierError(f"a radius of {radius}: expected one that is finite and above 0")


def attack_at(
    model: Callable[[Tensor], Tensor],
    images: Tensor,
    labels: Tensor,
    *,
    norm: str,
    radius: float,
    seed: int = 42,
    batch_size: int = 100,
    device: str | torch.device = "cpu",
) -> AtRadius:
    """Run standard AutoAttack at one radius, on images in [0, 1].

    Args:
        model: From images in [0, 1] to logits.
        images: (n, channels, height, width) in [0, 1].
        labels: True classes, int64 (n,).
        norm: `L1`, `L2` or `Linf`.
        radius: Radius of the perturbation, in units of the norm, greater than 0.
        seed: Random seed of AutoAttack.
        batch_size: Samples per batch.
        device: Device on which the model runs.
    """
    if images.ndim != 4:
        raise FrontierError(
            f"images have shape {tuple(images.shape)}: AutoAttack expects (samples, channels, h, w)"
        )
    check_radius(radius)
    began, attack = time.monotonic(), _autoattack()
    with Oracle(model, device=device) as oracle:
        ledger, images, labels = Ledger(oracle.answer), images.float(), labels.long()
        with torch.no_grad():
            classes = ledger(images[:1].to(oracle.device)).shape[1]
        if classes < _LEAST_CLASSES:
            raise FrontierError(
                f"the model has {classes} classes: AutoAttack's targeted loss needs at least 4"
            )
        with _apart(oracle.device) as warned:
            auto = attack(
                ledger,
                norm=check_norm(norm),
                eps=radius,
                seed=seed,
                version="standard",
                device=oracle.device,
            )
            for part in (auto.apgd_targeted, auto.fab):
                part.n_target_classes = min(part.n_target_classes, classes - 1)
            for part in (auto.apgd, auto.apgd_targeted, auto.fab, auto.square):
                ledger.follow(part)
            points, predictions = auto.run_standard_evaluation(
                images, labels, batch_size=batch_size
            )
    distances = make_norm(norm, tuple(images.shape[1:])).distance(
        points.flatten(1).cpu().double(), images.flatten(1).double()
    )
    flags = [*warned]
    if outside := int((distances > radius * (1 + 1e-4)).sum()):
        flags.append(f"{outside} points lie outside the ball, at up to {float(distances.max()):g}")
    forwards, backwards, checks = (
        ledger.counts[kind] for kind in ("forwards", "backwards", "checks")
    )
    return AtRadius(
        radius=radius,
        robust=(predictions == labels).numpy(),
        forwards=forwards,
        backwards=backwards,
        counts={"attack": forwards + backwards, "checks": checks},
        seconds=time.monotonic() - began,
        flags=tuple(flags),
    )


def _autoattack() -> Any:
    try:
        return import_module("pyautoattack").AutoAttack
    except ImportError as error:
        raise FrontierError(
            "AutoAttack is not installed: type pip install 'advfrontier[autoattack]'"
        ) from error


@contextmanager
def _apart(device: torch.device) -> Iterator[Iterable[str]]:
    """Undo AutoAttack's side effects: the global random state, a trace function, log lines.

    What it warns of is collected instead, once each.
    """
    warned: dict[str, str] = {}

    def keep(record: logging.LogRecord) -> bool:
        text = record.getMessage().partition(" See flags_doc")[0]
        if record.levelno >= logging.WARNING:
            warned.setdefault(re.sub(r"\d+", "", text), text)
        return False

    log, tracer = logging.getLogger("auto-attack"), sys.gettrace()
    log.addFilter(keep)
    try:
        with torch.random.fork_rng([device] if device.type == "cuda" else []):
            yield warned.values()
    finally:
        log.removeFilter(keep)
        sys.settrace(tracer)


class Ledger(nn.Module):
    """Model for AutoAttack, which counts rows of attacks apart from rows of checks.

    Args:
        model: From images in [0, 1] to logits.
    """

    def __init__(self, model: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.model, self.attacking = model, False
        self.counts: Counter[str] = Counter()  # forwards, backwards and checks

    def follow(self, part: Any) -> None:
        """Note when one of AutoAttack's attacks begins and ends.

        Args:
            part: An attack of AutoAttack, with a method `perturb`.
        """
        perturb = part.perturb

        def during(*images: Tensor, **options: Any) -> Any:
            before, self.attacking = self.attacking, True
            try:
                return perturb(*images, **options)
            finally:
                self.attacking = before

        part.perturb = during

    def forward(self, x: Tensor) -> Tensor:
        """Pass on, and count."""
        self._count("forwards", len(x))
        logits: Tensor = self.model(x)
        if logits.requires_grad:
            logits.register_hook(lambda _: self._count("backwards", len(x)))  # type: ignore[no-untyped-call]
        return logits

    def _count(self, kind: str, rows: int) -> None:
        self.counts[kind if self.attacking else "checks"] += rows
