"""Units as files: named by run, shard and queries, so that what is done can be read off the names alone.

`units/fmn.target1/00200+100-0270.safetensors` holds rows 200 to 299, the first 270 queries. Extending a unit writes the
longer file and then removes the shorter; whoever reads takes the longest one.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from torch import Tensor

from advfrontier.flags import Flag, Kind
from advfrontier.pool import RACE, Run, facts_of

UNITS = "units"
SPENT = ("checks", "attack", "verification")  # passes through the model that a unit's file counts
DOUBTS = ("held", "zero_gradients", "bad_gradients")  # tensors of a unit that `doubtful` looks at
_FILE = re.compile(
    r"units/(?P<run>[^/]+)/(?P<first>\d+)\+(?P<count>\d+)-(?P<queries>\d+)\.safetensors"
)
_NAMED = 3  # runs that a flag names before it counts them
_REASONS = {
    Kind.FLIPPED: "kept points were classified correctly in another batch",
    Kind.ZERO_GRADIENTS: "samples had no gradient on most steps",
    Kind.BAD_GRADIENTS: "samples had logits or gradients that are not finite",
}


@dataclass(frozen=True, order=True)
class UnitName:
    """One run on one shard: `count` rows of the data from `first` on."""

    run: str
    first: int
    count: int

    @property
    def shard(self) -> tuple[int, int]:
        """First row and number of rows."""
        return self.first, self.count

    def file(self, queries: int) -> str:
        """The file's name; a colon is no good in file names everywhere."""
        folder = self.run.replace(":", ".")
        return f"{UNITS}/{folder}/{self.first:05d}+{self.count:03d}-{queries:04d}.safetensors"

    @classmethod
    def of_file(cls, name: str) -> tuple[UnitName, int] | None:
        """The unit and the queries that a file's name says; None if it is no unit's."""
        parts = _FILE.fullmatch(name)
        if parts is None:
            return None
        unit = cls(parts["run"].replace(".", ":"), int(parts["first"]), int(parts["count"]))
        return unit, int(parts["queries"])

    def __str__(self) -> str:
        return f"{self.run} on samples {self.first}–{self.first + self.count - 1}"


@dataclass(frozen=True, eq=False)
class StoredUnit:
    """A unit as it was read."""

    queries: int
    tensors: dict[str, Tensor]
    words: dict[str, str]

    @property
    def spent(self) -> Counter[str]:
        """Passes through the model, by purpose."""
        return Counter({key: int(self.words[key]) for key in SPENT})


def shards_of(samples: int, size: int) -> list[tuple[int, int]]:
    """First row and number of rows of each shard: fixed ranges, so more samples leave the full ones as they are."""
    return [(first, min(size, samples - first)) for first in range(0, samples, size)]


def doubtful(run: str, queries: int, tensors: Mapping[str, Tensor]) -> Counter[tuple[Kind, str]]:
    """Count the samples of a finished unit whose distance may be wrong, by reason and run."""
    facts = None if run == RACE else facts_of(Run.parse(run).solver)
    steps = queries // (
        facts.step_queries if facts else 2
    )  # also of a plug-in that is not installed here
    samples = {
        Kind.FLIPPED: ~tensors["held"],
        Kind.ZERO_GRADIENTS: 2 * tensors["zero_gradients"] > steps,
        Kind.BAD_GRADIENTS: tensors["bad_gradients"] > 0,
    }
    return Counter(
        {(kind, run): count for kind, rows in samples.items() if (count := int(rows.sum()))}
    )


def unit_flags(doubts: Counter[tuple[Kind, str]]) -> tuple[Flag, ...]:
    """One flag per reason: which runs it concerns, and on how many samples at most."""
    by_kind: dict[Kind, dict[str, int]] = {}
    for (kind, run), count in doubts.items():
        by_kind.setdefault(kind, {})[run] = count
    flags = []
    for kind, runs in by_kind.items():
        named = ", ".join(list(runs)[:_NAMED]) + (
            f" and {len(runs) - _NAMED} other runs" if len(runs) > _NAMED else ""
        )
        text = f"{named}: {'up to ' if len(runs) > 1 else ''}{max(runs.values())} {_REASONS[kind]}"
        flags.append(Flag(kind, text))
    return tuple(flags)
