"""`record.json`: what a record is of and what it holds, as one typed value, and its changes.

The header is read and written only here and in `record.journal`. A checksum covers all of it: a
file that was changed by hand or by accident is refused.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable
from hashlib import blake2b
from importlib.metadata import PackageNotFoundError, version
from math import prod
from typing import Annotated, Any, Literal, Self, TypeVar

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    NonNegativeInt,
    ValidationError,
    field_validator,
    model_validator,
)

from advfrontier.errors import FrontierError
from advfrontier.flags import Flag, Kind  # pydantic reads the annotations
from advfrontier.pool import CHECKPOINT, Ensemble, Run
from advfrontier.pool.ensemble import REFINED
from advfrontier.record.folder import FILE
from advfrontier.threat.names import CRITERION, DOMAIN, UNIT_BOX, UNTARGETED, norm_name

SCHEMA = 5
AnyModel = TypeVar("AnyModel", bound=BaseModel)
RecordKind = Literal["evaluation", "trace", "baseline"]
Asked = Annotated[int, Field(gt=0, lt=2**31, multiple_of=CHECKPOINT)]  # queries of a run
Count = Annotated[NonNegativeInt, Field(lt=2**63)]
Radius = Annotated[float, Field(ge=0)]

# Whose gradients the clean pass took and attacks use: the model's own; its own, which the diagnosis
# doubted, so that evaluations spend more on searches without gradients; those of `engine.surrogate`
# where it has none; or none at all, and then only black-box runs are possible.
Gradients = Literal["own", "doubted", "surrogate", "none"]


class Frozen(BaseModel):
    """Value of a file: immutable, without unknown fields, infinite numbers or NaN."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class ModelIdentity(Frozen):
    """Model of a record.

    Args:
        name: Display name.
        source: Source that `load_model` takes; None if the model was given as an object.
        digest: Digest of its parameters and structure.
    """

    name: str
    source: str | None
    digest: str


class DataIdentity(Frozen):
    """Samples of a record, in their order.

    Args:
        name: Display name of the data; by default the source that the user typed.
        samples: Number of samples.
        shape: Shape of one image, such as (3, 32, 32).
        digest: Digest of images and labels.
        class_names: Names of the classes, where the data set knows them.
    """

    name: str
    samples: int = Field(ge=1, le=10**9)
    shape: tuple[Annotated[int, Field(ge=1, lt=2**31)], ...] = Field(min_length=1, max_length=8)
    digest: str
    class_names: tuple[str, ...] = ()

    @property
    def features(self) -> int:
        """Numbers in one image."""
        return prod(self.shape)


class Terms(Frozen):
    """Terms that decide the bits of distances, besides model, data and numerics.

    Args:
        norm: Name of a registered norm, such as `L2`.
        seed: Seed of the base runs; restart k has k more.
        shard: Samples per unit, and so per batch.
        device: Device of torch, such as `cuda`.
        dtype: Precision of images and points.
        threads: CPU threads.
        eot: Passes through the model that one query is the mean of.
        criterion: Criterion of success, such as `untargeted` or `top-5`.
        domain: `unit-box` for samples in [0, 1], or the name of the domain beside the header.
    """

    norm: str
    seed: int = Field(default=42, ge=-(2**63), lt=2**63)
    shard: int = Field(default=100, ge=1, le=1_000_000)
    device: str = "cpu"
    dtype: Literal["float32", "float64"] = "float32"
    threads: int = Field(default=1, ge=1, le=1024)
    eot: int = Field(default=1, ge=1, le=1000)
    criterion: str = Field(default=UNTARGETED, pattern=CRITERION)
    domain: str = Field(default=UNIT_BOX, pattern=DOMAIN)

    @field_validator("norm")
    @classmethod
    def _check_norm(cls, norm: str) -> str:
        try:
            canonical = norm_name(norm)
        except FrontierError as error:
            raise ValueError(str(error)) from error
        if canonical != norm:
            raise ValueError(f"the norm is {norm}: expected {canonical}")
        return norm


class Versions(Frozen):
    """Versions that computed a record: install these to get the same bits.

    Args:
        python: Version of Python.
        platform: Operating system and processor.
        advfrontier: Version of this package.
        torch: Version of PyTorch.
        numpy: Version of NumPy.
    """

    python: str
    platform: str
    advfrontier: str
    torch: str
    numpy: str

    def round_alike(self, other: Versions) -> bool:
        """Tell whether the libraries that round have the same versions.

        Args:
            other: Versions at work elsewhere.
        """
        return (self.torch, self.numpy) == (other.torch, other.numpy)


def _read_ensemble(value: Any) -> Any:
    """Read an ensemble as it reads its TOML file: lists of a file are tuples of the model."""
    if not isinstance(value, dict):
        return value
    try:
        return Ensemble.model_validate(value)
    except ValidationError as error:
        raise ValueError(first_mistake(error)) from error


StoredEnsemble = Annotated[Ensemble, BeforeValidator(_read_ensemble)]
Parameters = dict[str, str]  # of a solver: its class under `class`, and its hyper-parameters


def _check_solvers(solvers: dict[str, Parameters]) -> None:
    for attack, parameters in solvers.items():
        Run.parse(attack)
        if "class" not in parameters:
            raise ValueError(f"the solver of {attack} has no class")


def _check_runs(names: Iterable[str]) -> None:
    for name in names:
        Run.parse(name.removesuffix(REFINED))


class Header(Frozen):
    """All that `record.json` says.

    Args:
        kind: Kind of the record: evaluation, trace or AutoAttack.
        model: Model that the record is of.
        data: Samples that the record is of.
        terms: Norm, seed, batches, device and precision, which decide the bits of every distance.
        gradients: Gradients that attacks use: the model's own, surrogates, doubted ones or none.
        numerics: Room to version, of the code that decides bits.
        versions: Versions that the record was begun with.
        later: Other versions that have worked on it since.
        solvers: Attack to its solver's class and parameters.
        runs: In a trace, each run to the most queries asked for.
        ensemble: Ensemble that an evaluation works towards.
        finished: Last ensemble that was complete.
        radii: In a baseline, the radii attacked at; elsewhere the radii at which accuracy is to be
            read.
        keep_state: Whether units keep what is needed to extend them.
        flags: Warnings about the distances, found when the record was set up or finished.
        counts: Passes through the model that no unit counts, by purpose.
        replaced: Passes of units whose shard has grown since, by file name.
        commands: Commands that were typed, in order; the last one resumes the work.
    """

    kind: RecordKind
    model: ModelIdentity
    data: DataIdentity
    terms: Terms
    gradients: Gradients
    numerics: dict[str, NonNegativeInt]
    versions: Versions
    later: tuple[Versions, ...] = ()
    solvers: dict[str, Parameters] = {}
    runs: dict[str, Asked] = {}
    ensemble: StoredEnsemble | None = None
    finished: StoredEnsemble | None = None
    radii: tuple[Radius, ...] = ()
    keep_state: bool = True
    flags: tuple[Flag, ...] = ()
    counts: dict[str, Count] = {}
    replaced: dict[str, dict[str, Count]] = {}
    commands: tuple[str, ...] = ()

    @model_validator(mode="after")
    def _check_names(self) -> Self:
        try:
            _check_runs(self.runs)
            for ensemble in (self.ensemble, self.finished):
                if ensemble is None:
                    continue
                _check_runs(ensemble.names)
                if ensemble.norm != self.terms.norm:
                    raise ValueError(
                        f"its ensemble is in {ensemble.norm}, the record in {self.terms.norm}"
                    )
            _check_solvers(self.solvers)
        except FrontierError as error:
            raise ValueError(str(error)) from error
        return self

    def to_bytes(self) -> bytes:
        """Return the content of `record.json`."""
        return sealed(self.model_dump(mode="json"))

    @classmethod
    def from_bytes(cls, content: bytes, place: str) -> Header:
        """Read what `to_bytes` wrote.

        Args:
            content: Bytes of `record.json`.
            place: The record's folder, for messages.
        """
        fields = unsealed(content, place, FILE)
        norm = fields["terms"].get("norm") if isinstance(fields.get("terms"), dict) else None
        if isinstance(norm, str):
            _check_registered(norm, place)
        return validated(cls, fields, place, FILE)

    def mismatch(self, other: Header) -> str:
        """Say how another record differs from this one, and what to do; empty if they are alike.

        Threads are left aside: a record keeps the number it began with.

        Args:
            other: The header of the record that is asked for.
        """
        found = []
        if self.model.digest != other.model.digest:
            ours, theirs = (
                f"{header.model.name} ({header.model.digest[:8]})" for header in (self, other)
            )
            found.append(f"another model: {ours}, not {theirs}")
        if self.kind != other.kind:
            found.append(f"another kind: {self.kind}, not {other.kind}")
        if self.data.shape != other.data.shape:
            found.append(f"another image shape: {self.data.shape}, not {other.data.shape}")
        terms = []
        for name, value in self.terms:
            if name != "threads" and value != getattr(other.terms, name):
                terms.append(name)
                asked = getattr(other.terms, name)
                found.append(f"another {_SAID.get(name, name)}: {value}, not {asked}")
        for attack, parameters in self.solvers.items():
            given = other.solvers.get(attack, parameters)
            if given != parameters:
                texts = f"{solver_repr(parameters)}, not {solver_repr(given)}"
                found.append(f"another solver of {attack}: {texts}")
        if not found:
            return ""
        text = f"{'; '.join(found)}. Choose another folder, or remove this one"
        if len(found) > len(terms) or not set(terms) <= TYPED.keys():
            return text
        return f"{text}; to resume it, add {self._typed(terms)}"

    def _typed(self, terms: Collection[str]) -> str:
        """Return the options that name these terms of the record."""
        options, keywords = [], []
        for name, (option, keyword) in TYPED.items():
            if name in terms:
                value = getattr(self.terms, name)
                options.append(f"{option} {value}")
                keywords.append(f"{keyword}={value!r}")
        return f"{' '.join(options)} (in Python {', '.join(keywords)})"

    @property
    def how_to_resume(self) -> str:
        """Command and queries of unfinished work."""
        if self.commands:
            return f"to resume, type {self.commands[-1]}"
        return "to resume, repeat the same call"


class HeaderChange(Frozen):
    """Change of a header: fields that are left out change nothing.

    Changes by several writers add up, whatever their order, where the text says added, largest or
    union; elsewhere the last one counts.

    Args:
        model_name: New display name of the model.
        model_source: New source of the model.
        data_name: New display name of the data.
        data: New samples, after growth. If their digest is another one, nothing is finished.
        add_flags: Flags to add, unless the header has one of their kind already.
        set_flags: Kind to the flag that replaces those of the kind; None removes them.
        add_counts: Purpose to passes, added.
        replaced: Passes of units whose shard has grown since, by file name; joined with the
            header's.
        command: Command that was typed; stored once.
        resumes: Whether `command` resumes the record's work. Other commands are noted before the
            last one, which does.
        runs: Run to queries asked for; the largest counts.
        solvers: Attack to its solver, union; the first solver of an attack stays.
        ensemble: Ensemble that the evaluation works towards.
        finished: Ensemble that is complete.
        radii: Radii at which accuracy is to be read.
        add_radii: Radii attacked at, union.
        keep_state: Whether units keep their state.
        later: Versions at work, noted if they round differently from those known.
    """

    model_name: str | None = None
    model_source: str | None = None
    data_name: str | None = None
    data: DataIdentity | None = None
    add_flags: tuple[Flag, ...] = ()
    set_flags: dict[Kind, Flag | None] = {}
    add_counts: dict[str, Count] = {}
    replaced: dict[str, dict[str, Count]] = {}
    command: str = ""
    resumes: bool = True
    runs: dict[str, Asked] = {}
    solvers: dict[str, Parameters] = {}
    ensemble: StoredEnsemble | None = None
    finished: StoredEnsemble | None = None
    radii: tuple[Radius, ...] | None = None
    add_radii: tuple[Radius, ...] = ()
    keep_state: bool | None = None
    later: Versions | None = None

    def apply(self, header: Header) -> Header:
        """Return the header after this change.

        Args:
            header: Header as it is.
        """
        changes: dict[str, Any] = {
            "model": self._model(header.model),
            "flags": self._flags(header.flags),
            "commands": self._commands(header.commands),
            "replaced": header.replaced | self.replaced,
        }
        solvers = dict(header.solvers)
        for attack, parameters in self.solvers.items():
            solvers.setdefault(attack, parameters)
        changes["solvers"] = solvers
        counts = dict(header.counts)
        for purpose, passes in self.add_counts.items():
            counts[purpose] = counts.get(purpose, 0) + passes
        changes["counts"] = counts
        runs = dict(header.runs)
        for run, queries in self.runs.items():
            runs[run] = max(queries, runs.get(run, 0))
        changes["runs"] = runs
        data = header.data if self.data is None else self.data
        if data.digest != header.data.digest:
            changes["finished"] = None
        if self.data_name is not None:
            data = data.model_copy(update={"name": self.data_name})
        changes["data"] = data
        for name in ("ensemble", "finished", "radii", "keep_state"):
            if getattr(self, name) is not None:
                changes[name] = getattr(self, name)
        if self.add_radii:
            changes["radii"] = tuple(sorted({*header.radii, *self.add_radii}))
        known = (header.versions, *header.later)
        if self.later is not None and not any(map(self.later.round_alike, known)):
            changes["later"] = (*header.later, self.later)
        return header.model_copy(update=changes)

    def _model(self, model: ModelIdentity) -> ModelIdentity:
        update = {}
        if self.model_name is not None:
            update["name"] = self.model_name
        if self.model_source is not None:
            update["source"] = self.model_source
        return model.model_copy(update=update)

    def _flags(self, flags: tuple[Flag, ...]) -> tuple[Flag, ...]:
        kept = []
        for flag in flags:
            new = self.set_flags.get(flag.kind, flag)
            if (
                new is not None and new not in kept
            ):  # in place, so that an equal flag changes nothing
                kept.append(new)
        kinds = {flag.kind for flag in flags}
        for kind, added in self.set_flags.items():
            if added is not None and kind not in kinds:
                kept.append(added)
        kinds |= set(self.set_flags)
        return (*kept, *(flag for flag in self.add_flags if flag.kind not in kinds))

    def _commands(self, commands: tuple[str, ...]) -> tuple[str, ...]:
        if not self.command or self.command in commands:
            return commands
        if self.resumes:
            return (*commands, self.command)
        if not commands:  # it would be taken for what resumes the work
            return commands
        return (*commands[:-1], self.command, commands[-1])


def solver_repr(parameters: Parameters) -> str:
    """Return a solver as text, such as `FMN(alpha=1.0)`.

    Args:
        parameters: Class and hyper-parameters of the solver, as a record stores them.
    """
    kind = parameters.get("class", "")
    given = [f"{name}={value}" for name, value in parameters.items() if name != "class"]
    return f"{kind}({', '.join(given)})"


_SAID = {"shard": "batch size", "eot": "number of passes per query"}
TYPED = {  # on the command line, and in Python
    "seed": ("--seed", "seed"),
    "shard": ("--batch-size", "batch_size"),
    "device": ("--device", "machine"),
    "threads": ("--threads", "machine"),
    "eot": ("--eot", "eot"),
}


# JSON files with a schema and a checksum


def sealed(fields: dict[str, Any]) -> bytes:
    """Return a JSON file of these fields, with the schema and a checksum.

    Args:
        fields: Fields of the file, as plain values.
    """
    content = {"schema": SCHEMA, **fields}
    content["checksum"] = checksum(content)
    return json.dumps(content, indent=2, ensure_ascii=False).encode(errors="surrogatepass") + b"\n"


def unsealed(content: bytes, place: str, name: str) -> dict[str, Any]:
    """Return the fields of a file that `sealed` made; raise if it is damaged or of another schema.

    Args:
        content: Bytes of the file.
        place: The record's folder, for messages.
        name: The file's name in it.
    """
    try:
        fields: dict[str, Any] = json.loads(content)
        schema = fields.pop("schema")
        seal = fields.pop("checksum", None)
        expected = checksum({"schema": schema, **fields})
    except (ValueError, RecursionError, KeyError, TypeError, AttributeError) as error:
        raise damaged(place, name, f"{type(error).__name__}: {error}") from error
    number = type(schema) is int
    if number and schema != SCHEMA:
        raise _other_schema(schema, fields, place)
    if not number or seal != expected:
        reason = "its checksum does not match: it was changed after it was written"
        raise damaged(place, name, reason)
    return fields


def validated(kind: type[AnyModel], fields: dict[str, Any], place: str, name: str) -> AnyModel:
    """Return the fields of a file as a model; raise if they are not those of one.

    Args:
        kind: Class of the model.
        fields: Fields of the file, as plain values.
        place: Folder of the record, for messages.
        name: Name of the file in it.
    """
    try:
        return kind.model_validate_json(json.dumps(fields), strict=True)
    except RecursionError as error:
        raise damaged(place, name, "it is nested too deeply") from error
    except ValidationError as error:
        raise damaged(place, name, first_mistake(error)) from error


def first_mistake(error: ValidationError) -> str:
    """Return where the first mistake of a file is, and which.

    Args:
        error: Error of pydantic, with one mistake at least.
    """
    first = error.errors(include_url=False)[0]
    reason = first["msg"].removeprefix("Value error, ")
    where = ".".join(map(str, first["loc"]))
    return f"{where}: {reason}" if where else reason


def checksum(content: dict[str, Any]) -> str:
    """Return the checksum of a JSON file's fields.

    Args:
        content: Fields of the file, without the checksum.
    """
    return blake2b(json.dumps(content, sort_keys=True).encode(), digest_size=16).hexdigest()


def damaged(place: str, name: str, reason: str) -> FrontierError:
    """Return the error for a file of a record that cannot be believed.

    Args:
        place: Folder of the record.
        name: Name of the file in it.
        reason: Reason, as a clause.
    """
    return FrontierError(
        f"{place}/{name} is damaged ({reason}): expected a record; put back a copy, or remove the "
        "folder and start again"
    )


def _other_schema(schema: int, fields: dict[str, Any], place: str) -> FrontierError:
    versions = fields.get("versions")
    writer = versions.get("advfrontier") if isinstance(versions, dict) else None
    author = f"advfrontier {writer}" if isinstance(writer, str) else "another version"
    here = f"advfrontier {installed('advfrontier')}, which reads schema {SCHEMA}"
    if schema > SCHEMA:
        return FrontierError(
            f"{place} holds a record of schema {schema}, which {author} wrote: it is newer than "
            f"this {here}. Install {author} or later to read it; the record is intact"
        )
    return FrontierError(
        f"{place} holds a record of schema {schema}, which {author} wrote: it is older than this "
        f"{here}. Evaluate again in a new folder, or install {author} to read it"
    )


def _check_registered(norm: str, place: str) -> None:
    try:
        norm_name(norm)
    except FrontierError as error:
        raise FrontierError(
            f"{place} holds a record in the norm {norm!r}, which is not registered here ({error}): "
            "import the package or the file that registers it first"
        ) from error


def installed(package: str) -> str:
    """Return the installed version of a package; `unknown` if it is not installed.

    Args:
        package: Name of the package on PyPI.
    """
    try:
        return version(package)
    except PackageNotFoundError:
        return "unknown"
