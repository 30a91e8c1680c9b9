"""Attacks that are done in one piece: they run on a shard to their end, and cannot be resumed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, runtime_checkable

if TYPE_CHECKING:
    from torch import Tensor

    from advfrontier.engine.loop import Shard
    from advfrontier.engine.oracle import Oracle


@dataclass(frozen=True, eq=False)
class Whole:
    """Results of such an attack on the n samples of a shard.

    Args:
        best_point: (n, d), the nearest misclassified points; the inputs where there is none.
        measured: (queries / 10, n) float64 on the CPU, the best distance after 10, 20, … queries.
        spent: (n,) int32 on the CPU, the queries that it spent; at most those it was given.
        zero_gradients: (n,) int32, backward passes whose gradient vanished.
        bad_gradients: (n,) int32, backward passes whose gradient was not finite.
        rejected: (n,) int32, 1 where a misclassified point does not count and could be nearer.
    """

    best_point: Tensor
    measured: Tensor
    spent: Tensor
    zero_gradients: Tensor
    bad_gradients: Tensor
    rejected: Tensor


@runtime_checkable
class WholeAttack(Protocol):
    """Attack of another library or of a user."""

    def identity(self) -> dict[str, str]:
        """Return what decides its points: its class under `class`, its version, its parameters."""

    def run(
        self,
        oracle: Oracle,
        shard: Shard,
        queries: int,
        *,
        tick: Callable[[int], object] | None = None,
    ) -> Whole:
        """Attack every sample of a shard with at most `queries` queries each.

        Args:
            oracle: Model on its device, which counts every query.
            shard: Samples to attack.
            queries: Most queries per sample, a multiple of CHECKPOINT.
            tick: Called with the sample-queries of each part of the shard that is done.
        """
