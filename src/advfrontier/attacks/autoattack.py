"""Standard AutoAttack at one radius, with every pass through the model counted.

AutoAttack answers one question, who is robust at this radius, and tells no distances. It drops samples as it breaks
them, so what it costs is counted row by row at the model, and told per sample.
"""

from __future__ import annotations

import logging
import re
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from advfrontier.engine import Oracle
from advfrontier.errors import FrontierError
from advfrontier.threat.names import norm_name
from advfrontier.threat.norms import get_norm

NORMS = ("L1", "L2", "Linf")
_LEAST_CLASSES = 4  # the targeted DLR loss looks at the four largest logits


@dataclass(frozen=True, eq=False)
class AtRadius:
    """What AutoAttack found at one radius, and what that cost."""

    radius: float
    robust: NDArray[np.bool_]  # per sample: correct, and not broken
    forwards: NDArray[np.int64]  # passes of the attack per sample; copies of one image may share theirs unevenly
    backwards: NDArray[np.int64]
    counts: Mapping[str, int]  # rows by purpose: attack, and checks (AutoAttack's own, and its last look at points)
    seconds: float
    flags: tuple[str, ...] = ()

    @property
    def accuracy(self) -> float:
        """Robust accuracy at this radius."""
        return float(self.robust.mean())


@dataclass(frozen=True)
class KnownPoints:
    """Robust accuracy at some radii, and the queries per sample that took: all that such an attack tells."""

    radii: tuple[float, ...]
    accuracies: tuple[float, ...]
    queries: tuple[float, ...]
    flags: tuple[str, ...] = ()

    def at(self, radius: float) -> tuple[float, float] | None:
        """Robust accuracy and queries at a radius it was run at; None at any other."""
        where = np.flatnonzero(np.isclose(self.radii, radius, rtol=1e-9, atol=0))
        return (self.accuracies[where[0]], self.queries[where[0]]) if where.size else None


def check_norm(norm: str) -> str:
    """The norm's name, if AutoAttack attacks in it."""
    if (name := norm_name(norm)) not in NORMS:
        raise FrontierError(f"AutoAttack does not attack in {name}: expected one of {', '.join(NORMS)}")
    return name


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
    """Run standard AutoAttack at one radius, on images as they are attacked elsewhere: floats in [0, 1]."""
    if images.ndim != 4:
        raise FrontierError(f"images have shape {tuple(images.shape)}: AutoAttack expects (samples, channels, h, w)")
    if not (radius > 0 and np.isfinite(radius)):
        raise FrontierError(f"a radius of {radius}: expected one that is finite and above 0")
    began, attack = time.monotonic(), _autoattack()
    with Oracle(model, device=device) as oracle:
        ledger = _Ledger(oracle.answer, images.float(), labels.long())
        points, predictions, warned = _attacked(
            attack, ledger, norm=check_norm(norm), radius=radius, seed=seed, batch_size=batch_size, device=oracle.device
        )
    distances = get_norm(norm).distance(points.flatten(1).double(), ledger.images.flatten(1).double())
    if outside := int((distances > radius * (1 + 1e-4)).sum()):
        warned.append(f"{outside} points lie outside the ball, at up to {float(distances.max()):g}")
    attacked = int(ledger.forwards.sum() + ledger.backwards.sum()) + ledger.counts["unknown"]
    if ledger.counts["unknown"]:
        warned.append(f"{ledger.counts['unknown']} of {attacked} rows could not be told apart by sample")
    return AtRadius(
        radius=radius,
        robust=(predictions == ledger.labels).numpy(),
        forwards=ledger.forwards,
        backwards=ledger.backwards,
        counts={"attack": attacked, "checks": ledger.counts["checks"]},
        seconds=time.monotonic() - began,
        flags=tuple(warned),
    )


def _attacked(
    attack: Any, ledger: _Ledger, *, norm: str, radius: float, seed: int, batch_size: int, device: torch.device
) -> tuple[Tensor, Tensor, list[str]]:
    """AutoAttack's points and their classes, and what it warned of."""
    with torch.no_grad():
        classes = ledger(ledger.images[:1].to(device)).shape[1]
    if classes < _LEAST_CLASSES:
        raise FrontierError(f"the model has {classes} classes: AutoAttack's targeted loss needs at least 4")
    with _apart(device) as warned:
        auto = attack(ledger, norm=norm, eps=radius, seed=seed, version="standard", device=device)
        for part in (auto.apgd_targeted, auto.fab):
            part.n_target_classes = min(part.n_target_classes, classes - 1)
        for part in (auto.apgd, auto.apgd_targeted, auto.fab, auto.square):
            ledger.follow(part)
        points, predictions = auto.run_standard_evaluation(ledger.images, ledger.labels, batch_size=batch_size)
    return points, predictions, warned


def _autoattack() -> Any:
    try:
        return import_module("pyautoattack").AutoAttack
    except ImportError as error:
        raise FrontierError("AutoAttack is not installed: type pip install 'advfrontier[autoattack]'") from error


@contextmanager
def _apart(device: torch.device) -> Iterator[list[str]]:
    """Keep to AutoAttack what it would leave behind: the global random state, a trace function, log lines.

    What it warns of is collected instead, once each.
    """
    warned: dict[str, str] = {}

    def keep(record: logging.LogRecord) -> bool:
        text = record.getMessage().partition(" See flags_doc")[0]
        if record.levelno >= logging.WARNING:
            warned.setdefault(re.sub(r"\d+", "", text), text)
        return False

    log, tracer, said = logging.getLogger("auto-attack"), sys.gettrace(), []  # type: tuple[Any, Any, list[str]]
    log.addFilter(keep)
    try:
        with torch.random.fork_rng([device] if device.type == "cuda" else []):
            yield said
    finally:
        log.removeFilter(keep)
        sys.settrace(tracer)
        said[:0] = warned.values()


class _Ledger(nn.Module):
    """The model as AutoAttack sees it. It writes down who passes, forwards and backwards.

    The attacks name their samples twice: `perturb` and `attack_single_run` get clean images, known by their content.
    Inside a single run rows keep their places, and only those leave that were just misclassified.
    """

    def __init__(self, model: Callable[[Tensor], Tensor], images: Tensor, labels: Tensor) -> None:
        super().__init__()
        self.model, self.images, self.labels = model, images, labels
        self.forwards, self.backwards = np.zeros((2, len(images)), dtype=np.int64)
        self.counts: Counter[str] = Counter()
        self._known: dict[bytes, list[int]] = defaultdict(list)
        for place, image in enumerate(images.numpy()):
            self._known[image.tobytes()].append(place)
        self._stage = "checks"  # then "perturb", and within it "run"
        self._present = np.zeros(0, dtype=np.int64)  # the samples of the single run, by row
        self._correct = np.zeros(0, dtype=bool)

    def follow(self, part: Any) -> None:
        """Note when one of AutoAttack's attacks begins and ends, and on which samples."""
        for name, stage in (("perturb", "perturb"), ("attack_single_run", "run")):
            setattr(part, name, partial(self._during, stage, getattr(part, name)))

    def _during(self, stage: str, function: Callable[..., Any], x: Tensor, *rest: Any, **options: Any) -> Any:
        before, self._stage = self._stage, stage
        if stage == "run":
            started = self._present = self._named(x)
        try:
            return function(x, *rest, **options)
        finally:
            self._stage = before
            if stage == "run":
                self._present = started  # whoever calls the model next looks at the whole run's result

    def forward(self, x: Tensor) -> Tensor:
        """Pass on, and count."""
        who = self._who(x)
        self._charge("forwards", who, len(x))
        logits: Tensor = self.model(x)
        if self._stage == "run" and who is not None:
            self._correct = _correct(logits.detach(), self.labels[who].to(logits.device))
        if logits.requires_grad:
            logits.register_hook(lambda _: self._charge("backwards", who, len(x)))  # type: ignore[no-untyped-call]
        return logits

    def _who(self, x: Tensor) -> NDArray[np.int64] | None:
        if self._stage == "checks":
            return None
        if self._stage == "run" and len(x) < len(self._present):
            self._present = self._present[self._correct]
        who = self._present
        if self._stage == "perturb":
            clean = self._named(x)
            who = clean if len(clean) == len(x) else who
        return who if len(who) == len(x) else None

    def _named(self, x: Tensor) -> NDArray[np.int64]:
        """The samples whose clean images these are, up to the first that is none."""
        seen: Counter[bytes] = Counter()
        places = []
        for row in x.detach().cpu().numpy():
            copies = self._known.get(key := row.tobytes())
            if copies is None:
                break
            places.append(copies[min(seen[key], len(copies) - 1)])
            seen[key] += 1
        return np.array(places, dtype=np.int64)

    def _charge(self, column: str, who: NDArray[np.int64] | None, rows: int) -> None:
        if who is not None:
            np.add.at(getattr(self, column), who, 1)
        else:
            self.counts["checks" if self._stage == "checks" else "unknown"] += rows


def _correct(logits: Tensor, labels: Tensor) -> NDArray[np.bool_]:
    """Rows whose label beats all other classes."""
    own = logits.gather(1, labels[:, None])
    others = logits.scatter(1, labels[:, None], -torch.inf).amax(1, keepdim=True)
    return np.asarray((own > others).squeeze(1).cpu().numpy())
