"""Units of work as files: named by run, shard and queries, so that names alone tell what is done.

A unit is an ensemble on a shard; in a trace, the ensemble of one run. The file
`units/fmn.target1/00200+100-0270.safetensors` holds rows 200 to 299 after 270 queries. Extending a
unit writes the longer file and then removes the shorter one; readers take the longest.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, BinaryIO, Self
from urllib.parse import unquote_to_bytes

import torch
from pydantic import BaseModel, ConfigDict, Field, NonNegativeInt, ValidationError
from torch import Tensor

from advfrontier.flags import Flag, Kind
from advfrontier.pool import CHECKPOINT, Run, attack_of, facts_of
from advfrontier.record.header import first_mistake
from advfrontier.record.tensors import Damaged, pack, require, unpack

UNITS = "units"
ENSEMBLE = "ensemble"  # name of the units of an evaluation
STATE = "state."  # what names of tensors begin with that only resuming a unit needs
_FILE = re.compile(
    rf"{UNITS}/(?P<name>[^/]+)/(?P<first>\d{{5,9}})\+(?P<count>\d{{3,7}})"
    r"-(?P<queries>\d{4,10})\.safetensors"
)
_PLAIN = frozenset(
    "abcdefghijklmnopqrstuvwxyz0123456789_-"
)  # letters that folders keep as they are
_NAMED = 3  # names that a flag lists before it counts them
_REASONS = {
    Kind.FLIPPED: "kept points were classified correctly in another batch",
    Kind.ZERO_GRADIENTS: "samples had no gradient on most steps",
    Kind.BAD_GRADIENTS: "samples had logits or gradients that are not finite",
    Kind.REJECTED: (
        "samples have misclassified points that do not count: outside [0, 1], or misclassified by "
        "rounding only"
    ),
}


@dataclass(frozen=True, order=True)
class UnitName:
    """One unit of a record.

    Args:
        name: Name of the run in a trace, or `ensemble`.
        first: First row of its shard.
        count: Number of rows.
    """

    name: str
    first: int
    count: int

    @property
    def shard(self) -> tuple[int, int]:
        """First row and number of rows."""
        return self.first, self.count

    def file(self, queries: int) -> str:
        """Return the name of the unit's file after `queries`.

        Args:
            queries: Queries that the unit has spent.
        """
        letters = []
        for letter in self.name:  # a colon is no good in file names everywhere
            if letter in _PLAIN:
                letters.append(letter)
            elif letter == ":":
                letters.append(".")
            else:
                letters += [f"%{byte:02x}" for byte in letter.encode(errors="surrogatepass")]
        rows = f"{self.first:05d}+{self.count:03d}"
        return f"{UNITS}/{''.join(letters)}/{rows}-{queries:04d}.safetensors"

    @classmethod
    def of_file(cls, name: str) -> tuple[UnitName, int] | None:
        """Return the unit and the queries that a file's name says; None if it is no unit's.

        Args:
            name: Name of a file in the record.
        """
        parts = _FILE.fullmatch(name)
        if parts is None:
            return None
        try:
            run = unquote_to_bytes(parts["name"].replace(".", ":")).decode(errors="surrogatepass")
        except UnicodeDecodeError:
            return None
        unit = cls(run, int(parts["first"]), int(parts["count"]))
        queries = int(parts["queries"])
        if not unit.count or not queries or unit.file(queries) != name:
            return None
        return unit, queries

    def __str__(self) -> str:
        rows = f"samples {self.first}–{self.first + self.count - 1}"
        return f"the ensemble on {rows}" if self.name == ENSEMBLE else f"{self.name} on {rows}"


class _Facts(BaseModel):
    """Metadata of a unit's file."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    queries: Annotated[int, Field(gt=0, lt=2**31, multiple_of=CHECKPOINT)]
    names: Annotated[tuple[str, ...], Field(max_length=2**15 - 1)]
    spent: dict[str, Annotated[NonNegativeInt, Field(lt=2**63)]]
    seconds: Annotated[float, Field(ge=0)]


SMALL = (
    "trajectory",
    "classes",
    "shares",
    "origin",
    "winner",
    "found",
    "zero_gradients",
    "bad_gradients",
    "rejected",
    "unspent",
)


@dataclass(frozen=True, eq=False, kw_only=True)
class StoredUnit:
    """Content of a unit's file, for the n attacked rows of its shard.

    Args:
        queries: Queries spent on every sample.
        names: Names of the m runs and refinements: runs first, then refinements such as
            `fmn:refine`.
        spent: Passes through the model, by purpose: checks, attack, verification.
        seconds: Time that the unit took.
        trajectory: (queries / 10, n) float64, the best distance after 10, 20, … queries.
        classes: (n,) int64, the class of each point; -1 where there is none.
        origin: (n,) int16, index into `names` of the run whose point was kept; -1 for none.
        winner: (n,) int16, index of what found the kept point: the origin or a refinement of it.
        found: (m, n) float64, the best distance of each name; inf where it found none.
        zero_gradients: (m, n) int32, steps on which the gradient vanished.
        bad_gradients: (m, n) int32, steps on which logits or gradient were not finite.
        rejected: (m, n) int32, 1 where an external run evaluated a misclassified point that does
            not count.
        unspent: (n,) int32, queries of external runs that ended before their step did.
        best_point: (n, d) in the box, the nearest misclassified points. Traces have none, and it
            may not have been read.
        shares: (n,) float32, with EOT the share of passes that misclassifies each point.
        state: Tensors that resume the unit; empty if they were not kept or not read.
    """

    queries: int
    names: tuple[str, ...]
    spent: Counter[str]
    seconds: float
    trajectory: Tensor
    classes: Tensor
    origin: Tensor
    winner: Tensor
    found: Tensor
    zero_gradients: Tensor
    bad_gradients: Tensor
    rejected: Tensor
    unspent: Tensor
    best_point: Tensor | None = None
    shares: Tensor | None = None
    state: Mapping[str, Tensor] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        tensors: Mapping[str, Tensor],
        *,
        queries: int,
        names: Sequence[str],
        spent: Mapping[str, int],
        seconds: float,
    ) -> Self:
        """Make one from tensors by name, those of its state as `state.…`; others are left out.

        Raises KeyError if one that every unit has is missing.

        Args:
            tensors: Tensors by name, those of the state as `state.NAME`.
            queries: Queries spent on every sample.
            names: Names of the runs and refinements.
            spent: Passes through the model, by purpose.
            seconds: Time that the unit took.
        """
        known: dict[str, Any] = {name: tensors[name] for name in SMALL if name != "shares"}
        for name in ("best_point", "shares"):
            known[name] = tensors.get(name)
        state = {}
        for name, tensor in tensors.items():
            if name.startswith(STATE):
                state[name.removeprefix(STATE)] = tensor
        return cls(
            queries=queries,
            names=tuple(names),
            spent=Counter(dict(spent)),
            seconds=seconds,
            state=state,
            **known,
        )

    @property
    def distances(self) -> Tensor:
        """(n,) float64, the best distance of each sample; inf where there is no point."""
        return self.trajectory[-1]

    def tensors(self) -> dict[str, Tensor]:
        """Return the tensors by name, those of the state as `state.…`, as `of` takes them."""
        tensors = {}
        for name in (*SMALL, "best_point"):
            tensor = getattr(self, name)
            if tensor is not None:
                tensors[name] = tensor
        for name, tensor in self.state.items():
            tensors[f"{STATE}{name}"] = tensor
        return tensors

    def check(
        self,
        rows: int,
        *,
        classes: int | None = None,
        features: int | None = None,
        limits: tuple[float, float] = (0, 1),
    ) -> None:
        """Raise Damaged if a tensor is not of the form that is documented; `state` may be of any.

        Args:
            rows: Attacked rows of the shard, n.
            classes: Classes of the model, where they are known.
            features: Numbers in one image, d, where they are known.
            limits: The smallest and the largest value that points may have.
        """
        tensors, runs = self.tensors(), len(self.names)
        checkpoints = self.queries // CHECKPOINT
        last_class = None if classes is None else classes - 1
        require(tensors, "trajectory", (checkpoints, rows), torch.float64, low=0)
        require(tensors, "classes", (rows,), torch.int64, low=-1, high=last_class)
        for name in ("origin", "winner"):
            require(tensors, name, (rows,), torch.int16, low=-1, high=runs - 1)
        require(tensors, "found", (runs, rows), torch.float64, low=0)
        for name in ("zero_gradients", "bad_gradients"):
            require(tensors, name, (runs, rows), torch.int32, low=0)
        require(tensors, "rejected", (runs, rows), torch.int32, low=0, high=1)
        require(tensors, "unspent", (rows,), torch.int32, low=0, high=self.queries)
        if self.shares is not None:
            require(tensors, "shares", (rows,), torch.float32, low=0, high=1, nan=True)
        if self.best_point is not None:
            shape, (low, high) = (rows, features), limits
            require(tensors, "best_point", shape, torch.float32, torch.float64, low=low, high=high)
        if bool((self.trajectory[1:] > self.trajectory[:-1]).any()):
            raise Damaged("its trajectory rises: expected distances that never rise")
        if not torch.equal(self.classes < 0, self.distances == torch.inf):
            raise Damaged("its classes and distances do not agree on which samples have a point")

    def to_bytes(self, words: Mapping[str, str] = {}) -> bytes:
        """Return the unit's file; `words` are written beside it.

        Args:
            words: Texts by key, stored beside the tensors.
        """
        facts = _Facts(
            queries=self.queries,
            names=self.names,
            spent=dict(self.spent),
            seconds=round(self.seconds, 3),
        )
        return pack(self.tensors(), {**words, "unit": facts.model_dump_json()})

    @classmethod
    def from_bytes(
        cls,
        content: bytes | BinaryIO,
        names: Collection[str] | None = None,
        *,
        rows: int,
        classes: int | None = None,
        features: int | None = None,
        limits: tuple[float, float] = (0, 1),
    ) -> Self:
        """Read what `to_bytes` wrote; raise Damaged if it is not a unit of this form.

        Args:
            content: Bytes of the file, or the open file.
            names: Large tensors to read: some of `best_point` and `state`; None for both.
            rows: Attacked rows of the shard.
            classes: Classes of the model, where they are known.
            features: Numbers in one image, where they are known.
            limits: The smallest and the largest value that points may have.
        """
        tensors, words = unpack(content, parts_to_read(names))
        return cls.unpacked(
            tensors, words, rows=rows, classes=classes, features=features, limits=limits
        )

    @classmethod
    def unpacked(
        cls,
        tensors: Mapping[str, Tensor],
        words: Mapping[str, str],
        *,
        rows: int,
        classes: int | None = None,
        features: int | None = None,
        limits: tuple[float, float] = (0, 1),
    ) -> Self:
        """Return the unit that the tensors and words of a file make; raise Damaged if none.

        Args:
            tensors: Tensors by name.
            words: Texts by key.
            rows: Attacked rows of the shard, n.
            classes: Classes of the model, where they are known.
            features: Numbers in one image, where they are known.
            limits: The smallest and the largest value that points may have.
        """
        try:
            facts = _Facts.model_validate_json(words["unit"], strict=True)
            unit = cls.of(
                tensors,
                queries=facts.queries,
                names=facts.names,
                spent=facts.spent,
                seconds=facts.seconds,
            )
        except KeyError as error:
            raise Damaged(f"it is no unit: it has no {error.args[0]}") from error
        except ValidationError as error:
            raise Damaged(f"it is no unit: {first_mistake(error)}") from error
        unit.check(rows, classes=classes, features=features, limits=limits)
        return unit


def parts_to_read(names: Collection[str] | None) -> tuple[str, ...] | None:
    """Return which tensors of a unit's file to read: all small ones, and large ones as named.

    Args:
        names: Some of `best_point` and `state`; None for both.
    """
    if names is None:
        return None
    chosen = list(SMALL)
    if "best_point" in names:
        chosen.append("best_point")
    if "state" in names:
        chosen.append(STATE)
    return tuple(chosen)


def shards_of(samples: int, size: int) -> list[tuple[int, int]]:
    """Return first row and number of rows of each shard.

    They are fixed ranges, so that more samples leave the full ones as they are.

    Args:
        samples: Number of samples.
        size: Samples per shard.
    """
    return [(first, min(size, samples - first)) for first in range(0, samples, size)]


def doubtful(
    unit: StoredUnit, labels: Tensor, queries: Mapping[str, int]
) -> Counter[tuple[Kind, str]]:
    """Count the samples of a unit whose distance may be wrong, by reason and run or refinement.

    Args:
        unit: A unit that is done.
        labels: (n,), classes of the attacked rows.
        queries: Run or refinement to the queries that it spent; others are left out.
    """
    counts: Counter[tuple[Kind, str]] = Counter()
    flipped = unit.classes == labels
    for index, name in enumerate(unit.names):
        if not queries.get(name):
            continue
        facts = facts_of(Run.parse(attack_of(name)).solver)
        # Two also for a plug-in that is not installed here.
        steps = queries[name] // (facts.step_queries if facts else 2)
        samples = {
            Kind.FLIPPED: flipped & (unit.winner == index),
            Kind.ZERO_GRADIENTS: 2 * unit.zero_gradients[index] > steps,
            Kind.BAD_GRADIENTS: unit.bad_gradients[index] > 0,
            Kind.REJECTED: unit.rejected[index] > 0,
        }
        for kind, rows in samples.items():
            count = int(rows.sum())
            if count:
                counts[kind, name] = count
    return counts


def unit_flags(doubts: Mapping[tuple[Kind, str], int]) -> tuple[Flag, ...]:
    """Return one flag per reason: which runs it concerns, and on how many samples at most.

    Args:
        doubts: Reason and run to samples, as `doubtful` counts them.
    """
    by_kind: dict[Kind, dict[str, int]] = {}
    for (kind, name), count in doubts.items():
        by_kind.setdefault(kind, {})[name] = count
    flags = []
    for kind, names in by_kind.items():
        listed = ", ".join(list(names)[:_NAMED])
        if len(names) > _NAMED:
            listed += f" and {len(names) - _NAMED} others"
        most = f"up to {max(names.values())}" if len(names) > 1 else str(max(names.values()))
        flags.append(Flag(kind, f"{listed}: {most} {_REASONS[kind]}"))
    return tuple(flags)
