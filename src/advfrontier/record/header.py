"""`record.json`: what a record is of and what it holds, as one typed value.

It is read and written only here. A checksum covers all of it: a file that was changed by hand or by accident is refused
rather than believed.
"""

from __future__ import annotations

import json
from hashlib import blake2b
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, NonNegativeInt, ValidationError

from advfrontier.command import current_command
from advfrontier.errors import FrontierError
from advfrontier.flags import Flag  # pydantic reads the annotations
from advfrontier.pool import CHECKPOINT, MAX_QUERIES, Ensemble, Move, Race, RaceFile
from advfrontier.record.folder import FILE

SCHEMA = 4
RecordKind = Literal["evaluation", "trace", "baseline"]
Queries = Annotated[int, Field(gt=0, le=MAX_QUERIES, multiple_of=CHECKPOINT)]  # of one run
Asked = Annotated[
    int, Field(gt=0, lt=2**31, multiple_of=CHECKPOINT)
]  # of a run, or of a race, which spends more


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class ModelIdentity(_Frozen):
    """Which model a record is of."""

    name: str
    source: str | None  # what `load_model` takes; None if the model was given as an object
    digest: str


class DataIdentity(_Frozen):
    """Which samples a record is of, in their order."""

    name: str
    samples: int = Field(ge=1)
    digest: str  # of images and labels
    class_names: tuple[str, ...] = ()


class Terms(_Frozen):
    """What decides the bits of every distance, besides the model, the data and the code."""

    norm: Literal["L0", "L1", "L2", "Linf"]
    seed: int = 42
    shard: int = Field(default=100, ge=1, le=1_000_000)  # samples per unit, and so per batch
    device: str = "cpu"
    dtype: Literal["float32", "float64"] = "float32"
    threads: int = Field(default=1, ge=1, le=1024)
    eot: int = Field(default=1, ge=1, le=1000)  # passes that one query is the mean of


# Whose the clean pass took, and attacks use: the model's own, those of `engine.surrogate` where it has none, or none at
# all, and then only black-box runs are possible.
Gradients = Literal["own", "surrogate", "none"]


class Versions(_Frozen):
    """What computed a record: install these to see the same bits."""

    python: str
    platform: str
    advfrontier: str
    torch: str
    numpy: str


class MoveFile(_Frozen):
    """A move of an ensemble."""

    tier: int
    raises: dict[str, Queries]


class EnsembleFile(_Frozen):
    """An ensemble as a record holds it."""

    name: str
    norm: str
    moves: tuple[MoveFile, ...]
    aoi: float | None = None
    bound: float | None = None
    flags: tuple[str, ...] = ()
    solvers: dict[str, str] = {}


class Header(_Frozen):
    """All that `record.json` says."""

    kind: RecordKind
    model: ModelIdentity
    data: DataIdentity
    terms: Terms
    gradients: Gradients
    code: str  # digest of the code that decides distances
    versions: Versions
    later: tuple[Versions, ...] = ()  # other versions that have worked on it since
    solvers: dict[str, str] = {}  # attack → its solver with all parameters
    runs: dict[str, Asked] = {}  # run → the most queries it was asked for
    ensemble: EnsembleFile | RaceFile | None = None  # what an evaluation is working towards
    finished: EnsembleFile | RaceFile | None = None  # the last one that was complete
    radii: tuple[
        float, ...
    ] = ()  # of a baseline; of an evaluation, where its accuracy is to be read
    keep_state: bool = True
    flags: tuple[Flag, ...] = ()  # of the model, when the record was begun
    counts: dict[str, NonNegativeInt] = {}  # passes through the model that no unit counts
    replaced: dict[
        str, dict[str, NonNegativeInt]
    ] = {}  # what units cost whose shard has grown since
    commands: tuple[str, ...] = ()  # typed, in order; the last one goes on with it

    def to_bytes(self) -> bytes:
        """The content of `record.json`."""
        content = {"schema": SCHEMA, **self.model_dump(mode="json")}
        return (
            json.dumps(
                {**content, "checksum": _checksum(content)}, indent=2, ensure_ascii=False
            ).encode()
            + b"\n"
        )

    @classmethod
    def from_bytes(cls, content: bytes, place: str) -> Header:
        """Read what `to_bytes` wrote; `place` is named where that is not possible."""
        try:
            found: dict[str, Any] = json.loads(content)
            schema, checksum = found.pop("schema"), found.pop("checksum", None)
        except (ValueError, RecursionError, KeyError, TypeError, AttributeError) as error:
            raise _damaged(place, f"{type(error).__name__}: {error}") from error
        if schema != SCHEMA:
            raise FrontierError(
                f"{place} holds a record of schema {schema}: expected {SCHEMA}, which this version reads; evaluate "
                "again in a new folder, or install the version that wrote it"
            )
        if checksum != _checksum({"schema": schema, **found}):
            raise _damaged(
                place, "its checksum does not match: it was changed after it was written"
            )
        try:
            header = cls.model_validate_json(json.dumps(found), strict=True)
            for stored in (header.ensemble, header.finished):
                if stored is not None:
                    unpacked(stored)
        except (ValidationError, FrontierError) as error:
            text = error.errors()[0] if isinstance(error, ValidationError) else error
            raise _damaged(place, str(text)) from error
        return header

    def mismatch(self, other: Header) -> str:
        """In words, what tells another record from this one, and what to do about it; nothing if they are alike.

        Threads are left aside: a record keeps the number it began with.
        """
        terms = [
            name
            for name, value in self.terms
            if name != "threads" and value != getattr(other.terms, name)
        ]
        pairs: dict[str, tuple[Any, Any]] = {"kind": (self.kind, other.kind)}
        pairs |= {
            _SAID.get(name, name): (getattr(self.terms, name), getattr(other.terms, name))
            for name in terms
        }
        pairs |= {
            f"solver of {key}": (words, other.solvers.get(key, words))
            for key, words in self.solvers.items()
        }
        found = [f"another {name}: {a}, not {b}" for name, (a, b) in pairs.items() if a != b]
        if self.model.digest != other.model.digest:
            named = [f"{header.model.name} ({header.model.digest[:8]})" for header in (self, other)]
            found.insert(0, f"another model: {named[0]}, not {named[1]}")
        text = f"{'; '.join(found)}. Choose another folder, or remove this one" if found else ""
        if len(terms) < len(found) or not terms or not set(terms) <= TYPED.keys():
            return text
        typed = [(*TYPED[name], getattr(self.terms, name)) for name in TYPED if name in terms]
        options = " ".join(f"{option} {value}" for option, _, value in typed)
        python = ", ".join(f"{name}={value!r}" for _, name, value in typed)
        return f"{text}; to go on with it, add {options} (in Python {python})"

    def with_command(self) -> tuple[str, ...]:
        """The commands, with the one that was typed now."""
        return tuple(dict.fromkeys((*self.commands, *filter(None, [current_command()]))))

    @property
    def how_to_go_on(self) -> str:
        """What continues unfinished work."""
        return (
            f"to go on, type {self.commands[-1]}"
            if self.commands
            else "the same call as before goes on"
        )


def packed(ensemble: Ensemble | Race) -> EnsembleFile | RaceFile:
    """An ensemble or a race as a record holds it."""
    if isinstance(ensemble, Race):
        return RaceFile.of(ensemble)
    moves = tuple(MoveFile(tier=move.tier, raises=dict(move.raises)) for move in ensemble.moves)
    return EnsembleFile(name=ensemble.name, norm=ensemble.norm, moves=moves, aoi=ensemble.aoi, bound=ensemble.bound,
                        flags=ensemble.flags, solvers=dict(ensemble.solvers))  # fmt: skip


def unpacked(stored: EnsembleFile | RaceFile) -> Ensemble | Race:
    """The ensemble or race that a record holds."""
    if isinstance(stored, RaceFile):
        return stored.race()
    moves = tuple(Move(tuple(move.raises.items()), move.tier) for move in stored.moves)
    return Ensemble(
        stored.name, stored.norm, moves, stored.aoi, stored.bound, stored.flags, stored.solvers
    )


_SAID = {"shard": "batch size", "eot": "number of passes per query"}
TYPED = {  # on the command line, and in Python
    "seed": ("--seed", "seed"),
    "shard": ("--batch-size", "batch_size"),
    "device": ("--device", "machine"),
    "threads": ("--threads", "machine"),
    "eot": ("--eot", "eot"),
}


def _checksum(content: dict[str, Any]) -> str:
    return blake2b(json.dumps(content, sort_keys=True).encode(), digest_size=16).hexdigest()


def _damaged(place: str, reason: str) -> FrontierError:
    return FrontierError(
        f"{place}/{FILE} is damaged ({reason}): expected a record; put back a copy, or remove the folder and start "
        "again"
    )
