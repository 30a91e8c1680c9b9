"""Benchmarks as files: which models on which samples, in which norms, with which budgets.

`load_benchmark("paper")` reads one that ships with the package, `load_benchmark("mine.toml")` one of the user's own.
Nothing is loaded or fetched by reading it.
"""

from __future__ import annotations

import tomllib
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field, StringConstraints, model_validator

from advfrontier.errors import FrontierError
from advfrontier.pool.catalogue import CHECKPOINT, POOLS
from advfrontier.pool.ensemble import tier_queries
from advfrontier.pool.runs import Run
from advfrontier.threat.names import NORMS, norm_name
from advfrontier.toml import TomlTable, read_toml, shown

Split = Literal["train", "held-out"]
SPLITS: tuple[Split, ...] = ("train", "held-out")
_SHIPPED = Path(__file__).parents[1] / "benchmarks"


def _read_by(function: Callable[[Any], Any]) -> BeforeValidator:
    """Read a value by a function whose FrontierError becomes the mistake in the file."""

    def read(value: Any) -> Any:
        try:
            return function(value)
        except FrontierError as error:
            raise ValueError(str(error)) from error

    return BeforeValidator(read)


def _radius(value: Any) -> float:
    above, _, below = value.partition("/") if isinstance(value, str) else (value, "", "")
    try:
        radius = float(above) / float(below or 1)
    except (ValueError, TypeError, ArithmeticError):
        radius = 0.0
    if isinstance(value, bool) or not 0 < radius < float("inf"):
        raise ValueError(
            f'radius {shown(value)}: expected a positive number or a fraction such as "8/255"'
        )
    return radius


def _run_or_pool(name: Any) -> Any:
    return str(Run.parse(name)) if isinstance(name, str) and name not in POOLS else name


def _distinct(names: tuple[str, ...]) -> tuple[str, ...]:
    if repeated := _repeated(names):
        raise ValueError(f"{repeated} is named twice: expected once")
    return names


def _repeated(names: Iterable[str]) -> str | None:
    return next((name for name, count in Counter(names).items() if count > 1), None)


Text = Annotated[str, StringConstraints(min_length=1)]
Count = Annotated[int, Field(strict=True, ge=1, lt=2**31)]
Seed = Annotated[int, Field(strict=True, ge=0, lt=2**63)]
Norm = Annotated[str, _read_by(norm_name)]
Norms = Annotated[tuple[Norm, ...], AfterValidator(_distinct)]
Budget = Annotated[int, _read_by(tier_queries), Field(ge=CHECKPOINT, lt=2**31)]
RunName = Annotated[str, _read_by(_run_or_pool)]
Runs = Annotated[
    tuple[RunName, ...], BeforeValidator(lambda given: [given] if isinstance(given, str) else given)
]
Radius = Annotated[float, BeforeValidator(_radius)]
Radii = Annotated[
    tuple[Radius, ...], BeforeValidator(lambda given: given if isinstance(given, list) else [given])
]


class BenchmarkData(TomlTable):
    """A data set: what `load_data` takes, and the radii at which accuracy is compared."""

    source: Text
    samples: Count
    seed: Seed | None = None  # None: the first samples
    radii: Mapping[Norm, Radii] = {}
    preprocessing: Text | None = None  # for sources that have it


class BenchmarkModel(TomlTable):
    """A defence: what `load_model` takes, and which data and split it belongs to."""

    id: Annotated[str, StringConstraints(pattern=r"[A-Za-z0-9]")]  # folders are named after it
    source: Text | None = None  # None: `origin` says where it comes from, and the user names a copy
    data: Text
    split: Split
    batch: Count
    baseline_batch: Count = Field(default_factory=lambda known: known["batch"])  # AutoAttack's
    trained: Norms = ()  # norms it was trained against
    preprocessing: Text | None = (
        None  # instead of the data set's: its samples are then not those of the others
    )
    authors: str = ""
    origin: str = ""
    alternatives: tuple[Text, ...] = ()  # other sources that fit what is known
    note: str = ""

    @model_validator(mode="after")
    def _check_source(self) -> BenchmarkModel:
        if self.source is None and not self.origin:
            raise ValueError("has neither a source nor an origin: expected one of them")
        return self


class Benchmark(TomlTable):
    """What to run."""

    name: Text
    samples: Count
    norms: Annotated[Norms, Field(min_length=1)] = NORMS
    budgets: Annotated[tuple[Budget, ...], Field(min_length=1)]
    seed: Seed
    data: Mapping[str, BenchmarkData]
    models: Annotated[tuple[BenchmarkModel, ...], Field(min_length=1)]
    pool: Annotated[Runs, Field(min_length=1)] = (
        "paper",
    )  # names of runs, or of pools: all of their runs
    baseline: Literal["autoattack"] | None = None
    baseline_split: Split | None = (
        None  # the baseline runs on the models of this split alone, or on all
    )
    published: Annotated[bool, Field(strict=True)] = False  # the solvers as their papers have them
    allocation: Literal["greedy", "plain"] = "greedy"  # plain: the paper's algorithm as printed

    def __getitem__(self, model: str) -> BenchmarkModel:
        models = {entry.id: entry for entry in self.models}
        if model not in models:
            raise FrontierError(f"{self.name} has no model {model!r}: it has {', '.join(models)}")
        return models[model]

    def data_source(self, model: str) -> str:
        """What `load_data` takes for a model: its data set with its preprocessing."""
        data = self.data[self[model].data]
        preprocessing = self[model].preprocessing or data.preprocessing
        if preprocessing is None:
            return data.source
        return f"{data.source}{'&' if '?' in data.source else '?'}preprocessing={preprocessing}"

    def with_sources(self, sources: Mapping[str, str]) -> Benchmark:
        """Say where some models are to be found: `{"C8": "mine.py:c8"}`."""
        for name in sources:
            self[name]
        models = tuple(
            m.model_copy(update={"source": sources.get(m.id, m.source)}) for m in self.models
        )
        return self.model_copy(update={"models": models})

    def with_samples(self, samples: int) -> Benchmark:
        """On so many samples of every data set."""
        if samples < 1:
            raise FrontierError(f"{samples} samples: expected at least 1")
        data = {
            name: table.model_copy(update={"samples": samples}) for name, table in self.data.items()
        }
        return self.model_copy(update={"samples": samples, "data": data})

    def with_norms(self, norms: Sequence[str]) -> Benchmark:
        """In these of its norms alone."""
        if absent := [norm for norm in norms if norm not in self.norms]:
            raise FrontierError(
                f"{self.name} has no norm {absent[0]}: it has {', '.join(self.norms)}"
            )
        return self.model_copy(
            update={"norms": tuple(norm for norm in self.norms if norm in norms)}
        )

    @model_validator(mode="before")
    @classmethod
    def _fill_in(cls, content: Any) -> Any:
        """A part of a benchmark is like the whole; data sets take its number of samples unless they have their own."""
        if not isinstance(content, dict):
            return content
        filled = _part(content) if "part_of" in content else content
        if not isinstance(filled.get("data"), dict) or "samples" not in filled:
            return filled
        return filled | {
            "data": {
                name: {"samples": filled["samples"], **table} if isinstance(table, dict) else table
                for name, table in filled["data"].items()
            }
        }

    @model_validator(mode="after")
    def _check_parts(self) -> Benchmark:
        if list(self.budgets) != sorted(set(self.budgets)):
            raise ValueError(f"budgets {list(self.budgets)}: expected them in rising order")
        if repeated := _repeated(model.id for model in self.models):
            raise ValueError(f"two models have the id {repeated!r}: expected one each")
        for number, model in enumerate(self.models, 1):
            if model.data not in self.data:
                known = ", ".join(self.data) or "a table [data.NAME]"
                raise ValueError(
                    f"models {number} ({model.id}): data = {model.data!r}: expected {known}"
                )
        return self


def _part(content: dict[str, Any]) -> dict[str, Any]:
    """The content of a file such as `part_of = "paper"`, `models = ["C1", "C2"]`: all it does not say is as there."""
    of, chosen = content["part_of"], content.get("models", [])
    if of not in benchmark_names():
        raise ValueError(
            f"part_of = {shown(of)}: expected a benchmark of the package: {', '.join(benchmark_names())}"
        )
    whole = tomllib.loads((_SHIPPED / f"{of}.toml").read_text(encoding="utf-8"))
    models = {model["id"]: model for model in whole["models"]}
    if (
        not chosen
        or not isinstance(chosen, list)
        or any(name not in list(models) for name in chosen)
    ):
        raise ValueError(f"models = {shown(chosen)}: expected some of {of}: {', '.join(models)}")
    kept = [models[name] for name in chosen]
    data = {
        name: table
        for name, table in whole["data"].items()
        if any(model["data"] == name for model in kept)
    }
    said = {key: value for key, value in content.items() if key != "part_of"}
    return {**whole, "data": data, **said, "models": kept}


def benchmark_names() -> tuple[str, ...]:
    """The benchmarks that ship with the package."""
    return tuple(sorted(path.stem for path in _SHIPPED.glob("*.toml")))


def load_benchmark(place: str | PathLike[str]) -> Benchmark:
    """Read a benchmark by the name of one that ships with the package, or from a TOML file."""
    path = _SHIPPED / f"{place}.toml" if str(place) in benchmark_names() else Path(place)
    if not path.is_file():
        raise FrontierError(
            f"no benchmark {str(place)!r}: expected a TOML file, or one of {', '.join(benchmark_names())}"
        )
    return read_toml(Benchmark, path)
