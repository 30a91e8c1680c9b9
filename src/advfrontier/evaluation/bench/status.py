"""What is done, what is left and what it will cost, from the names of the files alone."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from advfrontier.errors import FrontierError
from advfrontier.evaluation.bench.allocating import ensemble_file
from advfrontier.evaluation.bench.baselines import missing_tasks, radii_of
from advfrontier.evaluation.bench.costs import Calibration
from advfrontier.evaluation.bench.run import Failure, read_failures
from advfrontier.evaluation.session import shards, units_of
from advfrontier.evaluation.units import read_clean
from advfrontier.store import Store, UnitName, open_folder

if TYPE_CHECKING:
    from collections.abc import Iterator

    from advfrontier.bench.benchmark import BenchmarkModel
    from advfrontier.evaluation.bench.layout import Bench

_RADII = 9  # percentiles of the frontier at which the baseline is run, beside the reference radii
# AutoAttack's queries per sample, as the paper's table of costs has them: by far the most go to those it cannot break.
_PER_ROBUST, _PER_BROKEN = 9600, 200
_CLASSES = 10  # where neither a record nor the data says how many there are


@dataclass(frozen=True)
class Part:
    """One model in one norm: its trace, or its baseline."""

    model: str
    norm: str
    stage: str  # "trace" or "baseline"
    units: int
    done: int
    queries: int  # of all samples together, of the units left
    seconds: float | None  # estimated, on one process
    bytes: float | None

    @property
    def left(self) -> int:
        """Units still to be done."""
        return self.units - self.done


@dataclass(frozen=True)
class Status:
    """A benchmark as it stands."""

    name: str
    out: str
    parts: tuple[Part, ...]
    ensembles: tuple[str, ...]  # files that are there
    results: bool
    failures: tuple[Failure, ...]  # of the last run, where something is left to do
    notes: tuple[str, ...]

    @property
    def queries(self) -> int:
        """Queries left, over all samples."""
        return sum(part.queries for part in self.parts)

    @property
    def seconds(self) -> float | None:
        """Seconds left on one process; None if it was not calibrated."""
        known = [part.seconds for part in self.parts if part.left]
        return None if None in known else sum(seconds for seconds in known if seconds is not None)

    @property
    def bytes(self) -> float | None:
        """Disk that the units left will take; None if it was not calibrated."""
        known = [part.bytes for part in self.parts if part.left]
        return None if None in known else sum(size for size in known if size is not None)


def status(bench: Bench, calibration: Calibration | None = None) -> Status:
    """How far a benchmark has come. Reads names of files, and of each record what it is of."""
    known = calibration or Calibration()
    notes: dict[str, None] = {}
    parts = [_trace_part(bench, model, norm, known, notes) for model, norm in bench.jobs]
    parts += [_baseline_part(bench, model, norm, known) for model, norm in bench.jobs if bench.has_baseline(norm)]
    files = set(open_folder(bench.out).names("ensembles"))
    wanted = [f"ensembles/{ensemble_file(norm, b)}" for norm in bench.benchmark.norms for b in bench.benchmark.budgets]
    unfinished = {(part.model, part.norm) for part in parts if part.left}
    failures = [
        failure
        for failure in read_failures(bench.out)
        if (failure.model, failure.norm) in unfinished or failure.stage == "allocation"
    ]
    return Status(
        name=bench.benchmark.name,
        out=bench.out,
        parts=tuple(parts),
        ensembles=tuple(file for file in wanted if file in files),
        results=open_folder(bench.results).read("results.json") is not None,
        failures=tuple(failures),
        notes=tuple(notes),
    )


def _trace_part(bench: Bench, model: BenchmarkModel, norm: str, known: Calibration, notes: dict[str, None]) -> Part:
    store = Store(bench.trace(model, norm))
    done = store.units()
    units = done_units = queries = 0
    seconds: list[float | None] = []
    size = 0.0
    for unit, rows in _wanted(bench, model, norm, store, notes):
        units += 1
        reached = min(done.get(unit, 0), bench.queries)
        if reached == bench.queries:
            done_units += 1
            continue
        left = (bench.queries - reached) * rows
        queries += left
        rate = known.seconds(model.id, norm, unit.run)
        seconds.append(None if rate is None else rate * left)
        size += known.bytes(rows, bench.queries)
    estimated = None if None in seconds else sum(part for part in seconds if part is not None)
    return Part(model.id, norm, "trace", units, done_units, queries, estimated, size if known.unit_bytes else None)


def _wanted(
    bench: Bench, model: BenchmarkModel, norm: str, store: Store, notes: dict[str, None]
) -> Iterator[tuple[UnitName, int]]:
    """The units of a trace and how many samples each attacks: all of them, where the model has not been tried yet."""
    held: dict[str, Any] | None = store.record()
    clean = read_clean(store) if held is not None else None
    samples = bench.benchmark.data[model.data].samples
    if held is not None and clean is not None and len(clean.labels) >= samples:
        yield from (
            (unit, len(rows)) for unit, rows in units_of(clean, held["shard"], bench.runs(norm, held["classes"]))
        )
        return
    classes = held["classes"] if held is not None else _classes(bench, model, notes)
    for run in bench.runs(norm, classes):
        for first, count in shards(samples, model.batch):
            yield UnitName(run, first, count), count


def _classes(bench: Bench, model: BenchmarkModel, notes: dict[str, None]) -> int:
    try:
        samples = bench.samples(model)
    except FrontierError as error:
        notes[f"the data of {model.data} cannot be read yet: {error}"] = None
        return _CLASSES
    return len(samples.class_names) if samples.class_names else int(samples.labels.max()) + 1


def _baseline_part(bench: Bench, model: BenchmarkModel, norm: str, known: Calibration) -> Part:
    store = Store(bench.baseline(model, norm))
    samples = bench.benchmark.data[model.data].samples
    references = bench.radii(norm)[model.data]
    chosen = radii_of(store.place)
    # Before the trace is finished its percentiles are not known, only how many there will be.
    radii = sorted({*chosen, *references}) if chosen else [-float(k) for k in range(_RADII + len(references))]
    tasks = missing_tasks(store, radii, samples, model.baseline_batch)
    units = len(radii) * len(shards(samples, model.baseline_batch))
    # The percentiles of the frontier break a tenth to nine tenths of the samples: half of them, on average.
    queries = sum(task.count for task in tasks) * (_PER_ROBUST + _PER_BROKEN) // 2
    rate = known.models.get(model.id)
    return Part(
        model.id,
        norm,
        "baseline",
        units,
        units - len(tasks),
        queries,
        None if rate is None else rate * queries,
        known.unit_bytes * len(tasks) if known.unit_bytes else None,
    )


def disk_used(out: str) -> int:
    """Bytes of all files of a benchmark that lies on this machine."""
    return sum(path.stat().st_size for path in Path(out).rglob("*") if path.is_file()) if "://" not in out else 0
