"""Expectation over transformation, for models that answer the same images at random.

Every query is then `oracle.eot` passes. Logits and gradients are their means; values of the loss
and the margin are those that three quarters of the passes do not exceed, so that solvers look for
the boundary beyond which a point is misclassified most of the time. What is kept has been seen
again in fresh passes, and misclassified in two thirds of them. With one pass, the default, all of
this is a plain forward and backward pass.
"""

from __future__ import annotations

import math
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import blake2b
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from advfrontier.engine.margins import robustly_misclassified
from advfrontier.threat.criteria import gap_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from advfrontier.engine.oracle import Oracle
    from advfrontier.threat.criteria import Aim

_AIM = 3 / 4  # of the passes of a query must misclassify a point for it to be looked at again

# A point counts if a share `_CLEAR` of `_VOTES` fresh passes misclassify it. One that the model
# gets right half of the time passes with a probability of 0.0004, and is looked at in 2 of 100
# cases (15 of 20 passes): if all the 2000 steps of 4k stood at such points, this would be 2 samples
# in 100. One that is wrong three times out of four stays with 0.97.
_VOTES = 100
_CLEAR = 2 / 3
LAST_LOOK = 1000  # fresh passes over every point that is stored: they tell its share to about 0.03


def votes(eot: int) -> int:
    """Fresh passes by which a point is judged.

    Args:
        eot: Passes per query.
    """
    return max(eot, _VOTES)


def judged(eot: int) -> str:
    """Describe how points are judged.

    Args:
        eot: Passes per query.
    """
    return f"at least two thirds of {votes(eot)} fresh passes misclassify it"


@dataclass(frozen=True)
class Reply:
    """Answer to one query.

    Args:
        passes: Logits of every pass, (passes, n, classes).
        loss: (n,), the loss of the mean logits.
        gradient: (n, …), its gradient by the images; None if none was asked for.
    """

    passes: Tensor
    loss: Tensor
    gradient: Tensor | None


def ask(oracle: Oracle, images: Tensor, loss: Callable[[Tensor], Tensor]) -> Reply:
    """Make one query: `oracle.eot` forward passes, and as many backward passes if needed.

    Args:
        oracle: Model that answers each pass, as often as its `eot` says.
        images: (n, …), on the device of the oracle.
        loss: Loss (n,) of the mean logits.
    """
    logits, values, gradient = [], [], None
    with _drawn_for(oracle, images, "query"):
        for _ in range(oracle.eot):
            answer = oracle.logits(images)
            with torch.set_grad_enabled(images.requires_grad):
                value = loss(answer)
            if images.requires_grad:
                slope = oracle.gradient(value, images)
                gradient = slope if gradient is None else gradient.add_(slope)
            logits.append(answer.detach())
            values.append(value.detach())
    if oracle.eot == 1:
        return Reply(logits[0][None], values[0], gradient)
    return Reply(
        torch.stack(logits),
        typical(torch.stack(values)),
        None if gradient is None else gradient / oracle.eot,
    )


def mean(passes: Tensor) -> Tensor:
    """Return the logits that stand for all passes.

    Args:
        passes: Logits of every pass, (passes, n, classes).
    """
    return passes[0] if len(passes) == 1 else passes.mean(0)


def typical(values: Tensor) -> Tensor:
    """Return per column the value that three quarters of the rows do not exceed.

    Args:
        values: Values, (rows, columns).
    """
    return (
        values[0]
        if len(values) == 1
        else values.kthvalue(math.ceil(_AIM * len(values)), dim=0).values
    )


@torch.no_grad()
def vote(
    oracle: Oracle, images: Tensor, labels: Tensor, stream: str, passes: int
) -> tuple[Tensor, Tensor]:
    """Return the share of fresh passes that misclassify each image, and their usual class.

    The class is the label where no more than half of them do. Logits that are not finite are no
    mistake. `stream` names the random numbers: those of another stream are independent.

    Args:
        oracle: Model that answers at random.
        images: (n, …), on the device of the oracle.
        labels: True classes, int64 (n,).
        stream: Name of the random numbers; other streams are independent.
        passes: Number of fresh passes.
    """
    counts, label = None, labels[:, None]
    with _drawn_for(oracle, images, stream):
        for _ in range(passes):
            logits = oracle.logits(images)
            seen = torch.where(logits.isfinite().all(1), logits.argmax(1), labels)[:, None]
            counts = torch.zeros_like(logits) if counts is None else counts
            counts.scatter_add_(1, seen, torch.ones_like(counts[:, :1]))
    assert counts is not None  # noqa: S101  # there is at least one pass
    share = 1 - counts.gather(1, label).squeeze(1) / passes
    return share, torch.where(share > 1 / 2, counts.scatter(1, label, -1).argmax(1), labels)


def clearly_misclassified(
    oracle: Oracle, images: Tensor, labels: Tensor, stream: str, aim: Aim | None = None
) -> Tensor:
    """Misclassified beyond doubt: by more than rounding, or in a clear majority of fresh passes.

    With an aim, its criterion stands for misclassification.

    Args:
        oracle: Model on its device.
        images: (n, …), on the device of the oracle.
        labels: True classes, int64 (n,).
        stream: Name of the random numbers; other streams are independent.
        aim: Criterion of success; None for misclassification.
    """
    if oracle.eot > 1:
        return vote(oracle, images, labels, stream, votes(oracle.eot))[0] >= _CLEAR
    logits = oracle.logits(images)
    return robustly_misclassified(logits, gap_of(aim, logits, labels), dtype=oracle.logits_dtype)


@contextmanager
def _drawn_for(oracle: Oracle, images: Tensor, stream: str) -> Iterator[None]:
    """Seed PyTorch's generators by the images for the model, and reset them afterwards.

    So the same batch gets the same answers in every process and after every interruption, with no
    state to keep.
    """
    if oracle.eot == 1:
        yield
        return
    content = images.detach().cpu().contiguous().numpy().tobytes()
    seed = blake2b(content, digest_size=8, key=stream.encode()).digest()
    with torch.random.fork_rng([images.device] if images.device.type == "cuda" else []):
        torch.manual_seed(int.from_bytes(seed, "big") >> 1)
        yield
