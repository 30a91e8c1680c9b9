"""Defence frontier and Defense Optimality Index (DOI): how close a model comes to the best of its pool on every sample.

    d_def(x) = max over models of d(x; f),   DOI(f) = AUREC(f) / AUREC_def, both up to E_def = the largest d_def

Areas are clipped means, so DOI(f) = mean(min(d, E_def)) / mean(d_def): 1 for a model that is the most robust on every
sample. Misclassified samples count 0, so clean accuracy enters. All models of a pool share samples, norm and tier:
another data set or another budget has another DOI. A model whose distances cannot be trusted (samples never broken,
masked gradients) would set a frontier nobody can reach: it is ranked in brackets and kept out of the frontier.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np

from advfrontier.errors import FrontierError
from advfrontier.frontier.curve import aurec, check_limit, epsilon_min
from advfrontier.frontier.measure import (
    Measure,
    as_distances,
    as_pair,
    as_table,
    check_same_samples,
    ranks_among,
    unbroken_flag,
)
from advfrontier.threat.names import norm_name

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from numpy.typing import ArrayLike, NDArray


def defence_frontier(distances: Mapping[str, ArrayLike], *, flagged: Collection[str] = ()) -> NDArray[np.float64]:
    """d_def: the largest distance any model of the pool has, per sample, flagged models left out."""
    names, table = as_table(distances)
    trusted = [name not in flagged for name in names]
    if not any(trusted):
        raise FrontierError(
            f"all {len(names)} models are flagged: expected at least one whose distances can be trusted"
        )
    return np.asarray(table[trusted].max(axis=0), dtype=np.float64)


def doi(distances: ArrayLike, frontier: ArrayLike, *, E: float | None = None) -> Measure:
    """DOI of one model against the defence frontier of its pool; E is E_def unless given."""
    d, best = as_pair(distances, frontier)
    limit = epsilon_min(best).value if E is None else check_limit(E)
    flags = unbroken_flag(d)
    if flags or np.isinf(best).any():
        flags += (f"distances are capped at E = {limit:g}",)
    if above := int((np.minimum(d, limit) > best).sum()):
        flags += (f"the model is above the frontier on {above} samples, which it is no part of: the DOI may pass 1",)
    whole = aurec(best, E=limit).value
    if whole == 0:
        return Measure(
            1.0, (*flags, "no model classifies any sample correctly, so all are on the frontier: DOI set to 1")
        )
    return Measure(aurec(d, E=limit).value / whole, flags)


@dataclass(frozen=True)
class Ranked:
    """One line of a rank table. A bracketed model has the rank it would have, and takes nobody's."""

    rank: int
    model: str
    doi: Measure
    aurec: float
    bracketed: bool

    @property
    def position(self) -> str:
        """The rank as printed: `3`, or `(3)` for a flagged model."""
        return f"({self.rank})" if self.bracketed else str(self.rank)


@dataclass(frozen=True, eq=False)
class ReferencePool:
    """Models evaluated on the same samples, in one norm, with the same tier: what a newcomer is ranked against."""

    norm: str
    dataset: str
    queries: int  # the tier all of them were evaluated with
    samples: tuple[str, ...]
    distances: Mapping[str, NDArray[np.float64]]
    flags: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # why a model's distances cannot be trusted

    def __post_init__(self) -> None:
        object.__setattr__(self, "norm", norm_name(self.norm))
        _, table = as_table(self.distances)
        if table.shape[1] != len(self.samples):
            raise FrontierError(
                f"{table.shape[1]} distances per model for {len(self.samples)} samples: expected one each"
            )
        if unknown := set(self.flags) - set(self.distances):
            raise FrontierError(
                f"flags for {', '.join(sorted(unknown))}, which the pool does not hold: expected some of "
                f"{', '.join(self.distances)}"
            )

    @property
    def flagged(self) -> dict[str, tuple[str, ...]]:
        """The models kept out of the frontier, and why: those flagged by hand and those with samples never broken."""
        why = {name: (*self.flags.get(name, ()), *unbroken_flag(as_distances(d))) for name, d in self.distances.items()}
        return {name: reasons for name, reasons in why.items() if reasons}

    def frontier(self) -> NDArray[np.float64]:
        """The defence frontier of the trusted models."""
        return defence_frontier(self.distances, flagged=self.flagged)

    def doi(self, model: str) -> Measure:
        """DOI of one of the models."""
        if model not in self.distances:
            raise FrontierError(f"no model {model} in the pool: expected one of {', '.join(self.distances)}")
        measure = doi(self.distances[model], self.frontier())
        return Measure(measure.value, tuple(dict.fromkeys((*self.flags.get(model, ()), *measure.flags))))

    def only(self, models: Collection[str]) -> ReferencePool:
        """These models as a pool of their own, with a frontier of their own."""
        if unknown := [model for model in models if model not in self.distances]:
            raise FrontierError(f"no model {unknown[0]} in the pool: expected some of {', '.join(self.distances)}")
        return replace(
            self,
            distances={name: d for name, d in self.distances.items() if name in models},
            flags={name: reasons for name, reasons in self.flags.items() if name in models},
        )

    def add(
        self,
        model: str,
        distances: ArrayLike,
        *,
        samples: Sequence[str],
        norm: str,
        queries: int,
        flags: tuple[str, ...] = (),
    ) -> ReferencePool:
        """The pool with a newcomer, whose frontier is the maximum of both: nobody else is run again."""
        if model in self.distances:
            raise FrontierError(f"the pool holds a model {model} already: expected another name")
        if norm_name(norm) != self.norm:
            raise FrontierError(
                f"{model} was evaluated in {norm}, the pool in {self.norm}: there is no DOI across norms"
            )
        if queries != self.queries:
            raise FrontierError(
                f"{model} was evaluated with {queries} queries, the pool with {self.queries}: expected equal tiers; "
                f"type `advfrontier extend` to bring the smaller one to {max(queries, self.queries)}"
            )
        check_same_samples(self.samples, samples, names=("the pool", model))
        return replace(
            self,
            distances={**self.distances, model: as_distances(distances, what=f"distances of {model}")},
            flags={**self.flags, model: flags} if flags else self.flags,
        )

    def rank(self) -> tuple[Ranked, ...]:
        """All models by DOI, best first; equal DOIs share the better rank."""
        flagged = self.flagged
        limit = epsilon_min(self.frontier()).value
        measures = {name: self.doi(name) for name in self.distances}
        ranks = ranks_among(
            np.array([measure.value for measure in measures.values()]), [name not in flagged for name in measures]
        )
        table = [
            Ranked(int(rank), name, measure, aurec(self.distances[name], E=limit).value, name in flagged)
            for (name, measure), rank in zip(measures.items(), ranks, strict=True)
        ]
        return tuple(sorted(table, key=lambda row: (-row.doi.value, row.model)))
