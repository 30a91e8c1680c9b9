"""Ensembles: how many queries each run may spend, and in which order the queries were given out.

An ensemble is an ordered list of moves. A move raises one run to a number of queries, or several at once where the
rules C would not allow one alone. Because the order is kept, every smaller budget is a prefix: an ensemble made for
12k holds its own 8k and 4k and everything between, and an evaluation stopped anywhere can be extended without
repeating a query.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from advfrontier.errors import FrontierError
from advfrontier.pool.catalogue import CHECKPOINT, MAX_QUERIES, TARGETS, check_run
from advfrontier.pool.runs import Run, violations
from advfrontier.threat.names import norm_name
from advfrontier.toml import TomlTable, parse_toml, read_toml, shown, toml_text
from advfrontier.views import Shown

if TYPE_CHECKING:
    from collections.abc import Mapping
    from os import PathLike

TIERS = (4000, 8000, 12000)  # the paper's 4k, 8k and 12k

# Types of the file's values
_Queries = Annotated[int, Field(strict=True, gt=0, lt=2**31)]
_Share = Annotated[float, Field(strict=True, ge=0, allow_inf_nan=False)]


@dataclass(frozen=True)
class Move:
    """Runs raised together, those others depend on first, each to a number of queries, while the budget was `tier`."""

    raises: tuple[tuple[str, int], ...]
    tier: int


@dataclass(frozen=True)
class Ensemble(Shown):
    """Queries per run as an order of moves; where known, the AOI reached and the bound no allocation can pass."""

    name: str
    norm: str
    moves: tuple[Move, ...]
    aoi: float | None = None
    bound: float | None = None
    flags: tuple[str, ...] = ()  # in words: what to know before trusting the AOI
    # attack → the parameters with which it was traced, such as `alpha=1.0`, where they are not its solver's own
    solvers: Mapping[str, str] = field(default_factory=dict, hash=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "norm", norm_name(self.norm))
        object.__setattr__(self, "moves", tuple(self.moves))
        object.__setattr__(self, "flags", tuple(self.flags))
        reached: dict[str, int] = {}
        tier = 0
        for move in self.moves:
            if move.tier < tier:
                raise FrontierError(
                    f"a move of tier {move.tier} follows one of tier {tier}: expected tiers in rising order"
                )
            tier = move.tier
            for run, queries in move.raises:
                had = reached.get(run, 0)
                if not had < queries <= MAX_QUERIES:
                    raise FrontierError(
                        f"{run} goes from {had} to {queries} queries: expected a rise, {MAX_QUERIES} at most"
                    )
                reached[run] = queries
            if sum(reached.values()) > tier:
                raise FrontierError(
                    f"the moves of tier {tier} reach {sum(reached.values())} queries: expected at most {tier}"
                )

    @classmethod
    def of(cls, name: str, norm: str, queries: Mapping[str, int]) -> Ensemble:
        """Make an ensemble from queries per run: one tier, base runs first, then restarts and targets by number."""
        order = sorted((run for run in queries if queries[run]), key=lambda run: Run.parse(run).index)
        tier = sum(queries.values())
        return cls(name, norm, tuple(Move(((run, queries[run]),), tier) for run in order))

    def __repr__(self) -> str:
        return f"<Ensemble {self.name} in {self.norm}, {len(self.runs)} runs, {tier_label(self.total)} queries>"

    @cached_property
    def queries(self) -> dict[str, int]:
        """Queries per run name; runs without queries are absent."""
        return {run: queries for move in self.moves for run, queries in move.raises}

    @property
    def runs(self) -> tuple[str, ...]:
        """The names of the runs that take part."""
        return tuple(self.queries)

    @property
    def total(self) -> int:
        """Queries per sample, all runs together."""
        return sum(self.queries.values())

    @property
    def tiers(self) -> tuple[int, ...]:
        """The budgets at which the order of moves was completed before going on."""
        return tuple(sorted({move.tier for move in self.moves}))

    def at(self, budget: int) -> Ensemble:
        """The ensemble this one was when it had spent `budget`: its moves in order, the last one cut short if need be.

        Moves of a later tier count only beyond the tier before, so each tier comes back exactly as it was made.
        """
        kept: list[Move] = []
        reached: dict[str, int] = {}
        tier_before = tier = 0
        for move in self.moves:
            if move.tier > tier:
                tier_before, tier = tier, move.tier
            if tier_before >= budget:
                break
            # Raises stand in an order that obeys the rules C one by one, so a move may be cut between or inside them.
            raises = []
            for run, queries in move.raises:
                left = (budget - sum(reached.values())) // CHECKPOINT * CHECKPOINT
                given = min(queries, reached.get(run, 0) + left)
                if given > reached.get(run, 0):
                    raises.append((run, given))
                    reached[run] = given
            if raises:
                kept.append(Move(tuple(raises), min(move.tier, budget)))
            if tuple(raises) != move.raises:
                break
        if reached == self.queries:
            return self
        return replace(self, name=tier_name(self.name, budget), moves=tuple(kept), aoi=None, bound=None, flags=())

    def for_classes(self, classes: int) -> Ensemble:
        """Drop the targets a model with so few classes does not have; `total` then says what is left."""
        kept = (
            (tuple((run, q) for run, q in move.raises if not beyond(Run.parse(run), classes)), move.tier)
            for move in self.moves
        )
        moves = tuple(Move(raises, tier) for raises, tier in kept if raises)
        if moves == self.moves:
            return self
        return replace(self, moves=moves, aoi=None, bound=None, flags=())

    def check(self, *, classes: int = TARGETS + 1) -> None:
        """Refuse runs that do not exist in this norm, and raises whose order breaks the rules C on the way."""
        for run, queries in self.queries.items():
            check_run(Run.parse(run), self.norm, classes)
            if queries % CHECKPOINT:
                raise FrontierError(
                    f"ensemble {self.name} gives {run} {queries} queries: expected a multiple of {CHECKPOINT} up "
                    f"to {MAX_QUERIES}"
                )
        reached: dict[Run, int] = {}
        for move in self.moves:
            for run, queries in move.raises:
                reached[Run.parse(run)] = queries
                if broken := violations(reached):
                    raise FrontierError(f"ensemble {self.name} in {self.norm} is not feasible: {'; '.join(broken)}")

    def to_toml(self) -> str:
        """Write as TOML, moves in order."""
        lines = [f"name = {toml_text(self.name)}", f"norm = {toml_text(self.norm)}", f"total = {self.total}"]
        lines += [f"{key} = {value!r}" for key in ("aoi", "bound") if (value := getattr(self, key)) is not None]
        lines += [f"flags = [{', '.join(toml_text(flag) for flag in self.flags)}]"] if self.flags else []
        lines += solvers_lines(self.solvers)
        for move in self.moves:
            raises = ", ".join(f"{toml_text(run)} = {queries}" for run, queries in move.raises)
            lines += ["", "[[moves]]", f"tier = {move.tier}", f"raises = {{ {raises} }}"]
        return "\n".join(lines) + "\n"

    @classmethod
    def from_toml(cls, text: str | bytes) -> Ensemble:
        """Read what `to_toml` wrote, or a list of moves written by hand."""
        return cls._of_file(parse_toml(_File, text, "ensemble"))

    @classmethod
    def _of_file(cls, file: _File) -> Ensemble:
        moves = tuple(Move(tuple(move.raises.items()), move.tier) for move in file.moves)
        ensemble = cls(file.name, file.norm, moves, file.aoi, file.bound, file.flags, file.solvers)
        for run in ensemble.queries:
            Run.parse(run)
        if file.total not in (None, ensemble.total):
            raise FrontierError(
                f"ensemble {ensemble.name} says total = {file.total}, but its moves reach {ensemble.total}"
            )
        return ensemble

    def save(self, path: str | PathLike[str]) -> None:
        """Write the TOML file."""
        Path(path).write_text(self.to_toml(), encoding="utf-8")

    @classmethod
    def load(cls, path: str | PathLike[str]) -> Ensemble:
        """Read a TOML file and check that what it describes can be run."""
        ensemble = cls._of_file(read_toml(_File, path))
        ensemble.check()
        return ensemble


class _Move(TomlTable):
    """A move in a file."""

    raises: Annotated[dict[str, _Queries], Field(min_length=1)]
    tier: _Queries


class _File(TomlTable):
    """The file of an ensemble."""

    hint = "`advfrontier allocate` writes such files"

    name: str
    norm: str
    total: Annotated[int, Field(strict=True, ge=0, lt=2**31)] | None = None
    aoi: _Share | None = None
    bound: _Share | None = None
    flags: tuple[str, ...] = ()
    solvers: dict[str, str] = Field(default_factory=dict)
    moves: tuple[_Move, ...] = ()


def solvers_lines(solvers: Mapping[str, str]) -> list[str]:
    """The line of a file that names solvers' parameters; none where all are their own."""
    named = ", ".join(f"{toml_text(attack)} = {toml_text(words)}" for attack, words in solvers.items())
    return [f"solvers = {{ {named} }}"] if named else []


def tier_queries(tier: str | int) -> int:
    """Read a budget: `4k`, `12k`, `4000` or a number."""
    text = shown(tier) if isinstance(tier, int) else str(tier).strip().lower()
    number, factor = (text[:-1], 1000) if text.endswith("k") else (text, 1)
    if not number.isdecimal() or len(number) > 9 or int(number) == 0:
        raise FrontierError(f"{shown(tier)} is not a budget: expected a number of queries such as 4k, 12k or 6500")
    return int(number) * factor


def tier_label(queries: int) -> str:
    """A budget by its short name: 4k, 12k, or the number."""
    return f"{queries // 1000}k" if queries and queries % 1000 == 0 else str(queries)


def tier_name(name: str, queries: int) -> str:
    """The name of a smaller budget: `paper-12k` at 4000 queries is `paper-4k`."""
    stem, _, tier = name.rpartition("-")
    return f"{stem if stem and tier[:1].isdigit() else name}-{tier_label(queries)}"


def beyond(run: Run, classes: int) -> bool:
    """Whether a run aims at a class that a model with so few does not have."""
    return run.variant == "target" and run.index > classes - 1
