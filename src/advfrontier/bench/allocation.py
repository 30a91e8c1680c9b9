"""Ensembles allocated on traces on disk: read one record at a time, made again only if what they rest on changed.

The tables of both stages are here too.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from advfrontier.bench import attack_tables
from advfrontier.bench.subject import tier_columns
from advfrontier.errors import FrontierError
from advfrontier.evaluation.trace import Traces, finished_runs, read_traces
from advfrontier.frontier.allocation import allocate
from advfrontier.frontier.measure import check_same_settings
from advfrontier.frontier.problem import levels_of
from advfrontier.frontier.race import learn_race, race_excess
from advfrontier.jsonable import read_object
from advfrontier.pool import MAX_QUERIES, SLICE, Ensemble, Race, Run, tier_label
from advfrontier.record import Record, find_records, open_folder
from advfrontier.record.identity import digest, settings, versions
from advfrontier.table import Column, Table
from advfrontier.threat.names import SYMBOLS

_MADE_FROM = "made-from.json"  # file or norm → the digest of all that decided it


def find_traces(folders: Sequence[str], norms: Sequence[str]) -> dict[str, list[Record]]:
    """Norm → the traces at or below these folders, for those of the norms that have any."""
    if not folders:
        raise FrontierError("nothing to allocate on: expected folders of traces, such as traces/")
    records = {
        record.place: record for folder in folders for record in find_records(folder, kind="trace")
    }
    by_norm = {
        norm: [each for each in records.values() if each.header.terms.norm == norm]
        for norm in norms
    }
    if not any(by_norm.values()):
        raise FrontierError(
            f"no trace in {', '.join(norms)} below {', '.join(folders)}: expected one; type `advfrontier trace`"
        )
    return {norm: own for norm, own in by_norm.items() if own}


def common_runs(records: Sequence[Record]) -> dict[str, int]:
    """The runs that are finished in every one of these traces, and how far the shortest of each has come."""
    first, *others = [finished_runs(record) for record in records]
    common = {
        run: min(reached[run] for reached in (first, *others))
        for run in first
        if all(run in o for o in others)
    }
    if not common:
        raise FrontierError(
            f"no run is finished in all of {_places(records)}: type the trace command again, for the same runs"
        )
    return common


def allocate_traces(
    records: Sequence[Record],
    *,
    budgets: Sequence[int],
    runs: Sequence[str] | None = None,
    queries: int | None = None,
    plain: bool = False,
) -> dict[int, Ensemble]:
    """Allocate on traced models of one norm.

    On these runs, or on all that every one of them has finished; up to these queries, or as far as all have come.
    """
    reached = common_runs(records)
    chosen = list(reached) if runs is None else list(runs)
    if missing := [run for run in chosen if reached.get(run, 0) < (queries or 1)]:
        raise FrontierError(
            f"{missing[0]} is not finished in all of {_places(records)}: type the trace command again"
        )
    _check_solvers(records, chosen)
    levels = levels_of(queries or min(reached[run] for run in chosen))
    traces = (read_traces(record, runs=chosen).thin(levels) for record in records)
    return dict(
        zip(budgets, allocate(traces, budgets=budgets, levels=levels, plain=plain), strict=True)
    )


def learn_from(records: Sequence[Record], *, total: int) -> tuple[Race, Table]:
    """A race learned on traced models of one norm, and by how much it exceeds the frontier of each of them."""
    runs = [run for run, queries in common_runs(records).items() if queries >= MAX_QUERIES]
    if not runs:
        raise FrontierError(
            f"no run is traced to {MAX_QUERIES} queries in all of {_places(records)}: type the trace command again "
            "without --queries"
        )
    _check_solvers(records, runs)
    traces = [read_traces(record, runs=runs) for record in records]
    race = learn_race(traces, name=f"race-{tier_label(total)}", total=total)
    above = (Column(f"above the frontier at {tier_label(tier)} (%)", "fine") for tier in race.tiers)
    columns = (Column("model", folds=True), *above)
    rows = tuple(
        (record.header.model.name, *race_excess(trace, race, race.tiers).values())
        for record, trace in zip(records, traces, strict=True)
    )
    return race, Table(
        f"{SYMBOLS[race.norm]}, a race learned on {len(records)} models", columns, rows
    )


def allocate_into(
    folder: str,
    records: Sequence[Record],
    *,
    norm: str,
    budgets: Sequence[int],
    runs: Sequence[str],
    queries: int,
    plain: bool = False,
) -> dict[int, Ensemble]:
    """Allocate and write the files, such as `L2-4k.toml`; read them instead while nothing that decides them changed."""

    def make() -> list[Ensemble]:
        return [
            *allocate_traces(
                records, budgets=budgets, runs=runs, queries=queries, plain=plain
            ).values()
        ]

    key, files = (
        _key(records, budgets, runs, queries, plain=plain),
        [ensemble_file(norm, b) for b in budgets],
    )
    return dict(
        zip(budgets, map(Ensemble.from_toml, _kept(folder, norm, key, files, make)), strict=True)
    )


def learn_into(
    folder: str, records: Sequence[Record], *, norm: str, total: int, runs: Sequence[str]
) -> Race:
    """Learn a race and write its file, such as `L2-race.toml`; read it instead while nothing that decides it changed.

    The traces are read at the ends of slices only, which is all that a race looks at.
    """

    def make() -> list[Race]:
        slices = range(SLICE, MAX_QUERIES + 1, SLICE)
        traces = [read_traces(record, runs=runs).thin(slices) for record in records]
        return [learn_race(traces, name=f"race-{tier_label(total)}", total=total)]

    key, file = _key(records, [total], runs, MAX_QUERIES, plain=False), race_file(norm)
    return Race.from_toml(_kept(folder, file, key, [file], make)[0])


def _kept(
    folder: str,
    name: str,
    key: str,
    files: Sequence[str],
    make: Callable[[], Sequence[Ensemble | Race]],
) -> list[bytes]:
    """What is in these files, if all are there and this digest is noted under the name; or else they are made again."""
    place = open_folder(folder)
    noted = read_object(place.read(_MADE_FROM) or b"{}", f"{folder}/{_MADE_FROM}")
    stored = (
        [content for file in files if (content := place.read(file))]
        if noted.get(name) == key
        else []
    )
    if len(stored) == len(files):
        return stored
    made = {file: policy.to_toml().encode() for file, policy in zip(files, make(), strict=True)}
    # The note goes first: after an interruption the old one would stand for files of which some are new.
    place.write(_MADE_FROM, json.dumps({**noted, name: None}, indent=2).encode())
    for file, content in made.items():
        place.write(file, content)
    place.write(_MADE_FROM, json.dumps({**noted, name: key}, indent=2).encode())
    return [*made.values()]


def write_ensembles(folder: str, ensembles: Mapping[int, Ensemble]) -> list[str]:
    """One file per budget; returns their names."""
    return [
        _write(folder, ensemble_file(each.norm, budget), each) for budget, each in ensembles.items()
    ]


def write_race(folder: str, race: Race) -> str:
    """Write `L2-race.toml`; returns its name."""
    return _write(folder, race_file(race.norm), race)


def _write(folder: str, file: str, policy: Ensemble | Race) -> str:
    open_folder(folder).write(file, policy.to_toml().encode())
    return f"{folder}/{file}"


def ensemble_file(norm: str, budget: int) -> str:
    """`L2-4k.toml`."""
    return f"{norm}-{tier_label(budget)}.toml"


def race_file(norm: str) -> str:
    """`L2-race.toml`."""
    return f"{norm}-race.toml"


def told_traces(traces: Mapping[str, Traces]) -> tuple[Table, dict[str, Any]]:
    """One line per record; and for programs the names of the runs and the passes by purpose as well."""
    columns = (
        Column("trace"), Column("runs", "integer"), Column("queries each", "integer"), Column("samples", "integer"),
        Column("queries in all", "count"),
    )  # fmt: skip
    facts = {
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
    rows = [
        (
            folder,
            len(trace.runs),
            int(trace.queries[-1]),
            len(trace.samples),
            trace.counts.get("attack", 0),
        )
        for folder, trace in traces.items()
    ]
    notes = [f"{folder}: {flag}" for folder, trace in traces.items() for flag in trace.flags]
    return Table("", columns, tuple(rows), tuple(notes)), facts


def told_allocation(
    norm: str, records: Sequence[Record], ensembles: Mapping[int, Ensemble], files: Sequence[str]
) -> tuple[tuple[Table, Table], dict[str, Any]]:
    """What every tier gives to which run; what it reaches and what none can pass; and the same for programs."""
    runs = list(dict.fromkeys(run for ensemble in ensembles.values() for run in ensemble.runs))
    rows = [(run, *(ensemble.queries.get(run) for ensemble in ensembles.values())) for run in runs]
    title = f"{SYMBOLS[norm]}, allocated on {len(records)} models"
    given = Table(title, (Column("run"), *tier_columns(ensembles, "count")), tuple(rows))
    reached = attack_tables.tiers(ensembles, None, (), norm=norm)
    flags = dict.fromkeys(str(flag) for ensemble in ensembles.values() for flag in ensemble.flags)
    notes = (*flags, *(f"ensemble: {file}" for file in files))
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
    facts = {"norm": norm, "traces": [record.place for record in records], "ensembles": entries}
    return (given, Table("", reached.columns, reached.rows, notes)), facts


def _check_solvers(records: Sequence[Record], runs: Sequence[str]) -> None:
    """Refuse traces in which a solver has other parameters than in the first of them."""
    attacks = {Run.parse(run).attack for run in runs}
    first, *others = [(record.place, settings(record.header.solvers)) for record in records]
    for place, own in others:
        check_same_settings(first[1], own, names=(first[0], place), attacks=attacks)


def _places(records: Sequence[Record]) -> str:
    return ", ".join(record.place for record in records)


def _key(
    records: Sequence[Record],
    budgets: Sequence[int],
    runs: Sequence[str],
    queries: int,
    *,
    plain: bool,
) -> str:
    """A digest of all that decides an allocation: the models, samples and terms of the traces, runs and budgets."""
    facts: list[Any] = [list(budgets), list(runs), queries, plain, versions().advfrontier]
    for record in records:
        header = record.header
        units = record.units().items()
        reached = sorted(
            (str(unit), min(far, queries)) for unit, far in units if unit.run in set(runs)
        )
        facts.append(
            [
                header.model.digest,
                header.data.digest,
                header.terms.model_dump(),
                header.solvers,
                reached,
            ]
        )
    return digest(json.dumps(facts).encode())
