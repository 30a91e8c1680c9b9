"""Tracing: how the best distance of every run falls with the queries it spends, on one model."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Self

import numpy as np
import torch
from torch import Tensor

from advfrontier.engine import (
    CHECKPOINT,
    Oracle,
    Unit,
    advance,
    check_data,
    check_model,
    clean_pass,
    start_unit,
    verify,
)
from advfrontier.errors import FrontierError
from advfrontier.frontier.trajectories import Trajectories
from advfrontier.pool import MAX_QUERIES, Run, check_run
from advfrontier.pool import pool as pool_of
from advfrontier.progress import Progress, Silent
from advfrontier.threat.norms import get_norm
from advfrontier.threat.random import sample_ids

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from numpy.typing import NDArray

    from advfrontier.solvers import Solver

_CHECKED = 16  # samples on which the model is tried before any are attacked


@dataclass(frozen=True, eq=False)
class Traces(Trajectories):
    """Trajectories with what is known about how they were made."""

    flags: tuple[str, ...] = ()  # in words: what may make these distances too large, or too good
    counts: Mapping[str, int] = field(default_factory=dict)  # forward plus backward passes, by purpose

    def join(self, other: Trajectories) -> Self:
        """Add another's runs, with its flags and its cost."""
        joined = super().join(other)
        if not isinstance(other, Traces):
            return joined
        flags = tuple(dict.fromkeys(self.flags + other.flags))
        return replace(joined, flags=flags, counts=dict(Counter(self.counts) + Counter(other.counts)))


def trace(
    model: Callable[[Tensor], Tensor],
    images: Tensor,
    labels: Tensor,
    *,
    norm: str,
    runs: Sequence[str] | None = None,
    queries: int = MAX_QUERIES,
    pool: str = "paper",
    seed: int = 42,
    batch_size: int = 100,
    pack: int = 1,
    device: str | torch.device = "cpu",
    dtype: torch.dtype = torch.float32,
    solvers: Mapping[str, Solver] | None = None,
    progress: bool = False,
) -> Traces:
    """Run attacks against a model and record the best distance of each, per sample, every 10 queries.

    `model` maps images in [0, 1] to logits. `runs` names what to run (None: the whole `pool` of that norm), and
    `queries` says where each run stops: the first so many queries of its full schedule of 1000. Samples that are
    misclassified anyway have distance 0 and cost nothing; those that a run never breaks have inf. `pack` runs share a
    batch, which helps when there are few samples, at the price of bits that depend on it. `solvers` replaces the solver
    of an attack (`{"fmn": Fmn(alpha=1)}`).
    """
    images = check_data(images, labels)
    if queries % CHECKPOINT or not CHECKPOINT <= queries <= MAX_QUERIES:
        raise FrontierError(
            f"cannot stop after {queries} queries: expected a multiple of {CHECKPOINT} up to {MAX_QUERIES}"
        )
    for name, value in (("batch_size", batch_size), ("pack", pack)):
        if value < 1:
            raise FrontierError(f"{name} is {value}: expected at least 1")
    threat = get_norm(norm)
    named = None if runs is None else [Run.parse(run) for run in runs]
    gradients = named is None or any(check_run(run, threat.name).step_queries > 1 for run in named)
    ids = sample_ids(images.float().cpu().numpy())
    few = torch.linspace(0, len(images) - 1, min(_CHECKED, len(images))).long()
    with Oracle(model, device=device, dtype=dtype) as oracle:
        flags = check_model(oracle, images[few], labels[few], gradients=gradients)
        clean = clean_pass(oracle, images, labels, threat, batch_size=batch_size, gradients=gradients)
        members = named if named is not None else pool_of(threat.name, classes=clean.classes, name=pool)
        for run in members:
            check_run(run, threat.name, clean.classes)
        attacked = clean.correct.nonzero().squeeze(1)
        distances = np.zeros((len(members), queries // CHECKPOINT, len(images)))
        doubts: Counter[tuple[str, Run]] = Counter()
        work = Progress(queries * len(attacked) * len(members), unit="queries") if progress else Silent()
        with work:
            for rows in torch.split(attacked, batch_size):
                shard, samples = clean.rows(rows), rows.numpy()
                for first in range(0, len(members), pack):
                    units = [
                        start_unit(
                            oracle, run, images[rows], labels[rows], shard, norm=threat, seed=seed, ids=ids[samples],
                            solver=(solvers or {}).get(run.attack),
                        )
                        for run in members[first : first + pack]
                    ]  # fmt: skip
                    work.show(", ".join(str(unit.run) for unit in units))
                    advance(oracle, units, [queries] * len(units), tick=work.advance)
                    for offset, unit in enumerate(units):
                        distances[first + offset][:, samples] = unit.trajectory[: queries // CHECKPOINT].cpu().numpy()
                        doubts += _doubts(oracle, unit)
    flags += [f"{run}: {count} {what}" for (what, run), count in doubts.items()]
    return Traces(
        norm=threat.name,
        runs=tuple(str(run) for run in members),
        queries=np.arange(CHECKPOINT, queries + 1, CHECKPOINT),
        distances=distances,
        samples=_names(ids),
        flags=tuple(flags),
        counts=oracle.counts.as_dict(),
    )


def _doubts(oracle: Oracle, unit: Unit) -> Counter[tuple[str, Run]]:
    """Count the samples of a finished unit whose distance may be wrong, by reason."""
    steps = unit.queries // unit.solver.facts.step_queries
    held = verify(oracle, unit, batch_size=max(1, 2 * unit.rows // 3))
    samples = {
        "kept points were classified correctly in another batch": ~held,
        "samples had no gradient on most steps": 2 * unit.zero_gradients > steps,
        "samples had gradients that are not finite": unit.bad_gradients > 0,
    }
    return Counter({(what, unit.run): count for what, rows in samples.items() if (count := int(rows.sum()))})


def _names(ids: NDArray[np.uint64]) -> tuple[str, ...]:
    """The ids in hexadecimal; copies of one image are told apart by a number."""
    seen: Counter[int] = Counter()
    names = []
    for key in ids.tolist():
        seen[key] += 1
        names.append(f"{key:016x}" if seen[key] == 1 else f"{key:016x}-{seen[key]}")
    return tuple(names)
