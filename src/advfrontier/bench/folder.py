"""Folder of a benchmark: its tasks, and the records that are finished.

| folder | what |
|---|---|
| `traces/F1/L2` | record of every run of the pool on its own |
| `ensembles/L2-4k.toml` | greedy ensembles, allocated on the training models |
| `evaluations/F1/L2` | record of the default ensemble |
| `baselines/F1/L2` | record of AutoAttack |
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from os import PathLike
from pathlib import Path

from advfrontier.bench.benchmark import Benchmark, BenchmarkModel, load_benchmark
from advfrontier.errors import FrontierError
from advfrontier.evaluation.baseline import KnownPoints, load_baseline, why_no_autoattack
from advfrontier.evaluation.evaluation import Evaluation
from advfrontier.evaluation.trace import Traces, finished_runs, load_traces
from advfrontier.pool import (
    CHECKPOINT,
    MAX_QUERIES,
    POOLS,
    TIERS,
    Run,
    check_run,
    facts_of,
    pool,
)
from advfrontier.record import Record, folder_name
from advfrontier.solvers import PUBLISHED, Solver, check_published
from advfrontier.sources import Samples, load_data
from advfrontier.table import Column, Table
from advfrontier.threat.names import NORMS, norm_symbol

TRACE, EVALUATE, BASELINE = "trace", "evaluate", "baseline"
STAGES = (TRACE, EVALUATE, BASELINE)
_STEPS = 12  # budgets between which the AOI is drawn


@dataclass(frozen=True)
class Bench:
    """Benchmark and the folder it is run in.

    Args:
        name: Name of the benchmark.
        benchmark: Benchmark to run.
        out: Folder of all records.
    """

    name: str
    benchmark: Benchmark
    out: str

    @classmethod
    def open(cls, place: str | PathLike[str], out: str | PathLike[str] | None = None) -> Bench:
        """Read a benchmark; its folder is `out`, by default `bench/NAME`.

        Args:
            place: A name, such as `paper`, or the path of a TOML file.
            out: Folder of all records.
        """
        name = Path(place).stem
        return cls(name, load_benchmark(place), str(out or f"bench/{folder_name(name)}"))

    @property
    def queries(self) -> int:
        """Return how far every run is traced: to its end, or to the largest budget."""
        return min(MAX_QUERIES, self.benchmark.budgets[-1])

    @property
    def budget(self) -> int:
        """Return the queries per sample of the default ensemble."""
        return min(self.benchmark.budgets[-1], TIERS[-1])

    @property
    def stages(self) -> tuple[str, ...]:
        """Return what the benchmark consists of; published solvers have no default ensemble."""
        return (TRACE, BASELINE) if self.benchmark.published else STAGES

    def chosen_stages(self, text: str | None) -> tuple[str, ...]:
        """Read stages such as `evaluate,baseline`; None means all of the benchmark.

        Args:
            text: Some of trace, evaluate and baseline, with commas between them.
        """
        if text is None:
            return self.stages
        chosen = tuple(part.strip() for part in text.split(","))
        for stage in chosen:
            if stage not in self.stages:
                raise FrontierError(
                    f"{self.name} has no stage {stage!r}: expected some of {', '.join(self.stages)}"
                )
        return chosen

    @property
    def models(self) -> tuple[BenchmarkModel, ...]:
        """Return the models that have a source."""
        return tuple(model for model in self.benchmark.models if model.source is not None)

    def models_of(self, stage: str, norm: str) -> list[BenchmarkModel]:
        """Return the models that a stage is done on in a norm.

        Args:
            stage: `trace`, `evaluate` or `baseline`.
            norm: Name of the norm.
        """
        if stage != BASELINE:
            return list(self.models)
        if why_no_autoattack(norm) is not None:
            return []
        return [model for model in self.models if self.benchmark.baseline_on(model)]

    @property
    def grid(self) -> list[int]:
        """Return the budgets that tables hold: the benchmark's own, and even steps between them."""
        last = self.benchmark.budgets[-1]
        step = max(CHECKPOINT, last // _STEPS // CHECKPOINT * CHECKPOINT)
        return sorted({*self.benchmark.budgets, *range(step, last + 1, step)})

    @property
    def solvers(self) -> Mapping[str, Solver] | None:
        """Return the solvers in place of the attacks' own."""
        return PUBLISHED if self.benchmark.published else None

    def folder(self, kind: str, model: str, norm: str = "") -> str:
        """Return the folder of a record, such as `OUT/traces/F1/L2`.

        Args:
            kind: Folder of the kind of records: `traces`, `evaluations` or `baselines`.
            model: Id of the model.
            norm: Name of the norm.
        """
        place = f"{self.out}/{kind}/{folder_name(model)}"
        return f"{place}/{norm}" if norm else place

    def runs(self, norm: str, classes: int) -> list[str]:
        """Return the runs of the pool that exist in a norm for a number of classes.

        Args:
            norm: Name of the norm.
            classes: Number of classes of the model, which limits the targets.
        """
        runs: dict[str, None] = {}
        for name in self.benchmark.pool:
            if name in POOLS:
                runs |= dict.fromkeys(str(run) for run in pool(norm, classes=classes, name=name))
                continue
            with suppress(FrontierError):  # a run that this norm or so few classes do not have
                check_run(Run.parse(name), norm, classes)
                runs[name] = None
        if not runs:
            raise FrontierError(
                f"the pool of {self.name} has no run in {norm}: found "
                f"{', '.join(self.benchmark.pool)}; type `advfrontier pool --norm {norm}`"
            )
        return list(runs)

    def samples(self, model: BenchmarkModel, *, download: bool = False) -> Samples:
        """Return the samples that a model is evaluated on.

        Args:
            model: One of the benchmark's models.
            download: Fetch data that are not on this machine.
        """
        source = self.benchmark.data[model.data].source
        return load_data(source, samples=self.benchmark.samples, download=download)

    def check(self) -> None:
        """Raise if a run of the pool exists in no norm, or has no published solver if asked for."""
        for name in self.benchmark.pool:
            if name not in POOLS:
                run = Run.parse(name)
                facts = facts_of(run.solver)
                check_run(run, facts.norms[0] if facts is not None else NORMS[0])
        if self.benchmark.published:
            check_published(self.benchmark.pool)


def finished_trace(bench: Bench, model: BenchmarkModel, norm: str) -> Record | None:
    """Return the record of a model's trace if it has all runs that the benchmark asks for.

    Args:
        bench: Benchmark, and the folder of its records.
        model: One of its models.
        norm: Name of the norm.
    """
    with suppress(FrontierError):
        record = Record.open(bench.folder("traces", model.id, norm), "trace")
        reached = finished_runs(record)
        wanted = bench.runs(norm, record.clean.classes)
        if all(reached.get(run, 0) >= bench.queries for run in wanted):
            return record if len(record.clean.names) == bench.benchmark.samples else None
    return None


def read_trace(bench: Bench, record: Record) -> Traces:
    """Return what the benchmark asks for; a record may hold other or longer runs.

    Args:
        bench: Benchmark whose runs and queries are read.
        record: Finished trace of one of its models.
    """
    runs = bench.runs(record.header.terms.norm, record.clean.classes)
    steps = range(CHECKPOINT, bench.queries + 1, CHECKPOINT)
    return load_traces(record.place, runs=runs).thin(steps)


def finished_evaluation(bench: Bench, model: BenchmarkModel, norm: str) -> Evaluation | None:
    """Return the evaluation of a model if it is finished.

    Args:
        bench: Benchmark, and the folder of its records.
        model: One of its models.
        norm: Name of the norm.
    """
    with suppress(FrontierError):
        evaluation = Evaluation.load(bench.folder("evaluations", model.id, norm))
        if evaluation.finished and evaluation.ensemble.total >= bench.budget:
            return evaluation if len(evaluation.samples) == bench.benchmark.samples else None
    return None


def finished_baseline(bench: Bench, model: BenchmarkModel, norm: str) -> KnownPoints | None:
    """Return AutoAttack's points on a model if they are finished.

    Args:
        bench: Benchmark, and the folder of its records.
        model: One of its models.
        norm: Name of the norm.
    """
    with suppress(FrontierError):
        return load_baseline(bench.folder("baselines", model.id, norm))
    return None


def status(bench: Bench, *, norms: Sequence[str] = NORMS) -> Table:
    """Return how many models are finished, per stage and norm. Writes nothing.

    Args:
        bench: Benchmark, and the folder of its records.
        norms: Names of the norms to count in, such as `L2`.
    """
    find: dict[str, Callable[[Bench, BenchmarkModel, str], object]] = {
        TRACE: finished_trace,
        EVALUATE: finished_evaluation,
        BASELINE: finished_baseline,
    }
    rows = []
    for stage in bench.stages:
        for norm in norms:
            models = bench.models_of(stage, norm)
            missing = [model.id for model in models if find[stage](bench, model, norm) is None]
            if models:
                done = len(models) - len(missing)
                rows.append((stage, norm, done, len(models), " ".join(missing) or None))
    columns = (
        Column("stage"),
        Column("norm", "norm"),
        Column("finished", "integer"),
        Column("models", "integer"),
        Column("missing", folds=True),
    )
    nameless = [model.id for model in bench.benchmark.models if model.source is None]
    notes = [f"{name} has no source: type --source {name}=file.py:factory" for name in nameless]
    for norm in norms:
        reason = why_no_autoattack(norm)
        if bench.benchmark.baseline and reason:
            notes.append(f"{norm_symbol(norm)}: {reason}")
    return Table("", columns, tuple(rows), tuple(notes))
