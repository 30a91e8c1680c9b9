"""Benchmark files: which models on which samples, with which attacks and budgets.

`load_benchmark("paper")` reads a benchmark that ships with the package,
`load_benchmark("mine.toml")` one of the user's own. Reading a file loads no model and no data.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from os import PathLike
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field, StringConstraints, model_validator

from advfrontier.errors import FrontierError
from advfrontier.evaluation.radii import as_radius
from advfrontier.pool import CHECKPOINT, POOLS, Run, tier_queries
from advfrontier.threat.names import norm_name
from advfrontier.toml import TomlTable, read_toml, shown

Split = Literal["train", "held-out"]
TRAIN, HELD_OUT = "train", "held-out"
_SHIPPED = Path(__file__).parents[1] / "benchmarks"


def _checked(function: Callable[[Any], Any]) -> BeforeValidator:
    """Return a validator that turns the FrontierError of a function into a mistake in the file."""

    def check(value: Any) -> Any:
        try:
            return function(value)
        except FrontierError as error:
            raise ValueError(str(error)) from error

    return BeforeValidator(check)


def _read_radius(value: Any) -> float:
    radius = value
    if isinstance(value, str):
        radius = as_radius(value)
    if isinstance(radius, bool) or not isinstance(radius, int | float) or not 0 < radius < 1e9:
        raise FrontierError(
            f'radius {shown(value)}: expected a positive number or a fraction such as "8/255"'
        )
    return float(radius)


def _read_run(name: Any) -> Any:
    return str(Run.parse(name)) if isinstance(name, str) and name not in POOLS else name


def _as_list(value: Any) -> Any:
    return [value] if isinstance(value, str) else value


def _rising(budgets: tuple[int, ...]) -> tuple[int, ...]:
    if list(budgets) != sorted(set(budgets)):
        raise ValueError(f"found {list(budgets)}: expected them in rising order")
    return budgets


Text = Annotated[str, StringConstraints(min_length=1)]
Count = Annotated[int, Field(strict=True, ge=1, lt=2**31)]
Norm = Annotated[str, _checked(norm_name)]
Radius = Annotated[float, _checked(_read_radius)]
Budget = Annotated[int, _checked(tier_queries), Field(ge=CHECKPOINT, multiple_of=CHECKPOINT)]
Budgets = Annotated[tuple[Budget, ...], Field(min_length=1), AfterValidator(_rising)]
RunName = Annotated[str, _checked(_read_run)]
Runs = Annotated[tuple[RunName, ...], BeforeValidator(_as_list), Field(min_length=1)]


class BenchmarkData(TomlTable):
    """Data set.

    Args:
        source: Source of the samples, as `load_data` takes it, such as `cifar10:data`.
        radii: Norm to the radius at which robust accuracy is compared, such as "8/255".
    """

    source: Text
    radii: Mapping[Norm, Radius] = {}


class BenchmarkModel(TomlTable):
    """Model.

    Args:
        id: Short name; tables show it and folders are named after it.
        source: Source of the model, as `load_model` takes it. Without a source the model is skipped
            unless `--source ID=…` names a copy.
        data: Name of its data set.
        split: `train`: greedy ensembles are allocated on it; or `held-out`.
        batch: Samples per batch.
        about: Free text, such as the authors.
    """

    id: Annotated[str, StringConstraints(pattern=r"[A-Za-z0-9]")]
    source: Text | None = None
    data: Text
    split: Split
    batch: Count
    about: str = ""


class Benchmark(TomlTable):
    """Contents of a benchmark's file.

    Args:
        samples: Number of samples of every data set; the first ones are taken.
        budgets: Rising numbers of queries per sample, such as `["4k", "8k", "12k"]`.
        pool: Traced runs: names of runs, or pools such as `paper`.
        baseline: Models that AutoAttack attacks: those of a split, or `all`. Default: none.
        published: Use the solvers as published, and the paper's allocation as printed.
        data: Name to data set.
        models: Models to evaluate, one at least.
    """

    samples: Count
    budgets: Budgets
    pool: Runs = ("paper",)
    baseline: Literal["all", "train", "held-out"] | None = None
    published: Annotated[bool, Field(strict=True)] = False
    data: Mapping[str, BenchmarkData]
    models: Annotated[tuple[BenchmarkModel, ...], Field(min_length=1)]

    @model_validator(mode="after")
    def _check_models(self) -> Benchmark:
        seen: set[str] = set()
        for number, model in enumerate(self.models, 1):
            if model.id in seen:
                raise ValueError(f"two models have the id {model.id!r}: expected one each")
            seen.add(model.id)
            if model.data not in self.data:
                known = ", ".join(self.data) or "a table [data.NAME]"
                raise ValueError(
                    f"models {number} ({model.id}): data = {model.data!r}: expected {known}"
                )
        return self

    def __getitem__(self, model: str) -> BenchmarkModel:
        for entry in self.models:
            if entry.id == model:
                return entry
        known = ", ".join(entry.id for entry in self.models)
        raise FrontierError(f"the benchmark has no model {model!r}: it has {known}")

    def baseline_on(self, model: BenchmarkModel) -> bool:
        """Tell whether AutoAttack attacks a model.

        Args:
            model: One of the benchmark's models.
        """
        return self.baseline in ("all", model.split)

    def with_sources(self, sources: Mapping[str, str]) -> Benchmark:
        """Return the benchmark with sources of some models, such as `{"C8": "mine.py:c8"}`.

        Args:
            sources: Id of a model to its source.
        """
        for name in sources:
            self[name]
        models = []
        for model in self.models:
            source = sources.get(model.id, model.source)
            models.append(model.model_copy(update={"source": source}))
        return self.model_copy(update={"models": tuple(models)})

    def with_samples(self, samples: int) -> Benchmark:
        """Return the benchmark on another number of samples of every data set.

        Args:
            samples: Number of samples; the first ones are taken.
        """
        if samples < 1:
            raise FrontierError(f"{samples} samples: expected at least 1")
        return self.model_copy(update={"samples": samples})

    def with_data(self, names: Iterable[str]) -> Benchmark:
        """Return the benchmark on some of its data sets, with their models.

        Args:
            names: Names of data sets of the benchmark.
        """
        kept = {}
        for name in names:
            if name not in self.data:
                raise FrontierError(
                    f"the benchmark has no data {name!r}: it has {', '.join(self.data)}"
                )
            kept[name] = self.data[name]
        models = tuple(model for model in self.models if model.data in kept)
        if not models:
            raise FrontierError(f"no model is evaluated on {', '.join(kept)}: name other data")
        return self.model_copy(update={"data": kept, "models": models})


def benchmark_names() -> tuple[str, ...]:
    """Return the names of the benchmarks that ship with the package."""
    return tuple(sorted(path.stem for path in _SHIPPED.glob("*.toml")))


def load_benchmark(place: str | PathLike[str]) -> Benchmark:
    """Read a benchmark that ships with the package, by its name, or a TOML file.

    Args:
        place: A name, such as `paper`, or the path of a file.
    """
    path = Path(place)
    if str(place) in benchmark_names():
        path = _SHIPPED / f"{place}.toml"
    if not path.is_file():
        raise FrontierError(
            f"no benchmark {str(place)!r}: expected a TOML file, or one of "
            f"{', '.join(benchmark_names())}"
        )
    return read_toml(Benchmark, path)
