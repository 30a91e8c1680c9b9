"""What is done, what is left and what it will cost, from the names of the files alone. NaN is what is not known.

How long a query takes on this machine is measured by a few short runs: the time of a pass through the model once per
model, that of a solver's own arithmetic once per attack on the first model. That is a few seconds in all, where
measuring every pair would take minutes.
"""

from __future__ import annotations

import json
import math
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from advfrontier.bench.allocation import ensemble_file, race_file
from advfrontier.bench.baselines import no_baseline, radii_of
from advfrontier.bench.benchmark import BenchmarkModel
from advfrontier.bench.layout import Bench, claim
from advfrontier.bench.run import Failure, read_failures
from advfrontier.engine import find_device
from advfrontier.errors import FrontierError
from advfrontier.evaluation.trace import trace
from advfrontier.execution import Machine
from advfrontier.jobs.autoattack import missing_radii
from advfrontier.jsonable import jsonable
from advfrontier.pool import CHECKPOINT, Race, Run
from advfrontier.record import Record, UnitName, open_folder
from advfrontier.record.units import shards_of
from advfrontier.sources.samples import choose
from advfrontier.table import Column, Share, Table
from advfrontier.threat.names import SYMBOLS

_RADII = 9  # percentiles of the frontier at which the baseline is run, beside the reference radii
# AutoAttack's queries per sample, as the paper's table of costs has them: by far the most go to those it cannot break.
_PER_ROBUST, _PER_BROKEN = 9600, 200
_CLASSES = 10  # where neither a record nor the data says how many there are
_HEAD, _SAMPLE, _POINT = (
    1100,
    21,
    8,
)  # bytes of a unit's file: for itself, per sample, and at every checkpoint of it
_SHOWN = 10  # failures written out
_CALIBRATION = "calibration.json"
_QUERIES = 20  # of each short run
_LEAST = 0.1  # of what a solver took on the first model: no estimate falls below it


@dataclass(frozen=True)
class Part:
    """One model in one norm: its trace, its race, or its baseline. What is left counts all samples together."""

    model: str
    norm: str
    stage: str  # "trace", "race" or "baseline"
    units: int
    done: int
    queries: int  # of the units left
    seconds: float  # that they will take, on one process
    bytes: int  # that they will fill

    @classmethod
    def of(
        cls, model: str, norm: str, stage: str, units: int, left: Sequence[tuple[int, float, int]]
    ) -> Part:
        """A part of so many units, and of each that is left its queries, the seconds of one of them, and its bytes."""
        queries, seconds = (
            sum(each for each, _, _ in left),
            sum((each * rate for each, rate, _ in left), 0.0),
        )
        return cls(
            model,
            norm,
            stage,
            units,
            units - len(left),
            queries,
            seconds,
            sum(size for *_, size in left),
        )

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
            used = sum(
                disk_used(str(folder)) for folder in Path(self.out).glob(f"{stage}s/**/{norm}")
            )
            rows.append((f"{stage} in {SYMBOLS[norm]}", *_left(parts, workers), used))
        rows.append(("in all", *_left(self.parts, workers), disk_used(self.out)))
        notes = [
            f"ensembles: {len(self.ensembles)} files; results: {'written' if self.results else 'not yet'}"
        ]
        if not self.queries:
            notes.append("nothing is left to run")
        if any(part.stage == "baseline" and part.left for part in self.parts):
            notes.append(
                "what AutoAttack takes depends on the model: its queries are a rule of thumb"
            )
        notes += [*self.notes, *(f"failed: {failure}" for failure in self.failures[:_SHOWN])]
        if len(self.failures) > _SHOWN:
            notes.append(f"and {len(self.failures) - _SHOWN} more failures")
        return Table("", columns, tuple(rows), tuple(notes))

    def facts(self, *, workers: int) -> dict[str, Any]:
        """The same for programs."""
        left = {
            "queries": self.queries,
            "seconds": self.seconds,
            "bytes": self.bytes,
            "used": disk_used(self.out),
        }
        return {**jsonable(self), "left": jsonable(left), "workers": workers}


def _left(parts: Sequence[Part], workers: int) -> tuple[Any, ...]:
    """Models that are finished, units, those done, and what the others will take."""
    units, done, queries, seconds, size = (
        sum(getattr(part, what) for part in parts)
        for what in ("units", "done", "queries", "seconds", "bytes")
    )
    return (
        Share(sum(not part.left for part in parts), len(parts)),
        units,
        done,
        queries,
        seconds / workers,
        size,
    )


def estimated_status(bench: Bench, *, device: str, threads: int, measure: bool = True) -> Status:
    """The status with times: they are measured here if they are not known; notes name the models that cannot be."""
    known = read_calibration(bench.out, device=device, threads=threads)
    standing = status(bench, known)
    if not measure or not math.isnan(standing.seconds):
        return standing
    find_device(device)
    claim(bench.out, bench.benchmark.name)
    unknown: dict[str, list[str]] = {}  # why → models
    for name in dict.fromkeys(part.model for part in standing.parts if part.left):
        try:
            known = calibrate(bench, [bench.benchmark[name]], device=device, threads=threads)
        except FrontierError as error:
            unknown.setdefault(str(error), []).append(name)
    standing = status(bench, known)
    notes = (
        f"the time of {', '.join(models)} cannot be measured: {error}"
        for error, models in unknown.items()
    )
    return replace(standing, notes=(*standing.notes, *notes))


def status(bench: Bench, calibration: Calibration | None = None) -> Status:
    """How far a benchmark has come. Reads names of files, and of each record what it is of."""
    bench.check_pool()
    known = calibration or Calibration()
    notes: dict[str, None] = {}
    parts = [_trace_part(bench, model, norm, known, notes) for model, norm in bench.jobs]
    if bench.raced:
        parts += [_race_part(bench, model, norm, known) for model, norm in bench.jobs]
    absent = {norm: no_baseline(bench, norm) for norm in bench.benchmark.norms}
    notes |= {
        f"{SYMBOLS[norm]}: {why}": None
        for norm, why in absent.items()
        if why and bench.benchmark.baseline
    }
    compared = [job for job in bench.jobs if bench.benchmark.baseline_split in {None, job[0].split}]
    parts += [
        _baseline_part(bench, model, norm, known) for model, norm in compared if not absent[norm]
    ]
    files = set(open_folder(bench.out).names("ensembles"))
    wanted = [
        f"ensembles/{ensemble_file(norm, b)}"
        for norm in bench.benchmark.norms
        for b in bench.benchmark.budgets
    ]
    unfinished = {(part.model, part.norm) for part in parts if part.left}
    failed = read_failures(bench.out)
    return Status(
        name=bench.benchmark.name,
        out=bench.out,
        parts=tuple(parts),
        ensembles=tuple(file for file in wanted if file in files),
        results=open_folder(bench.results).read("results.json") is not None,
        failures=tuple(
            f for f in failed if (f.model, f.norm) in unfinished or f.stage == "allocation"
        ),
        notes=tuple(notes),
    )


def _trace_part(
    bench: Bench, model: BenchmarkModel, norm: str, known: Calibration, notes: dict[str, None]
) -> Part:
    record = Record.find(bench.trace(model, norm))
    done = record.units() if record is not None else {}
    clean = record.read_clean() if record is not None else None
    samples = bench.benchmark.data[model.data].samples
    wanted: list[tuple[UnitName, int]]  # each unit, and how many samples it attacks
    if record is not None and clean is not None and len(clean.labels) >= samples:
        wanted = [
            (unit, len(rows)) for unit, rows in record.layout(bench.runs(norm, clean.classes))
        ]
    else:  # the model has not been tried on all of them yet
        runs = bench.runs(
            norm, clean.classes if clean is not None else _classes(bench, model, notes)
        )
        wanted = [
            (UnitName(run, *shard), shard[1])
            for run in runs
            for shard in shards_of(samples, model.batch)
        ]
    left = []
    for unit, rows in wanted:
        queries = rows * (bench.queries - done.get(unit, 0))
        if queries > 0:
            left.append(
                (queries, known.seconds(model.id, norm, unit.run), _unit_bytes(rows, bench.queries))
            )
    return Part.of(model.id, norm, "trace", len(wanted), left)


def _unit_bytes(rows: int, queries: int) -> int:
    return _HEAD + rows * (_SAMPLE + _POINT * queries // CHECKPOINT)


def _classes(bench: Bench, model: BenchmarkModel, notes: dict[str, None]) -> int:
    try:
        samples = bench.samples(model)
    except FrontierError as error:
        notes[f"the data of {model.data} cannot be read yet: {error}"] = None
        return _CLASSES
    return len(samples.class_names) if samples.class_names else int(samples.labels.max()) + 1


def _race_part(bench: Bench, model: BenchmarkModel, norm: str, known: Calibration) -> Part:
    """Before the race is learned nothing of it can be done, but what it will take is known."""
    stored, total = open_folder(bench.ensembles).read(race_file(norm)), bench.benchmark.budgets[-1]
    race = Race.from_toml(stored) if stored else None
    # A race of another budget is that of an earlier file: it will be learned, and run, anew.
    done = race is not None and race.total == total and bench.finished_race(model, race) is not None
    rate = known.models.get(model.id, math.nan)
    shards = shards_of(bench.benchmark.data[model.data].samples, model.batch)
    left = [(rows * total, rate, _unit_bytes(rows, total)) for _, rows in shards]
    return Part.of(model.id, norm, "race", len(shards), [] if done else left)


def _baseline_part(bench: Bench, model: BenchmarkModel, norm: str, known: Calibration) -> Part:
    place = bench.baseline(model, norm)
    references, chosen = bench.radii(norm)[model.data], radii_of(place)
    # Before the trace is finished its percentiles are not known, only how many there will be.
    radii = (
        sorted({*chosen, *references})
        if chosen
        else [-float(k) for k in range(_RADII + len(references))]
    )
    shards = shards_of(bench.benchmark.data[model.data].samples, model.baseline_batch)
    # The percentiles of the frontier break a tenth to nine tenths of the samples: half of them, on average.
    each = (_PER_ROBUST + _PER_BROKEN) // 2
    rate = known.models.get(model.id, math.nan)
    tasks = missing_radii(open_folder(place), radii, shards)
    left = [(task.count * each, rate, _HEAD) for task in tasks]
    return Part.of(model.id, norm, "baseline", len(radii) * len(shards), left)


def disk_used(out: str) -> int:
    """Bytes of all files below a folder on this machine."""
    used = 0
    for path in Path(out).rglob("*") if "://" not in out else ():
        with suppress(FileNotFoundError):  # a benchmark that is running renames what it has written
            used += path.stat().st_size if path.is_file() else 0
    return used


@dataclass
class Calibration:
    """Seconds per query and sample, on one process."""

    device: str = "cpu"
    threads: int = 1
    models: dict[str, float] = field(default_factory=dict)  # with the common run
    attacks: dict[str, dict[str, float]] = field(
        default_factory=dict
    )  # norm → attack, on the first model
    common: float = 0.0  # the common run on the first model

    def seconds(self, model: str, norm: str, run: str) -> float:
        """Estimated seconds per query and sample; NaN if the model or the attack was not calibrated."""
        attack = self.attacks.get(norm, {}).get(Run.parse(run).attack, math.nan)
        return max(self.models.get(model, math.nan) + attack - self.common, _LEAST * attack)


def read_calibration(out: str, *, device: str, threads: int) -> Calibration:
    """The one that is stored for this device and number of threads, or an empty one."""
    with suppress(ValidationError):  # what cannot be read is measured again
        stored = TypeAdapter(Calibration).validate_json(
            open_folder(out).read(_CALIBRATION) or b"{}"
        )
        if (stored.device, stored.threads) == (device, threads):
            return stored
    return Calibration(device, threads)


def calibrate(
    bench: Bench, models: Sequence[BenchmarkModel], *, device: str, threads: int
) -> Calibration:
    """Measure what is not yet known, on one batch per short run, and store it."""
    known = read_calibration(bench.out, device=device, threads=threads)
    able = [model for model in models if model.source is not None]
    if not able:
        return known
    claim(bench.out, bench.benchmark.name)
    runs = {norm: map(Run.parse, bench.runs(norm, _CLASSES)) for norm in bench.benchmark.norms}
    attacks = {norm: list(dict.fromkeys(run.attack for run in own)) for norm, own in runs.items()}
    common_norm, (common, *_) = next(iter(attacks.items()))
    for norm, asked in attacks.items():
        measured = known.attacks.setdefault(norm, {})
        unknown = [attack for attack in asked if attack not in measured]
        if unknown:
            measured |= _measured(bench, known, able[0], norm, unknown)
        if (
            norm == common_norm and common in unknown
        ):  # what was measured with another common run does not compare
            known.models, known.common = {able[0].id: measured[common]}, measured[common]
    for model in able:
        if model.id not in known.models:
            known.models[model.id] = _measured(bench, known, model, common_norm, [common])[common]
    open_folder(bench.out).write(_CALIBRATION, json.dumps(asdict(known), indent=2).encode())
    return known


def _measured(
    bench: Bench, known: Calibration, model: BenchmarkModel, norm: str, attacks: Sequence[str]
) -> dict[str, float]:
    """Seconds per query and sample of these attacks' base runs on one batch; 0 where there is nothing to attack."""
    batch = choose(
        bench.samples(model), min(model.batch, bench.benchmark.data[model.data].samples), None
    )
    with tempfile.TemporaryDirectory(prefix="advfrontier-") as folder:
        traces = trace(
            str(model.source),
            batch,
            norm=norm,
            runs=list(attacks),
            queries=_QUERIES,
            out=folder,
            batch_size=model.batch,
            machine=Machine(known.device, threads=known.threads),
        )
        record, spent = Record.open(folder, "trace"), _QUERIES * int((~traces.misclassified).sum())
        units = {
            attack: record.read_unit(UnitName(attack, 0, len(batch)), _QUERIES)
            for attack in attacks
        }
        return {
            attack: float(unit.words["seconds"]) / spent if unit else 0.0
            for attack, unit in units.items()
        }
