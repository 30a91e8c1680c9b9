"""What is done, what is left and what it will cost, from the names of the files alone."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from advfrontier.bench.allocation import ensemble_file
from advfrontier.bench.baselines import radii_of
from advfrontier.bench.calibration import Calibration, calibrate, read_calibration
from advfrontier.bench.run import Failure, read_failures
from advfrontier.engine import find_device
from advfrontier.errors import FrontierError
from advfrontier.jobs.autoattack import missing_radii
from advfrontier.record import Record, UnitName, open_folder
from advfrontier.record.units import shards_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from advfrontier.bench.benchmark import BenchmarkModel
    from advfrontier.bench.layout import Bench

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
        return known_sum(part.seconds for part in self.parts if part.left)

    @property
    def bytes(self) -> float | None:
        """Disk that the units left will take; None if it was not calibrated."""
        return known_sum(part.bytes for part in self.parts if part.left)


def known_sum(values: Iterable[float | None]) -> float | None:
    """The sum; None if any of them is not known."""
    every = list(values)
    return None if None in every else sum(value for value in every if value is not None)


def estimated_status(bench: Bench, *, device: str, threads: int, measure: bool = True) -> Status:
    """The status with what is left in time and disk; how long a query takes here is measured if it is not known."""
    standing = status(bench, read_calibration(bench.out, device=device, threads=threads))
    if not measure or not standing.queries or standing.seconds is not None:
        return standing
    find_device(device)
    busy = {part.model for part in standing.parts if part.left}
    models = [model for model in bench.benchmark.models if model.id in busy]
    return status(bench, calibrate(bench, models, device=device, threads=threads))


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
    record = Record.find(bench.trace(model, norm))
    done = record.units() if record is not None else {}
    units = done_units = queries = 0
    seconds: list[float | None] = []
    size = 0.0
    for unit, rows in _wanted(bench, model, norm, record, notes):
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
    estimated = size if known.unit_bytes else None
    return Part(model.id, norm, "trace", units, done_units, queries, known_sum(seconds), estimated)


def _wanted(
    bench: Bench, model: BenchmarkModel, norm: str, record: Record | None, notes: dict[str, None]
) -> Iterator[tuple[UnitName, int]]:
    """The units of a trace and how many samples each attacks: all of them, where the model has not been tried yet."""
    clean = record.read_clean() if record is not None else None
    samples = bench.benchmark.data[model.data].samples
    if record is not None and clean is not None and len(clean.labels) >= samples:
        yield from ((unit, len(rows)) for unit, rows in record.layout(bench.runs(norm, clean.classes)))
        return
    classes = clean.classes if clean is not None else _classes(bench, model, notes)
    for run in bench.runs(norm, classes):
        for first, count in shards_of(samples, model.batch):
            yield UnitName(run, first, count), count


def _classes(bench: Bench, model: BenchmarkModel, notes: dict[str, None]) -> int:
    try:
        samples = bench.samples(model)
    except FrontierError as error:
        notes[f"the data of {model.data} cannot be read yet: {error}"] = None
        return _CLASSES
    return len(samples.class_names) if samples.class_names else int(samples.labels.max()) + 1


def _baseline_part(bench: Bench, model: BenchmarkModel, norm: str, known: Calibration) -> Part:
    place = bench.baseline(model, norm)
    references, chosen = bench.radii(norm)[model.data], radii_of(place)
    # Before the trace is finished its percentiles are not known, only how many there will be.
    radii = sorted({*chosen, *references}) if chosen else [-float(k) for k in range(_RADII + len(references))]
    shards = shards_of(bench.benchmark.data[model.data].samples, model.baseline_batch)
    tasks, units = missing_radii(open_folder(place), radii, shards), len(radii) * len(shards)
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
    """Bytes of all files below a folder on this machine."""
    return sum(path.stat().st_size for path in Path(out).rglob("*") if path.is_file()) if "://" not in out else 0
