"""Polishing: from time to time in a race, a short run starts at the nearest point that was found."""

from __future__ import annotations

from dataclasses import dataclass, replace

from advfrontier.errors import FrontierError
from advfrontier.pool.catalogue import MAX_QUERIES
from advfrontier.pool.runs import Run

SLICE = 100  # queries between two choices of a race


@dataclass(frozen=True)
class Polish:
    """The last queries of every so many go to a run that is as short, and starts at the nearest point so far."""

    attack: str
    queries: int
    every: int
    first: int = 0  # queries of the race before the counting begins

    def __post_init__(self) -> None:
        whole = not any(count % SLICE for count in (self.queries, self.every, self.first))
        rest = self.first + self.every - self.queries  # what the runs have before the first polishing
        if not (whole and 0 < self.queries <= min(self.every, MAX_QUERIES) and self.first >= 0 and rest > 0):
            raise FrontierError(
                f"a race polishes for {self.queries} of every {self.every} queries after the first {self.first}: "
                f"expected multiples of {SLICE}, {MAX_QUERIES} at most, and some queries before the first polishing"
            )

    @property
    def run(self) -> str:
        """What the run is called among those of the race."""
        return str(replace(Run.parse(self.attack), variant="polish"))

    def begun(self, queries: int) -> int | None:
        """The queries that it has spent after so many of the race, if its turn is next; None if it is not."""
        before = (queries - self.first) % self.every - (self.every - self.queries)
        return before if before >= 0 and queries >= self.first else None
