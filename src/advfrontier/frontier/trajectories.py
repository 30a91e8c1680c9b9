"""Trajectories: the best distance of each run on each sample, against queries spent."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from advfrontier.errors import FrontierError
from advfrontier.frontier.measure import check_same_samples, check_same_settings
from advfrontier.threat.names import norm_name


@dataclass(frozen=True, eq=False)
class Trajectories:
    """Distances of one model by (run, checkpoint, sample), all runs on the same samples.

    Args:
        runs: Names of the runs.
        queries: Checkpoints, (checkpoints,).
        distances: Best distances so far, (runs, checkpoints, samples).
        samples: Ids of the samples, (n,).
        norm: Name of the norm of the distances.
        solvers: Attack to its settings.
    """

    runs: tuple[str, ...]
    queries: NDArray[np.int64]  # the checkpoints, increasing: 10, 20, … 1000
    distances: NDArray[np.float64]  # (run, checkpoint, sample), never rising along a trajectory
    samples: tuple[str, ...]  # content ids
    norm: str
    # attack → its solver's parameters, such as `alpha=1.0`, where they are not its own
    solvers: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        object.__setattr__(self, "runs", tuple(self.runs))
        own = _attacks(self.runs)
        object.__setattr__(
            self,
            "solvers",
            {attack: self.solvers[attack] for attack in self.solvers if attack in own},
        )
        object.__setattr__(self, "samples", tuple(self.samples))
        object.__setattr__(self, "queries", np.asarray(self.queries, dtype=np.int64))
        object.__setattr__(self, "distances", np.asarray(self.distances, dtype=np.float64))
        object.__setattr__(self, "norm", norm_name(self.norm))
        self._check()

    def _check(self) -> None:
        for what, names in (("run", self.runs), ("sample", self.samples)):
            if not names:
                raise FrontierError(
                    f"trajectories without a {what}: expected the names of at least one"
                )
            if len(set(names)) < len(names):
                twice = next(name for name in names if names.count(name) > 1)
                raise FrontierError(
                    f"{what} {twice} appears more than once: expected each {what} once"
                )
        q = self.queries
        if q.ndim != 1 or q.size == 0 or q[0] < 1 or (np.diff(q) <= 0).any():
            raise FrontierError(
                f"checkpoints {q.tolist()[:8]}: expected increasing numbers of queries such as 10, "
                "20, … 1000"
            )
        d, expected = self.distances, (len(self.runs), self.queries.size, len(self.samples))
        if d.shape != expected:
            raise FrontierError(
                f"distances have shape {d.shape}: expected (run, checkpoint, sample) = {expected}"
            )
        if not (d.min() >= 0):  # false for NaN too
            raise FrontierError(
                "distances hold negative values or NaN: expected 0, a positive distance or inf"
            )
        if (d[:, 1:] > d[:, :-1]).any():
            raise FrontierError(
                "distances rise along a trajectory: expected the best so far; type "
                "Trajectories.best_so_far(…)"
            )

    @classmethod
    def best_so_far(
        cls,
        runs: Sequence[str],
        queries: Sequence[int],
        distances: ArrayLike,
        samples: Sequence[str],
        norm: str,
    ) -> Self:
        """Make trajectories from the distances at each checkpoint, better or worse than before.

        Args:
            runs: Names of the runs.
            queries: Checkpoints, rising, (checkpoints,).
            distances: (runs, checkpoints, samples), the distances found up to each checkpoint.
            samples: Ids of the samples.
            norm: Name of the norm of the distances.
        """
        best = np.minimum.accumulate(np.asarray(distances, dtype=np.float64), axis=1)
        return cls(tuple(runs), np.asarray(queries, dtype=np.int64), best, tuple(samples), norm)

    def at(self, queries: int | Mapping[str, int]) -> NDArray[np.float64]:
        """Return distances (run, sample) after `queries`, one number or one per run name.

        Runs without queries have found nothing: inf, except where another run shows the sample
        misclassified unperturbed.

        Args:
            queries: Queries per run: one of the checkpoints, or run to checkpoint.
        """
        wanted = queries if isinstance(queries, Mapping) else dict.fromkeys(self.runs, int(queries))
        spent = np.zeros(len(self.runs), dtype=np.int64)
        spent[self._places("run", self.runs, wanted)] = list(wanted.values())
        if outside := [q for q in spent.tolist() if not 0 <= q <= self.queries[-1]]:
            raise FrontierError(
                f"{outside[0]} queries asked for: expected between 0 and the last checkpoint, "
                f"{self.queries[-1]}"
            )
        where = (
            np.searchsorted(self.queries, spent, side="right") - 1
        )  # what was known by the last checkpoint passed
        found = self.distances[np.arange(len(self.runs)), where]
        found[where < 0] = np.where(self.misclassified, 0.0, np.inf)
        return found

    def best(self, queries: int | Mapping[str, int]) -> NDArray[np.float64]:
        """Return the least distance per sample over all runs after `queries`.

        Args:
            queries: Queries per run: one of the checkpoints, or run to checkpoint.
        """
        return np.asarray(self.at(queries).min(axis=0), dtype=np.float64)

    def frontier(self) -> NDArray[np.float64]:
        """Return the attack frontier d*: the least distance per sample over all whole runs."""
        return np.asarray(self.distances[:, -1].min(axis=0), dtype=np.float64)

    @property
    def misclassified(self) -> NDArray[np.bool_]:
        """Return the samples that need no perturbation."""
        return np.asarray(self.frontier() == 0)

    def select(
        self, *, runs: Sequence[str] | None = None, samples: Sequence[str] | None = None
    ) -> Self:
        """Keep these runs and these samples, in this order.

        Args:
            runs: Names of runs; None for all.
            samples: Ids of samples; None for all.
        """
        rows = self._places("run", self.runs, self.runs if runs is None else runs)
        columns = self._places("sample", self.samples, self.samples if samples is None else samples)
        return replace(
            self,
            runs=tuple(self.runs[i] for i in rows),
            samples=tuple(self.samples[i] for i in columns),
            distances=self.distances[np.ix_(rows, range(self.queries.size), columns)],
        )

    def thin(self, queries: Sequence[int]) -> Self:
        """Keep these checkpoints only.

        Args:
            queries: Checkpoints to keep.
        """
        where = self.places(queries)
        return replace(self, queries=self.queries[where], distances=self.distances[:, where])

    def places(self, queries: Sequence[int]) -> NDArray[np.intp]:
        """Return the indices of these checkpoints.

        Args:
            queries: Checkpoints to look up.
        """
        where = np.searchsorted(self.queries, queries)
        if (where >= self.queries.size).any() or (self.queries[where] != np.asarray(queries)).any():
            missing = sorted(set(queries) - set(self.queries.tolist()))
            few = ", ".join(str(q) for q in self.queries[:3])
            raise FrontierError(
                f"no checkpoint at {missing}: expected some of {few}, … {self.queries[-1]}"
            )
        return np.asarray(where, dtype=np.intp)

    def join(self, other: Trajectories) -> Self:
        """Add another's runs, traced in the same norm on the same samples (in any order).

        Args:
            other: Trajectories in the same norm, on the same samples.
        """
        if self.norm != other.norm:
            raise FrontierError(
                f"trajectories in {self.norm} and in {other.norm}: expected the same norm"
            )
        check_same_samples(
            self.samples, other.samples, names=("these trajectories", "the others"), in_order=False
        )
        if not np.array_equal(self.queries, other.queries):
            raise FrontierError(
                "checkpoints differ: expected the same; type .thin(…) on both to keep the common "
                "ones"
            )
        shared = _attacks(self.runs) & _attacks(other.runs)
        check_same_settings(
            self.solvers, other.solvers, names=("these trajectories", "the others"), attacks=shared
        )
        distances = np.concatenate((self.distances, other.select(samples=self.samples).distances))
        solvers = {**self.solvers, **other.solvers}
        return replace(self, runs=self.runs + other.runs, distances=distances, solvers=solvers)

    @staticmethod
    def _places(what: str, have: Sequence[str], wanted: Collection[str]) -> list[int]:
        place = {name: i for i, name in enumerate(have)}
        if missing := [name for name in wanted if name not in place]:
            raise FrontierError(
                f"no {what} {missing[0]} in these trajectories ({len(missing)} of {len(wanted)} "
                "are missing)"
            )
        return [place[name] for name in wanted]


def _attacks(runs: Iterable[str]) -> set[str]:
    return {run.partition(":")[0] for run in runs}
