"""The tables of single stages: traces, an allocation, the baseline of one model, and how far a benchmark has come."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from advfrontier.bench import attack_tables
from advfrontier.bench.cells import tier_columns
from advfrontier.bench.status import disk_used, known_sum
from advfrontier.jsonable import jsonable
from advfrontier.table import Column, Share, Table
from advfrontier.threat.names import SYMBOLS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from advfrontier.attacks.autoattack import KnownPoints
    from advfrontier.bench.status import Part, Status
    from advfrontier.evaluation.trace import Traces
    from advfrontier.frontier.baseline import BaselineAOI
    from advfrontier.pool import Ensemble

_SHOWN = 10  # failures written out


def trace_table(traces: Mapping[str, Traces]) -> Table:
    """One line per record."""
    columns = (
        Column("trace"), Column("runs", "integer"), Column("queries each", "integer"), Column("samples", "integer"),
        Column("queries in all", "count"),
    )  # fmt: skip
    rows = [
        (folder, len(trace.runs), int(trace.queries[-1]), len(trace.samples), trace.counts.get("attack", 0))
        for folder, trace in traces.items()
    ]
    notes = [f"{folder}: {flag}" for folder, trace in traces.items() for flag in trace.flags]
    return Table("", columns, tuple(rows), tuple(notes))


def trace_facts(traces: Mapping[str, Traces]) -> dict[str, Any]:
    """The same for programs, with the names of the runs and the passes by purpose."""
    return {
        folder: {
            "norm": trace.norm,
            "runs": list(trace.runs),
            "queries": int(trace.queries[-1]),
            "samples": len(trace.samples),
            "counts": dict(trace.counts),
            "flags": [str(flag) for flag in trace.flags],
        }
        for folder, trace in traces.items()
    }


def allocation_tables(
    norm: str, records: Sequence[str], ensembles: Mapping[int, Ensemble], files: Sequence[str]
) -> tuple[Table, Table]:
    """What every tier gives to which run; what it reaches and what none can pass."""
    runs = list(dict.fromkeys(run for ensemble in ensembles.values() for run in ensemble.runs))
    rows = [(run, *(ensemble.queries.get(run) for ensemble in ensembles.values())) for run in runs]
    title = f"{SYMBOLS[norm]}, allocated on {len(records)} models"
    given = Table(title, (Column("run"), *tier_columns(ensembles, "count")), tuple(rows))
    reached = attack_tables.tiers(ensembles, (), norm=norm)
    flags = dict.fromkeys(str(flag) for ensemble in ensembles.values() for flag in ensemble.flags)
    return given, Table("", reached.columns, reached.rows, (*flags, *(f"ensemble: {file}" for file in files)))


def allocation_facts(
    norm: str, records: Sequence[str], ensembles: Mapping[int, Ensemble], files: Sequence[str]
) -> dict[str, Any]:
    """The same for programs."""
    entries = {
        str(budget): {
            "file": file,
            "aoi": ensemble.aoi,
            "bound": ensemble.bound,
            "total": ensemble.total,
            "queries": ensemble.queries,
            "flags": [str(flag) for flag in ensemble.flags],
        }
        for (budget, ensemble), file in zip(ensembles.items(), files, strict=True)
    }
    return {"norm": norm, "traces": list(records), "ensembles": entries}


def baseline_table(points: KnownPoints, judged: BaselineAOI | None, *, norm: str, folder: str) -> Table:
    """Robust accuracy and queries at every radius, and the AOI where a frontier is known."""
    columns = (
        Column(f"ε in {SYMBOLS[norm]}", "size", key="epsilon"),
        Column("robust accuracy (%)", "percent", key="robust accuracy"),
        Column("queries per sample", "count"),
    )
    notes = []
    if judged is not None:
        notes.append(
            f"AOI of AutoAttack: {100 * judged.value:.2f} % by straight lines between these points, which prove "
            f"{100 * judged.low:.2f} to {100 * judged.high:.2f} %"
        )
    notes += [*points.flags, *(judged.flags if judged else ()), f"record: {folder}"]
    return Table("", columns, tuple(zip(points.radii, points.accuracies, points.queries, strict=True)), tuple(notes))


def baseline_facts(points: KnownPoints, judged: BaselineAOI | None, *, norm: str, folder: str) -> dict[str, Any]:
    """The same for programs."""
    return {"norm": norm, "record": folder, **jsonable(points), "aoi": jsonable(judged)}


def status_table(standing: Status, *, workers: int) -> Table:
    """How far every stage has come in every norm, what is left in all, and what failed."""
    columns = (
        Column("", key="stage"), Column("finished", "integer"), Column("units", "count"), Column("done", "count"),
        Column("queries left", "count"),
        Column(f"time with {workers} workers" if workers > 1 else "time", "duration", key="seconds left"),
        Column("disk to come", "bytes", key="bytes left"), Column("on disk", "bytes", key="bytes"),
    )  # fmt: skip
    rows = []
    for stage, norm in dict.fromkeys((part.stage, part.norm) for part in standing.parts):
        parts = [part for part in standing.parts if (part.stage, part.norm) == (stage, norm)]
        folders = Path(standing.out).glob(f"{stage}s/*/{norm}")
        used = sum(disk_used(str(folder)) for folder in folders)
        rows.append((f"{stage} in {SYMBOLS[norm]}", *_left(parts, workers), used))
    rows.append(("in all", *_left(standing.parts, workers), disk_used(standing.out)))
    return Table("", columns, tuple(rows), tuple(_status_notes(standing)))


def _left(parts: Sequence[Part], workers: int) -> tuple[Any, ...]:
    """Models that are finished, units, those done, and what the others will take."""
    left = [part for part in parts if part.left]
    seconds = known_sum(part.seconds for part in left)
    return (
        Share(len(parts) - len(left), len(parts)),
        sum(part.units for part in parts),
        sum(part.done for part in parts),
        sum(part.queries for part in parts),
        None if seconds is None else seconds / workers,
        known_sum(part.bytes for part in left),
    )


def _status_notes(standing: Status) -> list[str]:
    notes = [f"ensembles: {len(standing.ensembles)} files; results: {'written' if standing.results else 'not yet'}"]
    if not standing.queries:
        notes.append("nothing is left to run")
    if any(part.stage == "baseline" and part.left for part in standing.parts):
        notes.append("what AutoAttack takes depends on the model: its queries are a rule of thumb")
    notes += [*standing.notes, *(f"failed: {failure}" for failure in standing.failures[:_SHOWN])]
    if len(standing.failures) > _SHOWN:
        notes.append(f"and {len(standing.failures) - _SHOWN} more failures")
    return notes


def status_facts(standing: Status, *, workers: int) -> dict[str, Any]:
    """The same for programs."""
    left = {"queries": standing.queries, "seconds": standing.seconds, "bytes": standing.bytes}
    return {**jsonable(standing), "left": {**left, "used": disk_used(standing.out)}, "workers": workers}
