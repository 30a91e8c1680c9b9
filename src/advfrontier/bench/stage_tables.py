"""The tables of single stages: traces, an allocation, the baseline of one model."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from advfrontier.bench import attack_tables
from advfrontier.bench.cells import tier_columns
from advfrontier.jsonable import jsonable
from advfrontier.table import Column, Table
from advfrontier.threat.names import SYMBOLS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from advfrontier.attacks.autoattack import KnownPoints
    from advfrontier.evaluation.trace import Traces
    from advfrontier.frontier.baseline import BaselineAOI
    from advfrontier.pool import Ensemble


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
