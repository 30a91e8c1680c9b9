"""What the commands around the pool print: a table for people, or JSON."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from advfrontier.jsonable import jsonable
from advfrontier.report.numbers import SYMBOLS, duration, percent, size, tier, whole
from advfrontier.report.render import as_text
from advfrontier.table import Column, Table

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from advfrontier.evaluation.bench import Status
    from advfrontier.evaluation.bench.judging import RecordAoi
    from advfrontier.evaluation.experiment import KnownPoints
    from advfrontier.evaluation.trace import Traces
    from advfrontier.frontier.baseline import BaselineAOI
    from advfrontier.pool import Ensemble

_SHOWN = 10  # failures and runs written out


def print_trace(traces: Mapping[str, Traces], *, as_json: bool) -> None:
    """One line per record."""
    if as_json:
        entries = {
            place: {
                "norm": found.norm,
                "runs": list(found.runs),
                "queries": int(found.queries[-1]),
                "samples": len(found.samples),
                "counts": dict(found.counts),
                "flags": list(found.flags),
            }
            for place, found in traces.items()
        }
        _say_json(entries)
        return
    headings = ("runs", "queries each", "samples", "queries in all")
    columns = [Column("trace"), *(Column(heading, "count") for heading in headings)]
    rows = [
        [place, str(len(t.runs)), str(int(t.queries[-1])), str(len(t.samples)), whole(t.counts.get("attack", 0))]
        for place, t in traces.items()
    ]
    _say(_drawn(columns, rows))
    for place, found in traces.items():
        for flag in found.flags:
            _say(f"{place}: {flag}")


def print_allocation(
    norm: str, places: Sequence[str], ensembles: Mapping[int, Ensemble], files: Sequence[str], *, as_json: bool
) -> None:
    """What every tier gives to which run, what it reaches and what none can pass."""
    if as_json:
        entries = {
            str(budget): {
                "file": file,
                "aoi": ensemble.aoi,
                "bound": ensemble.bound,
                "total": ensemble.total,
                "queries": ensemble.queries,
                "flags": list(ensemble.flags),
            }
            for (budget, ensemble), file in zip(ensembles.items(), files, strict=True)
        }
        _say_json({"norm": norm, "traces": list(places), "ensembles": entries})
        return
    _say(f"{SYMBOLS[norm]}, allocated on {len(places)} models")
    runs = list(dict.fromkeys(run for ensemble in ensembles.values() for run in ensemble.runs))
    rows = [[run, *(str(e.queries.get(run, "–")) for e in ensembles.values())] for run in runs]
    rows += [["total", *(whole(e.total) for e in ensembles.values())]]
    rows += [["AOI (%)", *(_percent(e.aoi) for e in ensembles.values())]]
    rows += [["no allocation passes", *(_percent(e.bound) for e in ensembles.values())]]
    _say(_drawn([Column("run"), *(Column(tier(budget), "count") for budget in ensembles)], rows))
    for flag in dict.fromkeys(flag for ensemble in ensembles.values() for flag in ensemble.flags):
        _say(flag)
    for file in files:
        _say(f"ensemble: {file}")


def print_baseline(found: KnownPoints, judged: BaselineAOI | None, *, norm: str, place: str, as_json: bool) -> None:
    """Robust accuracy and queries at every radius, and the AOI where a frontier is known."""
    if as_json:
        _say_json({"norm": norm, "record": place, **jsonable(found), "aoi": jsonable(judged)})
        return
    columns = [
        Column(f"ε in {SYMBOLS[norm]}", "count"),
        Column("robust accuracy (%)", "count"),
        Column("queries per sample", "count"),
    ]
    rows = [
        [size(ε), percent(ρ), whole(q)] for ε, ρ, q in zip(found.radii, found.accuracies, found.queries, strict=True)
    ]
    _say(_drawn(columns, rows))
    if judged is not None:
        _say(
            f"AOI of AutoAttack: {_percent(judged.value)} % by straight lines between these points, which prove "
            f"{_percent(judged.low)} to {_percent(judged.high)} %"
        )
    for flag in (*found.flags, *(judged.flags if judged else ())):
        _say(flag)
    _say(f"record: {place}")


def print_record_aoi(found: RecordAoi) -> None:
    """AOI of a record and of its runs."""
    _say(
        f"{found.model} in {SYMBOLS[found.norm]}, {found.ensemble}: AOI {_percent(found.aoi)} % against the frontier "
        f"of {found.pool} runs up to ε = {size(found.E)}; {_percent(found.winsorised)} % up to its 95th percentile"
    )
    if len(found.tiers) > 1:
        _say(", ".join(f"{tier(budget)}: {_percent(value)} %" for budget, value in found.tiers.items()))
    columns = [
        Column("run"), Column("queries", "count"), Column("AOI alone (%)", "count"), Column("on the frontier", "count"),
        Column("alone there", "count"), Column("lost without it (%)", "count"),
    ]  # fmt: skip
    rows = [
        [
            entry.run,
            str(entry.queries),
            _percent(entry.aoi),
            str(entry.contribution.wins),
            str(entry.contribution.alone),
            _percent(entry.contribution.loss),
        ]
        for entry in sorted(found.runs, key=lambda entry: -entry.contribution.loss)
    ]
    _say(_drawn(columns, rows))
    for flag in found.flags:
        _say(flag)


def print_status(standing: Status, *, workers: int, used: int, as_json: bool) -> None:
    """How far a benchmark has come, and what is left."""
    if as_json:
        totals = {"queries": standing.queries, "seconds": standing.seconds, "bytes": standing.bytes, "used": used}
        _say_json({**jsonable(standing), "left": totals, "workers": workers})
        return
    columns = [Column(""), *(Column(text, "count") for text in ("models", "units", "done", "queries left"))]
    rows = []
    for stage in ("trace", "baseline"):
        for norm in dict.fromkeys(part.norm for part in standing.parts if part.stage == stage):
            parts = [part for part in standing.parts if part.stage == stage and part.norm == norm]
            finished = sum(not part.left for part in parts)
            units, done = sum(part.units for part in parts), sum(part.done for part in parts)
            queries = sum(part.queries for part in parts)
            models = f"{finished}/{len(parts)}"
            rows.append([f"{stage} in {SYMBOLS[norm]}", models, whole(units), whole(done), whole(queries)])
    _say(_drawn(columns, rows))
    _say(f"ensembles: {len(standing.ensembles)} files; results: {'written' if standing.results else 'not yet'}")
    if standing.queries:
        _say(f"left: {whole(standing.queries)} queries{_estimate(standing, workers)}; on disk now: {_bytes(used)}")
        if any(part.stage == "baseline" and part.left for part in standing.parts):
            _say("(what AutoAttack takes depends on the model: its queries are a rule of thumb)")
    else:
        _say(f"nothing is left to run; on disk: {_bytes(used)}")
    for note in standing.notes:
        _say(note)
    for failure in standing.failures[:_SHOWN]:
        _say(f"failed: {failure}")
    if len(standing.failures) > _SHOWN:
        _say(f"and {len(standing.failures) - _SHOWN} more failures")


def _drawn(columns: Sequence[Column], rows: Sequence[Sequence[str]]) -> str:
    return as_text(Table("", tuple(columns), tuple(map(tuple, rows))))


def _estimate(standing: Status, workers: int) -> str:
    if standing.seconds is None or standing.bytes is None:
        return ""
    many = f" with {workers} workers" if workers > 1 else ""
    return f", about {duration(standing.seconds / workers)}{many} and {_bytes(standing.bytes)} of disk"


def _bytes(count: float) -> str:
    for unit, factor in (("GB", 1e9), ("MB", 1e6)):
        if count >= factor:
            return f"{count / factor:.1f} {unit}"
    return f"{count / 1e3:.0f} kB"


def _percent(share: float | None) -> str:
    return "–" if share is None else f"{100 * share:.2f}"


def _say(text: str) -> None:
    print(text)  # noqa: T201


def _say_json(content: object) -> None:
    print(json.dumps(content, indent=2, ensure_ascii=False))  # noqa: T201
