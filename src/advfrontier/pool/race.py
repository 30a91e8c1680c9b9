"""Races: every sample spends the same number of queries, but on its own choice of runs.

A race is an order of moves, like an ensemble's but longer than any budget. Each sample walks along it and leaves out
the moves that cannot help there: a run that, even if it ends as much nearer as such runs hardly ever do, will not beat
what was found already; and a run not begun yet whose attack is as far behind. The queries saved take the sample further
along the order. From time to time all samples polish: short runs start at the nearest point that was found, or beyond
it. The choice is a pure function of what has been seen, so a race stopped anywhere can be extended without repeating a
query, and every smaller budget is a prefix of a larger one.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import numpy as np
from pydantic import Field

from advfrontier.errors import FrontierError
from advfrontier.pool.catalogue import CHECKPOINT, MAX_QUERIES, TARGETS, check_run
from advfrontier.pool.ensemble import TIERS, beyond, solvers_lines, tier_name
from advfrontier.pool.polish import SLICE, Polish, PolishFile, Turn, toml_lines
from advfrontier.pool.runs import Run
from advfrontier.threat.names import norm_name
from advfrontier.toml import TomlTable, parse_toml, read_toml, toml_text
from advfrontier.views import Shown

if TYPE_CHECKING:
    from collections.abc import Mapping
    from os import PathLike

    from numpy.typing import NDArray

RACE = "race"  # the name of the one unit that a race is on a shard
_FAR = 1e30  # counts as the distance of a run that has found nothing yet

_Ratio = Annotated[float, Field(gt=0, le=1, allow_inf_nan=False)]


@dataclass(frozen=True, repr=False)
class Race(Shown):
    """An order of moves, and how much nearer each attack may still end: what a sample needs to choose its runs."""

    name: str
    norm: str
    total: int  # queries per sample
    order: tuple[tuple[str, int], ...]  # moves: a run, and the queries it is raised to
    hopes: Mapping[str, tuple[float, ...]]  # attack → after 0, 1, … slices, the least d(1000)/d(q) to reckon with
    flags: tuple[str, ...] = ()  # in words: what to know before trusting it
    # attack → the parameters with which it was traced, such as `alpha=1.0`, where they are not its solver's own
    solvers: Mapping[str, str] = field(default_factory=dict, hash=False)
    polish: Polish | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "norm", norm_name(self.norm))
        reached: dict[str, int] = {}
        for run, queries in self.order:
            if queries % SLICE or not reached.get(run, 0) < queries <= MAX_QUERIES:
                raise FrontierError(
                    f"race {self.name} raises {run} from {reached.get(run, 0)} to {queries} queries: expected a rise "
                    f"to a multiple of {SLICE}, {MAX_QUERIES} at most"
                )
            reached[run] = queries
        for run in reached:
            attack, expected = Run.parse(run).attack, MAX_QUERIES // SLICE
            if (known := len(self.hopes.get(attack, ()))) != expected:
                raise FrontierError(
                    f"race {self.name} has {known} hopes of {attack}: expected {expected}, one before each slice of "
                    f"{SLICE} queries"
                )
        if not 0 < self.total <= self.most or self.total % CHECKPOINT:
            raise FrontierError(
                f"race {self.name} has {self.total} queries per sample: expected a multiple of {CHECKPOINT} up to "
                f"{self.most}, what its {len(self.runs)} runs can spend"
            )

    def __repr__(self) -> str:
        return f"<Race {self.name} in {self.norm}, {self.total} queries per sample among {len(self.runs)} runs>"

    @cached_property
    def runs(self) -> tuple[str, ...]:
        """The runs that may take part, in the order in which they are first tried."""
        return tuple(dict.fromkeys(run for run, _ in self.order))

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The runs, and those that polish: whatever queries may go to."""
        turns = () if self.polish is None else self.polish.turns
        return (*self.runs, *dict.fromkeys(turn.run for turn in turns))

    @property
    def most(self) -> float:
        """Queries per sample that its runs can spend; inf if they polish without end."""
        endless = self.polish is not None and self.polish.queries == self.polish.every
        return math.inf if endless else MAX_QUERIES * len(self.runs)

    # What it shares with an ensemble

    @property
    def queries(self) -> dict[str, int]:
        """The one unit that a race is, with its queries per sample."""
        return {RACE: self.total}

    @property
    def tiers(self) -> tuple[int, ...]:
        """The budgets it can be read at: the named ones below its own, and its own."""
        return (*(tier for tier in TIERS if tier < self.total), self.total)

    def at(self, budget: int) -> Race:
        """The race after `budget` queries per sample, or as many as make whole checkpoints."""
        total = min(budget // CHECKPOINT * CHECKPOINT, self.total)
        return self if total == self.total else replace(self, name=tier_name(self.name, total), total=total)

    def upto(self, budget: int) -> Race:
        """The same race with more queries per sample."""
        return replace(self, name=tier_name(self.name, budget), total=budget // CHECKPOINT * CHECKPOINT)

    def for_classes(self, classes: int) -> Race:
        """Without the targets that a model with so few classes does not have: their queries go to the other runs."""
        kept = tuple(move for move in self.order if not beyond(Run.parse(move[0]), classes))
        if kept == self.order:
            return self
        return replace(self, order=kept, total=min(self.total, MAX_QUERIES * len({run for run, _ in kept})))

    @cached_property
    def _black_box(self) -> str | None:
        """The base run of its first attack that uses no gradient."""
        attacks = (Run.parse(run).base for run in self.runs)
        return next((str(run) for run in attacks if check_run(run, self.norm).step_queries == 1), None)

    def without_gradients(self) -> Race | None:
        """A race of its first black-box attack, whose base run goes on from what it has found; None if it has none.

        Where nothing else can be run, four restarts of 1000 queries end farther than one search of 4000: by a third in
        ℓ2 and a tenth in ℓ∞ on the zoo's F16, by its logits alone.
        """
        if (base := self._black_box) is None:
            return None
        polish = Polish((Turn(base, MAX_QUERIES),), MAX_QUERIES, first=MAX_QUERIES // 2)
        return replace(self, order=((base, MAX_QUERIES),), hopes={base: self.hopes[base]}, polish=polish)

    def with_surrogates(self) -> Race:
        """The same race where gradients are surrogate ones; in ℓ0 and ℓ∞ a search without any polishes in it.

        There a point is as good as the choice of features at the end of their way, and near a jump of the model no
        gradient tells on which side a feature is. In ℓ1 and ℓ2 the race's own polishing ends nearer.
        """
        if self.norm in ("L1", "L2") or self._black_box is None:
            return self
        return replace(self, polish=Polish((Turn(self._black_box, 500),), 2000))

    def check(self, *, classes: int = TARGETS + 1) -> None:
        """Refuse runs that do not exist in this norm."""
        turns = () if self.polish is None else self.polish.turns
        for run in (*self.runs, *(turn.attack for turn in turns)):
            check_run(Run.parse(run), self.norm, classes)

    # The policy

    def turn(self, queries: int) -> tuple[Turn, int] | None:
        """Which run polishes after so many queries of the whole race, and what it has spent; None if none does."""
        return None if self.polish is None else self.polish.at(queries)

    @cached_property
    def _attacks(self) -> NDArray[np.intp]:
        """(run,) → a number for its attack."""
        return np.unique([Run.parse(run).attack for run in self.runs], return_inverse=True)[1]

    @cached_property
    def _hopes(self) -> NDArray[np.float64]:
        """(run, slices done) → the least d(1000)/d(q) to reckon with; 1 where nothing is left to spend."""
        return np.array([(*self.hopes[Run.parse(run).attack], 1.0) for run in self.runs])

    @cached_property
    def _slices(self) -> tuple[NDArray[np.intp], NDArray[np.int64]]:
        """The order cut into slices: the run of each, and the queries it has spent before."""
        place, reached = {run: k for k, run in enumerate(self.runs)}, dict.fromkeys(self.runs, 0)
        runs, before = [], []
        for run, queries in self.order:
            for spent in range(reached[run], queries, SLICE):
                runs.append(place[run])
                before.append(spent)
            reached[run] = queries
        return np.array(runs, dtype=np.intp), np.array(before, dtype=np.int64)

    def choice(
        self, queries: int, spent: NDArray[np.int64], found: NDArray[np.float64]
    ) -> tuple[NDArray[np.intp], NDArray[np.int64]]:
        """What each sample goes on with after so many queries, by its place among `names`, and what that has spent.

        Args:
            queries: Of the whole race, per sample.
            spent: (sample, name) queries so far.
            found: (sample, name) the nearest distance of each so far; inf where there is none.
        """
        rows = np.arange(len(spent))
        if (now := self.turn(queries)) is not None:
            turn, before = now
            return np.full(len(rows), self.names.index(turn.run)), np.full(len(rows), before)
        runs = len(self.runs)
        chosen = self.choose(spent[:, :runs], found[:, :runs])
        return chosen, spent[rows, chosen]

    def choose(self, spent: NDArray[np.int64], found: NDArray[np.float64]) -> NDArray[np.intp]:
        """The run, by its place among `runs`, that each sample goes on with.

        Args:
            spent: (sample, run) queries so far. Every sample has spent the same in all, and less than there is.
            found: (sample, run) the nearest distance of each run so far; inf where there is none.
        """
        begun, left = spent > 0, spent < MAX_QUERIES
        may_end = self._may_end(spent, found)
        hopeful = left & (may_end < found.min(1)[:, None])
        runs, before = self._slices
        next_up = hopeful[:, runs] & (spent[:, runs] == before)
        # Where nothing on the order is left, or nothing has hope, the run that may end nearest goes on.
        nearest = np.where(left, may_end, np.inf).argmin(1)
        chosen = np.where(next_up.any(1), runs[next_up.argmax(1)], nearest)
        cut = begun & (spent % SLICE > 0)  # a slice that a smaller budget has cut is finished first
        return np.asarray(np.where(cut.any(1), cut.argmax(1), chosen), dtype=np.intp)

    def _may_end(self, spent: NDArray[np.int64], found: NDArray[np.float64]) -> NDArray[np.float64]:
        """How near each run may come: one not begun is judged by the nearest of its attack, or may come anywhere."""
        known = np.where(spent > 0, np.minimum(found, _FAR), np.inf)
        for attack in np.unique(self._attacks):
            own = np.flatnonzero(self._attacks == attack)
            tried = known[:, own].min(1)
            known[:, own] = np.where(spent[:, own] > 0, known[:, own], np.where(tried < np.inf, tried, 0.0)[:, None])
        return known * self._hopes[np.arange(len(self.runs)), spent // SLICE]

    # Its file

    def to_toml(self) -> str:
        """Write as TOML."""
        lines = [f"name = {toml_text(self.name)}", f"norm = {toml_text(self.norm)}", f"total = {self.total}"]
        lines += [f"flags = [{', '.join(toml_text(flag) for flag in self.flags)}]"] if self.flags else []
        lines += solvers_lines(self.solvers)
        moves = (f"    {{ run = {toml_text(run)}, queries = {queries} }}," for run, queries in self.order)
        lines += ["order = [", *moves, "]", ""]
        lines += [] if self.polish is None else [*toml_lines(self.polish), ""]
        lines.append("[hopes]")
        lines += [f"{toml_text(attack)} = [{', '.join(map(repr, hopes))}]" for attack, hopes in self.hopes.items()]
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


class _Raise(TomlTable):
    """A move in a file."""

    run: str
    queries: Annotated[int, Field(strict=True, gt=0, le=MAX_QUERIES)]


class RaceFile(TomlTable):
    """A race as files and records hold it."""

    hint = "`advfrontier allocate --race` writes such files"

    name: str
    norm: str
    total: Annotated[int, Field(strict=True, gt=0, lt=2**31)]
    order: Annotated[list[_Raise], Field(min_length=1, max_length=100_000)]
    hopes: dict[str, list[_Ratio]]
    flags: tuple[str, ...] | list[str] = ()
    solvers: dict[str, str] = Field(default_factory=dict)
    polish: PolishFile | None = None

    @classmethod
    def of(cls, race: Race) -> RaceFile:
        """The stored form of a race."""
        return cls(
            name=race.name,
            norm=race.norm,
            total=race.total,
            order=[_Raise(run=run, queries=queries) for run, queries in race.order],
            hopes={attack: list(hopes) for attack, hopes in race.hopes.items()},
            flags=list(race.flags),
            solvers=dict(race.solvers),
            polish=None if race.polish is None else PolishFile.of(race.polish),
        )

    def race(self) -> Race:
        """The race."""
        order = tuple((move.run, move.queries) for move in self.order)
        hopes = {attack: tuple(values) for attack, values in self.hopes.items()}
        polish = None if self.polish is None else self.polish.polish()
        return Race(self.name, self.norm, self.total, order, hopes, tuple(self.flags), self.solvers, polish)
