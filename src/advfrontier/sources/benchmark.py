"""Benchmarks as files: which models on which samples, in which norms, with which budgets.

`load_benchmark("paper")` reads one that ships with the package, `load_benchmark("mine.toml")` one of the user's own.
Nothing is loaded or fetched by reading it.
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass, field, replace
from fractions import Fraction
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from advfrontier.errors import FrontierError
from advfrontier.pool.ensemble import tier_queries
from advfrontier.pool.runs import Run
from advfrontier.threat.names import NORMS, norm_name

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from os import PathLike

Split = Literal["train", "held-out"]
SPLITS: tuple[Split, ...] = ("train", "held-out")


@dataclass(frozen=True)
class BenchmarkData:
    """A data set: what `load_samples` takes, and the radii at which accuracy is compared."""

    name: str
    source: str
    samples: int
    seed: int | None = None  # None: the first samples
    radii: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    preprocessing: str | None = None  # for sources that have it


@dataclass(frozen=True)
class BenchmarkModel:
    """A defence: what `load_model` takes, and which data and split it belongs to."""

    id: str
    source: str | None  # None: `origin` says where it comes from, and the user names a copy
    data: str
    split: Split
    batch: int
    baseline_batch: int  # AutoAttack's
    trained: tuple[str, ...] = ()  # norms it was trained against
    preprocessing: str | None = None  # instead of the data set's: its samples are then not those of the others
    authors: str = ""
    origin: str = ""
    alternatives: tuple[str, ...] = ()  # other sources that fit what is known
    note: str = ""


@dataclass(frozen=True)
class Benchmark:
    """What to run."""

    name: str
    norms: tuple[str, ...]
    budgets: tuple[int, ...]
    seed: int
    data: Mapping[str, BenchmarkData]
    models: tuple[BenchmarkModel, ...]
    pool: tuple[str, ...] | None = None  # names of runs; None: all of them
    baseline: str | None = None

    def __getitem__(self, model: str) -> BenchmarkModel:
        for found in self.models:
            if found.id == model:
                return found
        raise FrontierError(f"{self.name} has no model {model!r}: it has {', '.join(m.id for m in self.models)}")

    def split(self, name: Split) -> tuple[BenchmarkModel, ...]:
        """The models of one split."""
        return tuple(model for model in self.models if model.split == name)

    def data_source(self, model: str) -> str:
        """What `load_samples` takes for a model: its data set with its preprocessing."""
        found = self[model]
        data = self.data[found.data]
        preprocessing = found.preprocessing or data.preprocessing
        if preprocessing is None:
            return data.source
        return f"{data.source}{'&' if '?' in data.source else '?'}preprocessing={preprocessing}"

    def with_sources(self, sources: Mapping[str, str]) -> Benchmark:
        """Say where some models are to be found: `{"C8": "mine.py:c8"}`."""
        for name in sources:
            self[name]
        models = tuple(replace(m, source=sources.get(m.id, m.source)) for m in self.models)
        return replace(self, models=models)


def benchmark_names() -> tuple[str, ...]:
    """The benchmarks that ship with the package."""
    folder = files("advfrontier").joinpath("benchmarks")
    return tuple(sorted(entry.name.removesuffix(".toml") for entry in folder.iterdir() if entry.name.endswith(".toml")))


def load_benchmark(place: str | PathLike[str]) -> Benchmark:
    """Read a benchmark by the name of one that ships with the package, or from a TOML file."""
    if str(place) in benchmark_names():
        text = files("advfrontier").joinpath("benchmarks", f"{place}.toml").read_text(encoding="utf-8")
    elif Path(place).is_file():
        text = Path(place).read_text(encoding="utf-8")
    else:
        raise FrontierError(
            f"no benchmark {str(place)!r}: expected a TOML file, or one of {', '.join(benchmark_names())}"
        )
    try:
        return _benchmark(_Table(tomllib.loads(text), str(place)))
    except tomllib.TOMLDecodeError as error:
        raise FrontierError(f"{place}: not TOML ({error})") from error


class _Table:
    """A table of the file. Every key is asked for by name and type; what nobody asked for is a mistake."""

    def __init__(self, content: Any, where: str) -> None:
        if not isinstance(content, dict):
            raise FrontierError(f"{where}: found {type(content).__name__}: expected a table")
        self.content, self.where, self.asked = content, where, set[str]()

    def take(self, key: str, kind: type | tuple[type, ...], expected: str, default: Any = ...) -> Any:
        self.asked.add(key)
        value = self.content.get(key, default)
        if value is ...:
            raise FrontierError(f"{self.where}: has no {key}: expected {expected}")
        if key in self.content and (not isinstance(value, kind) or isinstance(value, bool)):
            raise FrontierError(f"{self.where}: {key} = {value!r}: expected {expected}")
        return value

    def text(self, key: str, default: Any = ...) -> Any:
        return self.take(key, str, 'a text in "quotes"', default)

    def number(self, key: str, default: Any = ...) -> Any:
        value = self.take(key, int, "a whole number", default)
        if value is not None and value < 0:
            raise FrontierError(f"{self.where}: {key} = {value}: expected a number ≥ 0")
        return value

    def texts(self, key: str, default: Any = ...) -> tuple[str, ...]:
        value = self.take(key, list, 'a list of texts, ["…", "…"]', default)
        if not all(isinstance(part, str) for part in value):
            raise FrontierError(f'{self.where}: {key} = {value!r}: expected a list of texts, ["…", "…"]')
        return tuple(value)

    def finish(self) -> None:
        if unknown := sorted(set(self.content) - self.asked):
            known = ", ".join(sorted(self.asked))
            raise FrontierError(f"{self.where}: unknown key {unknown[0]!r}: expected one of {known}")


def _benchmark(table: _Table) -> Benchmark:
    name = table.text("name")
    samples = _positive(table, "samples")
    data = {
        key: _data(_Table(content, f"{name}: data.{key}"), key, samples)
        for key, content in table.take("data", dict, "at least one table [data.NAME]").items()
    }
    models = tuple(
        _model(_Table(content, f"{name}: model {place}"), data)
        for place, content in enumerate(table.take("models", list, "a list of tables [[models]]"), 1)
    )
    pool = table.take("pool", (str, list), 'pool = "all" or a list of runs', "all")
    found = Benchmark(
        name,
        _norms(table.texts("norms", list(NORMS)), f"{name}: norms"),
        tuple(tier_queries(budget) for budget in table.take("budgets", list, '["4k", "8k"]')),
        table.number("seed"),
        data,
        models,
        None if pool == "all" else _runs(table.texts("pool"), name),
        table.text("baseline", None),
    )
    table.finish()
    _check(found)
    return found


def _check(found: Benchmark) -> None:
    if not found.models or not found.norms or not found.budgets:
        raise FrontierError(f"{found.name}: expected at least one model, one norm and one budget")
    if list(found.budgets) != sorted(set(found.budgets)):
        raise FrontierError(f"{found.name}: budgets {list(found.budgets)}: expected them in rising order")
    if repeated := _repeated(model.id for model in found.models):
        raise FrontierError(f"{found.name}: two models have the id {repeated!r}: expected one each")
    if found.baseline not in (None, "autoattack"):
        raise FrontierError(f'{found.name}: baseline = {found.baseline!r}: expected "autoattack", or none')


def _data(table: _Table, name: str, samples: int) -> BenchmarkData:
    source, own = table.text("source"), _positive(table, "samples", samples)
    radii = {
        norm_name(norm): tuple(_radius(value, table.where) for value in (given if isinstance(given, list) else [given]))
        for norm, given in table.take("radii", dict, '{ Linf = "8/255" }', {}).items()
    }
    found = BenchmarkData(name, source, own, table.number("seed", None), radii, table.text("preprocessing", None))
    table.finish()
    return found


def _model(table: _Table, data: Mapping[str, BenchmarkData]) -> BenchmarkModel:
    name = table.text("id")
    table.where = f"{table.where} ({name})"
    source, origin = table.text("source", None), table.text("origin", "")
    if source is None and not origin:
        raise FrontierError(f"{table.where}: has neither a source nor an origin: expected one of them")
    belongs, split = table.text("data"), table.text("split")
    if belongs not in data:
        raise FrontierError(f"{table.where}: data = {belongs!r}: expected one of {', '.join(data)}")
    if split not in SPLITS:
        raise FrontierError(f"{table.where}: split = {split!r}: expected one of {', '.join(SPLITS)}")
    batch = _positive(table, "batch")
    found = BenchmarkModel(
        name,
        source,
        belongs,
        split,
        batch,
        _positive(table, "baseline_batch", batch),
        _norms(table.texts("trained", []), f"{table.where}: trained"),
        table.text("preprocessing", None),
        table.text("authors", ""),
        origin,
        table.texts("alternatives", []),
        table.text("note", ""),
    )
    table.finish()
    return found


def _positive(table: _Table, key: str, default: Any = ...) -> int:
    value: int = table.number(key, default)
    if value < 1:
        raise FrontierError(f"{table.where}: {key} = {value}: expected a number ≥ 1")
    return value


def _norms(names: Iterable[str], where: str) -> tuple[str, ...]:
    found = tuple(norm_name(name) for name in names)
    if repeated := _repeated(found):
        raise FrontierError(f"{where}: {repeated} is named twice")
    return found


def _runs(names: tuple[str, ...], where: str) -> tuple[str, ...]:
    if not names:
        raise FrontierError(f'{where}: pool is empty: expected runs such as "fmn", or pool = "all"')
    return tuple(str(Run.parse(name)) for name in names)


def _radius(value: Any, where: str) -> float:
    try:
        radius = float(Fraction(value)) if isinstance(value, str) else float(value)
    except (ValueError, TypeError, ZeroDivisionError):
        radius = -1.0
    if not 0 < radius < float("inf"):
        raise FrontierError(f'{where}: radius {value!r}: expected a positive number or a fraction such as "8/255"')
    return radius


def _repeated(names: Iterable[str]) -> str | None:
    seen: set[str] = set()
    return next((name for name in names if name in seen or seen.add(name)), None)  # type: ignore[func-returns-value]
