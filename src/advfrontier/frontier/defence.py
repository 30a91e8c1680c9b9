"""Defence frontier and Defense Optimality Index (DOI): how close a model is to its pool's best.

    d_def(x) = max over models of d(x; f),   DOI(f) = AUREC(f) / AUREC_def,
    both up to E_def = the largest d_def

Areas are clipped means, so DOI(f) = mean(min(d, E_def)) / mean(d_def): 1 for a model that is the
most robust on every sample. Misclassified samples count 0, so clean accuracy enters. All models of
a pool share samples, norm and tier: another data set or another budget has another DOI. A model
whose distances cannot be trusted (samples never broken, masked gradients) would set a frontier
nobody can reach: it is ranked in brackets and kept out of the frontier.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike, NDArray

from advfrontier.errors import FrontierError
from advfrontier.flags import Flag, Kind, doubts
from advfrontier.frontier.curve import aurec, epsilon_min, never_broken
from advfrontier.frontier.measure import (
    Evaluated,
    Measure,
    as_pair,
    as_table,
    check_same_samples,
    unbroken_flag,
)
from advfrontier.pool import tier_label
from advfrontier.threat.names import norm_name


def defence_frontier(
    distances: Mapping[str, ArrayLike], *, flagged: Collection[str] = ()
) -> NDArray[np.float64]:
    """Return d_def, the largest distance of the pool's unflagged models per sample.

    Args:
        distances: Model to its distance per sample, (n,).
        flagged: Names of models that are left out.
    """
    names, table = as_table(distances)
    trusted = [name not in flagged for name in names]
    if not any(trusted):
        raise FrontierError(
            f"all {len(names)} models are flagged ({', '.join(names)}): expected at least one "
            "whose distances can be trusted; add other records, or type --reference fashion-mnist"
        )
    return np.asarray(table[trusted].max(axis=0), dtype=np.float64)


def doi(distances: ArrayLike, frontier: ArrayLike) -> Measure:
    """DOI of one model against the defence frontier of its pool.

    NaN where there is none: no run broke any sample of the model, or nobody in the pool classifies
    any correctly.

    Args:
        distances: Distance per sample, (n,): 0 where misclassified unperturbed, inf where never
            broken.
        frontier: Distance per sample of the defence frontier, (n,).
    """
    d, best = as_pair(distances, frontier)
    limit = epsilon_min(best).value
    flags = unbroken_flag(d)
    if never_broken(d):
        return Measure(math.nan, (*flags, "no run broke any sample, so there is no DOI"))
    if limit == 0:
        return Measure(
            math.nan,
            (*flags, "no model was broken on a sample it classifies correctly, so there is no DOI"),
        )
    if flags or np.isinf(best).any():
        flags += (f"distances are capped at E = {limit:g}",)
    if above := int((np.minimum(d, limit) > best).sum()):
        text = (
            f"the model is above the frontier on {above} samples, because it is not in the "
            "frontier's pool: the DOI may exceed 1"
        )
        flags += (text,)
    return Measure(aurec(d, E=limit).value / float(np.minimum(best, limit).mean()), flags)


@dataclass(frozen=True, eq=False)
class ReferencePool:
    """Models evaluated on the same samples, norm and tier, to rank a newcomer against.

    Args:
        norm: Name of the norm of the distances.
        dataset: Name of the data set.
        queries: Queries per sample of the tier.
        samples: Ids of the samples, (n,).
        distances: Model to its distance per sample, (n,).
        flags: Model to its flags.
    """

    norm: str
    dataset: str
    queries: int  # the tier all of them were evaluated with
    samples: tuple[str, ...]
    distances: Mapping[str, NDArray[np.float64]]
    flags: Mapping[str, tuple[Flag, ...]] = field(default_factory=dict)  # of the models' records

    def __post_init__(self) -> None:
        object.__setattr__(self, "norm", norm_name(self.norm))
        names, table = as_table(self.distances)
        object.__setattr__(self, "distances", dict(zip(names, table, strict=True)))
        if table.shape[1] != len(self.samples):
            raise FrontierError(
                f"{table.shape[1]} distances per model for {len(self.samples)} samples: expected "
                "one each"
            )
        self._check(*self.flags)

    @classmethod
    def of(
        cls, models: Sequence[Evaluated], *, reference: ReferencePool | None = None
    ) -> ReferencePool:
        """Join models evaluated on the same samples and tier, and a reference pool if given.

        Of the reference pool the models' samples are taken; one of its models that has the name of
        another gives way.

        Args:
            models: Evaluations of different models.
            reference: Pool to join them with, at the same queries.
        """
        first, names = models[0], [model.model.removeprefix("zoo:") for model in models]
        if twice := {name for name in names if names.count(name) > 1}:
            raise FrontierError(
                f"{' and '.join(sorted(twice))} comes more than once in {first.norm}: expected "
                "one record per model and norm; leave the others out, or evaluate another model "
                "under another --name (in Python: name=)"
            )
        for model in models[1:]:
            check_same_samples(
                model.samples, first.samples, names=(model.model, first.model), in_order=False
            )
        pool = reference or cls(
            first.norm, first.data, first.queries, first.samples, {first.model: first.distances}
        )
        for model in models:
            pool = pool.add(model)
        return pool

    @cached_property
    def flagged(self) -> dict[str, tuple[Flag, ...]]:
        """Return the models in doubt and the reasons: flags, or samples never broken."""
        flagged = {}
        for name, distances in self.distances.items():
            reasons = list(doubts(self.flags.get(name, ())))
            for text in unbroken_flag(distances):
                reasons.append(Flag(Kind.UNBROKEN, text))
            if reasons:
                flagged[name] = tuple(reasons)
        return flagged

    @cached_property
    def end(self) -> float:
        """Return the end of the defence frontier, up to which areas are taken."""
        return epsilon_min(self.frontier).value

    @cached_property
    def frontier(self) -> NDArray[np.float64]:
        """Return the defence frontier of the trusted models."""
        return defence_frontier(self.distances, flagged=self.flagged)

    def doi(self, model: str) -> Measure:
        """DOI of one of the models.

        Args:
            model: Name of a model of the pool.
        """
        self._check(model)
        return doi(self.distances[model], self.frontier)

    def only(self, models: Collection[str]) -> ReferencePool:
        """Return these models as a pool with its own frontier.

        Args:
            models: Names of models of the pool.
        """
        self._check(*models)
        return replace(
            self,
            distances={name: d for name, d in self.distances.items() if name in models},
            flags={name: reasons for name, reasons in self.flags.items() if name in models},
        )

    def on(self, samples: Sequence[str]) -> ReferencePool:
        """Return the pool on these of its samples, in this order.

        Args:
            samples: Ids of samples of the pool.
        """
        if tuple(samples) == self.samples:
            return self
        place = {sample: i for i, sample in enumerate(self.samples)}
        if missing := [sample for sample in samples if sample not in place]:
            raise FrontierError(
                f"{len(missing)} of {len(samples)} samples are not among the {len(self.samples)} "
                f"of the reference pool ({self.dataset}, {self.norm}): expected some of its "
                f"samples; type --data {self.dataset}"
            )
        rows = [place[sample] for sample in samples]
        return replace(
            self,
            samples=tuple(samples),
            distances={name: d[rows] for name, d in self.distances.items()},
        )

    def add(self, newcomer: Evaluated) -> ReferencePool:
        """Return the pool on the newcomer's samples, with the newcomer; no model is run again.

        A model of the pool that has the same name, or the name without `zoo:`, is the same one and
        gives way.

        Args:
            newcomer: Evaluation of a model on samples of the pool, at the same queries.
        """
        if newcomer.norm != self.norm:
            raise FrontierError(
                f"{newcomer.model} was evaluated in {newcomer.norm}, the pool in {self.norm}: "
                "there is no DOI across norms"
            )
        if newcomer.queries != self.queries:
            raise FrontierError(
                f"{newcomer.model} was evaluated with {tier_label(newcomer.queries)} queries, the "
                f"pool with {tier_label(self.queries)}: expected equal tiers; type `advfrontier "
                "extend` to bring the smaller one to "
                f"{tier_label(max(newcomer.queries, self.queries))}"
            )
        held = self.on(newcomer.samples)
        name = newcomer.model.removeprefix("zoo:")
        distances = {
            model: d for model, d in held.distances.items() if model.removeprefix("zoo:") != name
        }
        flags = {model: known for model, known in held.flags.items() if model in distances}
        distances[newcomer.model], flags[newcomer.model] = newcomer.distances, newcomer.flags
        return replace(held, distances=distances, flags=flags)

    def _check(self, *models: str) -> None:
        if unknown := [model for model in models if model not in self.distances]:
            raise FrontierError(
                f"no model {unknown[0]} in the pool: expected one of {', '.join(self.distances)}"
            )
