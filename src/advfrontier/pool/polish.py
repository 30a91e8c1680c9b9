"""Polishing: from time to time in a race, short runs start at the nearest point that was found, or beyond it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Annotated

from pydantic import Field

from advfrontier.errors import FrontierError
from advfrontier.pool.catalogue import MAX_QUERIES
from advfrontier.pool.runs import Run
from advfrontier.toml import TomlTable, toml_text

SLICE = 100  # queries between two choices of a race


@dataclass(frozen=True)
class Turn:
    """A short run that goes on from the nearest point.

    With a reach above 1 it starts beyond that point, as seen from the image: at a distance that is drawn for each
    sample, between the point's own and `reach` times that. So it can end in another place.
    """

    attack: str
    queries: int
    reach: float = 1.0

    @property
    def run(self) -> str:
        """What the run is called among those of the race."""
        return str(replace(Run.parse(self.attack), variant="polish"))


@dataclass(frozen=True)
class Polish:
    """The last queries of every so many go to turns, one after the other."""

    turns: tuple[Turn, ...]
    every: int
    first: int = 0  # queries of the race before the counting begins

    def __post_init__(self) -> None:
        lengths = [turn.queries for turn in self.turns]
        whole = not any(count % SLICE for count in (*lengths, self.every, self.first))
        fits = all(0 < count <= MAX_QUERIES for count in lengths) and 0 < self.queries <= self.every
        rest = self.first + self.every - self.queries  # what the runs have before the first polishing
        if not (whole and fits and self.first >= 0 and rest > 0):
            raise FrontierError(
                f"a race polishes for {' + '.join(map(str, lengths)) or 0} of every {self.every} queries after the "
                f"first {self.first}: expected multiples of {SLICE}, {MAX_QUERIES} at most, and some queries before "
                "the first polishing"
            )
        if reach := next((turn.reach for turn in self.turns if not 1 <= turn.reach < float("inf")), None):
            raise FrontierError(f"a run that polishes has a reach of {reach}: expected 1 or more")

    @cached_property
    def queries(self) -> int:
        """Of all turns together."""
        return sum(turn.queries for turn in self.turns)

    def at(self, queries: int) -> tuple[Turn, int] | None:
        """Whose turn it is after so many queries of the race, and what it has spent; None if it is the runs'."""
        spent = (queries - self.first) % self.every - (self.every - self.queries)
        if spent < 0 or queries < self.first:
            return None
        for turn in self.turns:
            if spent < turn.queries:
                return turn, spent
            spent -= turn.queries
        return None


def toml_lines(polish: Polish) -> list[str]:
    """The table of a race's file that says how it polishes."""
    turns = (
        f"    {{ attack = {toml_text(turn.attack)}, queries = {turn.queries}, reach = {turn.reach} }},"
        for turn in polish.turns
    )
    return ["[polish]", f"every = {polish.every}", f"first = {polish.first}", "turns = [", *turns, "]"]


class _Turn(TomlTable):
    """A turn in a file."""

    attack: str
    queries: Annotated[int, Field(strict=True, gt=0, le=MAX_QUERIES)]
    reach: Annotated[float, Field(ge=1, allow_inf_nan=False)] = 1.0


class PolishFile(TomlTable):
    """How a race polishes, as its file holds it."""

    turns: Annotated[list[_Turn], Field(min_length=1, max_length=1000)]
    every: Annotated[int, Field(strict=True, gt=0, lt=2**31)]
    first: Annotated[int, Field(strict=True, ge=0, lt=2**31)] = 0

    @classmethod
    def of(cls, polish: Polish) -> PolishFile:
        """The stored form."""
        return cls(turns=[_Turn(**vars(turn)) for turn in polish.turns], every=polish.every, first=polish.first)

    def polish(self) -> Polish:
        """How the race polishes."""
        return Polish(tuple(Turn(**turn.model_dump()) for turn in self.turns), self.every, self.first)
