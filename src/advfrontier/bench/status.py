"""What is done, what is left and what it will cost, from the names of the files alone. NaN is what is not known."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from advfrontier.bench.allocation import ensemble_file
from advfrontier.bench.baselines import radii_of
from advfrontier.bench.benchmark import BenchmarkModel
from advfrontier.bench.calibration import Calibration, calibrate, read_calibration
from advfrontier.bench.layout import Bench
from advfrontier.bench.races import finished_race, learned_race, race_place
from advfrontier.bench.run import Failure, read_failures
from advfrontier.engine import find_device
from advfrontier.errors import FrontierError
from advfrontier.jobs.autoattack import missing_radii
from advfrontier.jsonable import jsonable
from advfrontier.pool import CHECKPOINT
from advfrontier.record import Record, UnitName, open_folder
from advfrontier.record.units import shards_of
from advfrontier.table import Column, Share, Table
from advfrontier.threat.names import SYMBOLS

_RADII = 9  # percentiles of the frontier at which the baseline is run, beside the reference radii
# AutoAttack's queries per sample, as the paper's table of costs has them: by far the most go to those it cannot break.
_PER_ROBUST, _PER_BROKEN = 9600, 200
_CLASSES = 10  # where neither a record nor the data says how many there are
_HEAD, _SAMPLE, _POINT = 1100, 21, 8  # bytes of a unit's file: for itself, per sample, and at every checkpoint of it
_SHOWN = 10  # failures written out


@dataclass(frozen=True)
class Part:
    """One model in one norm: its trace, its race, or its baseline."""

    model: str
    norm: str
    stage: str  # "trace", "race" or "baseline"
    units: int
    done: int
    queries: int  # of all samples together, of the units left
    seconds: float  # that the units left will take, on one process
    bytes: int  # that they will fill

    @property
    def left(self) -> int:
        """Units still to be done."""
        return self.units - self.done


@dataclass(frozen=True)
class Status:
    """How far a benchmark has come."""

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
    def seconds(self) -> float:
        """Seconds left on one process."""
        return sum(part.seconds for part in self.parts)

    @property
    def bytes(self) -> int:
        """Disk that the units left will take."""
        return sum(part.bytes for part in self.parts)

    def table(self, *, workers: int) -> Table:
        """How far every stage has come in every norm, what is left in all, and what failed."""
        columns = (
            Column("", key="stage"), Column("finished", "integer"), Column("units", "count"), Column("done", "count"),
            Column("queries left", "count"),
            Column(f"time with {workers} workers" if workers > 1 else "time", "duration", key="seconds left"),
            Column("disk to come", "bytes", key="bytes left"), Column("on disk", "bytes", key="bytes"),
        )  # fmt: skip
        rows = []
        for stage, norm in dict.fromkeys((part.stage, part.norm) for part in self.parts):
            parts = [part for part in self.parts if (part.stage, part.norm) == (stage, norm)]
            used = sum(disk_used(str(folder)) for folder in Path(self.out).glob(f"{stage}s/**/{norm}"))
            rows.append((f"{stage} in {SYMBOLS[norm]}", *_left(parts, workers), used))
        rows.append(("in all", *_left(self.parts, workers), disk_used(self.out)))
        return Table("", columns, tuple(rows), tuple(self._notes()))

    def _notes(self) -> Iterator[str]:
        yield f"ensembles: {len(self.ensembles)} files; results: {'written' if self.results else 'not yet'}"
        if not self.queries:
            yield "nothing is left to run"
        if any(part.stage == "baseline" and part.left for part in self.parts):
            yield "what AutoAttack takes depends on the model: its queries are a rule of thumb"
        yield from self.notes
        yield from (f"failed: {failure}" for failure in self.failures[:_SHOWN])
        if len(self.failures) > _SHOWN:
            yield f"and {len(self.failures) - _SHOWN} more failures"

    def facts(self, *, workers: int) -> dict[str, Any]:
        """The same for programs."""
        left = {"queries": self.queries, "seconds": self.seconds, "bytes": self.bytes, "used": disk_used(self.out)}
        return {**jsonable(self), "left": jsonable(left), "workers": workers}


def _left(parts: Sequence[Part], workers: int) -> tuple[Any, ...]:
    """Models that are finished, units, those done, and what the others will take."""
    return (
        Share(sum(not part.left for part in parts), len(parts)),
        sum(part.units for part in parts),
        sum(part.done for part in parts),
        sum(part.queries for part in parts),
        sum(part.seconds for part in parts) / workers,
        sum(part.bytes for part in parts),
    )


def estimated_status(bench: Bench, *, device: str, threads: int, measure: bool = True) -> Status:
    """The status with what is left in time and disk; how long a query takes here is measured if it is not known."""
    standing = status(bench, read_calibration(bench.out, device=device, threads=threads))
    if not measure or not math.isnan(standing.seconds):
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
    if bench.raced:
        parts += [_race_part(bench, model, norm, known) for model, norm in bench.jobs]
    parts += [
        _baseline_part(bench, model, norm, known) for model, norm in bench.jobs if bench.has_baseline(norm, model)
    ]
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
    wanted = list(_wanted(bench, model, norm, record, notes))
    left = [(unit.run, rows, bench.queries - done.get(unit, 0)) for unit, rows in wanted]
    left = [(run, rows, queries) for run, rows, queries in left if queries > 0]
    return Part(
        model.id,
        norm,
        "trace",
        units=len(wanted),
        done=len(wanted) - len(left),
        queries=sum(rows * queries for _, rows, queries in left),
        seconds=sum(known.seconds(model.id, norm, run) * rows * queries for run, rows, queries in left),
        bytes=sum(_HEAD + rows * (_SAMPLE + _POINT * bench.queries // CHECKPOINT) for _, rows, _ in left),
    )


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


def _race_part(bench: Bench, model: BenchmarkModel, norm: str, known: Calibration) -> Part:
    """Before the race is learned nothing of it can be done, but what it will take is known."""
    race, total = learned_race(bench, norm), bench.benchmark.budgets[-1]
    done = race is not None and finished_race(race_place(bench, model, race), norm) is not None
    samples = bench.benchmark.data[model.data].samples
    units = len(shards_of(samples, model.batch))
    queries = 0 if done else samples * total
    return Part(
        model.id,
        norm,
        "race",
        units=units,
        done=units if done else 0,
        queries=queries,
        seconds=known.models.get(model.id, math.nan) * queries if queries else 0.0,
        bytes=0 if done else units * _HEAD + samples * (_SAMPLE + _POINT * total // CHECKPOINT),
    )


def _baseline_part(bench: Bench, model: BenchmarkModel, norm: str, known: Calibration) -> Part:
    place = bench.baseline(model, norm)
    references, chosen = bench.radii(norm)[model.data], radii_of(place)
    # Before the trace is finished its percentiles are not known, only how many there will be.
    radii = sorted({*chosen, *references}) if chosen else [-float(k) for k in range(_RADII + len(references))]
    shards = shards_of(bench.benchmark.data[model.data].samples, model.baseline_batch)
    tasks, units = missing_radii(open_folder(place), radii, shards), len(radii) * len(shards)
    # The percentiles of the frontier break a tenth to nine tenths of the samples: half of them, on average.
    queries = sum(task.count for task in tasks) * (_PER_ROBUST + _PER_BROKEN) // 2
    return Part(
        model.id,
        norm,
        "baseline",
        units=units,
        done=units - len(tasks),
        queries=queries,
        seconds=known.models.get(model.id, math.nan) * queries if queries else 0.0,
        bytes=_HEAD * len(tasks),
    )


def disk_used(out: str) -> int:
    """Bytes of all files below a folder on this machine."""
    return sum(path.stat().st_size for path in Path(out).rglob("*") if path.is_file()) if "://" not in out else 0
