"""Races: which run each sample goes on with, from what has been found on that sample so far.

An ensemble gives every sample the same runs. A race gives every sample the same number of queries, but lets them go to
the runs that will end nearest: slices of 100 queries either try the next run of a learned order, or continue the run
whose final distance is predicted to be the smallest. The choice is a pure function of what has been seen, so a race
stopped anywhere can be extended without repeating a query, and every smaller budget is a prefix of a larger one.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import numpy as np
from pydantic import Field

from advfrontier.errors import FrontierError
from advfrontier.jsonable import jsonable
from advfrontier.pool.catalogue import CHECKPOINT, MAX_QUERIES, TARGETS, check_run
from advfrontier.pool.ensemble import TIERS, tier_label
from advfrontier.pool.runs import Run
from advfrontier.threat.names import norm_name
from advfrontier.toml import TomlTable, parse_toml, read_toml, toml_text

if TYPE_CHECKING:
    from collections.abc import Mapping
    from os import PathLike

    from numpy.typing import NDArray

RACE = "race"  # the name of the one unit that a race is on a shard
SLICE = 100  # queries between two choices
QUANTILES = 5  # of the distribution of how much nearer a run will end
_FAR = 1e30  # counts as the distance of a run that has found nothing yet

_Ratio = Annotated[float, Field(gt=0, le=1, allow_inf_nan=False)]


@dataclass(frozen=True)
class Race:
    """A policy: which runs are tried in which order, how much is tried, and how runs are expected to end."""

    name: str
    norm: str
    total: int  # queries per sample
    order: tuple[str, ...]  # runs in the order in which they are tried
    ratios: Mapping[str, tuple[tuple[float, ...], ...]]  # attack → after 1, 2, … slices, quantiles of d(1000)/d(q)
    first: int  # runs that are tried before any is continued
    share: float  # of the queries, for trying further runs
    flags: tuple[str, ...] = ()  # in words: what to know before trusting it

    def __post_init__(self) -> None:
        object.__setattr__(self, "norm", norm_name(self.norm))
        attacks = {Run.parse(run).attack: None for run in self.order}
        if not self.order or len(set(self.order)) < len(self.order):
            raise FrontierError(f"the order of race {self.name} is empty or names a run twice: expected each run once")
        for attack in attacks:
            lengths = [len(quantiles) for quantiles in self.ratios.get(attack, ())]
            if lengths != [QUANTILES] * (MAX_QUERIES // SLICE - 1):
                raise FrontierError(
                    f"race {self.name} has {lengths} ratios of {attack}: expected {QUANTILES} quantiles after each "
                    f"slice of {SLICE} queries but the last"
                )
        if not 0 < self.total <= self.most or self.total % CHECKPOINT:
            raise FrontierError(
                f"race {self.name} has {self.total} queries per sample: expected a multiple of {CHECKPOINT} up to "
                f"{self.most}, what its {len(self.order)} runs can spend"
            )

    @property
    def most(self) -> int:
        """Queries per sample that its runs can spend."""
        return MAX_QUERIES * len(self.order)

    # What it shares with an ensemble

    @property
    def queries(self) -> dict[str, int]:
        """The one unit that a race is, with its queries per sample."""
        return {RACE: self.total}

    @property
    def runs(self) -> tuple[str, ...]:
        """The runs that may take part."""
        return self.order

    @property
    def tiers(self) -> tuple[int, ...]:
        """The budgets it can be read at: the named ones below its own, and its own."""
        return (*(tier for tier in TIERS if tier < self.total), self.total)

    def at(self, budget: int) -> Race:
        """The race after `budget` queries per sample, or as many as make whole checkpoints."""
        total = min(budget // CHECKPOINT * CHECKPOINT, self.total)
        return self if total == self.total else replace(self, name=_named(self.name, total), total=total)

    def for_classes(self, classes: int) -> Race:
        """Without the targets that a model with so few classes does not have: their queries go to the other runs."""
        kept = tuple(run for run in self.order if Run.parse(run).variant != "target" or Run.parse(run).index < classes)
        total = min(self.total, MAX_QUERIES * len(kept))
        return self if kept == self.order else replace(self, order=kept, total=total)

    def check(self, *, classes: int = TARGETS + 1) -> None:
        """Refuse runs that do not exist in this norm."""
        for run in self.order:
            check_run(Run.parse(run), self.norm, classes)

    # The policy

    @cached_property
    def _falls(self) -> NDArray[np.float64]:
        """(run, slices done, quantile) → log d(1000)/d(q); 0 where nothing is left to spend."""
        end = ((1.0,) * QUANTILES,)
        return np.log([(*end, *self.ratios[Run.parse(run).attack], *end) for run in self.order])

    def choose(self, spent: NDArray[np.int64], found: NDArray[np.float64]) -> NDArray[np.intp]:
        """The run, by its place in the order, that each sample goes on with.

        Args:
            spent: (sample, run) queries so far. Every sample has spent the same in all, and less than there is.
            found: (sample, run) the nearest distance of each run so far; inf where there is none.
        """
        going = (spent > 0) & (spent < MAX_QUERIES)
        tried, total = (spent > 0).sum(1), spent.sum(1)
        more = (tried - self.first) * SLICE < self.share * total
        trying = (tried < len(self.order)) & ((tried < self.first) | more | ~going.any(1))
        # Runs are tried in order: the next one's place is how many were tried.
        chosen = np.where(trying, tried, self._most_promising(spent, found, going))
        cut = going & (spent % SLICE > 0)  # a slice that a smaller budget has cut is finished first
        return np.asarray(np.where(cut.any(1), cut.argmax(1), chosen), dtype=np.intp)

    def _most_promising(
        self, spent: NDArray[np.int64], found: NDArray[np.float64], going: NDArray[np.bool_]
    ) -> NDArray[np.intp]:
        """Of the runs under way, the one to gain most per query still to spend: by how much it is expected to beat the
        nearest distance so far, on the logarithm. Where none is, the one that is expected to end nearest."""
        distance = np.log(np.clip(found, 1 / _FAR, _FAR))
        places = np.arange(len(self.order))
        ends = distance[:, :, None] + self._falls[places, spent // SLICE]
        gain = np.maximum(distance.min(1)[:, None, None] - ends, 0).mean(2) / np.maximum(MAX_QUERIES - spent, SLICE)
        return np.asarray(np.where(going, gain - 1e-9 * np.median(ends, axis=2), -np.inf).argmax(1), dtype=np.intp)

    # Its file

    def to_toml(self) -> str:
        """Write as TOML."""
        lines = [f"name = {toml_text(self.name)}", f"norm = {toml_text(self.norm)}", f"total = {self.total}"]
        lines += [f"flags = [{', '.join(toml_text(flag) for flag in self.flags)}]"] if self.flags else []
        lines += [f"first = {self.first}", f"share = {self.share!r}", "order = ["]
        lines += [*(f"    {toml_text(run)}," for run in self.order), "]", "", "[ratios]"]
        for attack, slices in self.ratios.items():
            rows = ("    [" + ", ".join(f"{ratio:g}" for ratio in quantiles) + "]," for quantiles in slices)
            lines += [f"{toml_text(attack)} = [", *rows, "]"]
        return "\n".join(lines) + "\n"

    @classmethod
    def from_toml(cls, text: str | bytes) -> Race:
        """Read what `to_toml` wrote."""
        return parse_toml(RaceFile, text, "race").race()

    def save(self, path: str | PathLike[str]) -> None:
        """Write the TOML file."""
        Path(path).write_text(self.to_toml(), encoding="utf-8")

    @classmethod
    def load(cls, path: str | PathLike[str]) -> Race:
        """Read a TOML file and check that what it describes can be run."""
        race = read_toml(RaceFile, path).race()
        race.check()
        return race


class RaceFile(TomlTable):
    """A race as files and records hold it."""

    hint = "`advfrontier allocate --race` writes such files"

    name: str
    norm: str
    total: Annotated[int, Field(strict=True, gt=0, lt=2**31)]
    order: Annotated[list[str], Field(max_length=10_000)]
    ratios: dict[str, list[list[_Ratio]]]
    first: Annotated[int, Field(strict=True, ge=1, lt=2**31)]
    share: Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]
    flags: tuple[str, ...] | list[str] = ()

    @classmethod
    def of(cls, race: Race) -> RaceFile:
        """The stored form of a race."""
        return cls.model_validate(jsonable({name: getattr(race, name) for name in cls.model_fields}))

    def race(self) -> Race:
        """The race."""
        values = {name: getattr(self, name) for name in type(self).model_fields}
        ratios = {attack: tuple(map(tuple, slices)) for attack, slices in self.ratios.items()}
        return Race(**values | {"order": tuple(self.order), "flags": tuple(self.flags), "ratios": ratios})


def _named(name: str, total: int) -> str:
    """`race-12k` at 4000 queries is `race-4k`."""
    stem, _, tier = name.rpartition("-")
    return f"{stem if stem and tier[:1].isdigit() else name}-{tier_label(total)}"
