"""Allocate query budgets on traced models, from their records on disk.

`advfrontier.allocate` takes traces in memory; this module finds them below folders, reads one
record at a time, and writes the ensembles as files that `evaluate` takes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from os import PathLike
from typing import Any

from advfrontier.errors import FrontierError
from advfrontier.evaluation.trace import Traces, finished_runs, read_traces
from advfrontier.frontier.allocation import allocate
from advfrontier.frontier.measure import check_same_settings
from advfrontier.frontier.problem import levels_of
from advfrontier.pool import Ensemble, Run, tier_label
from advfrontier.record import Record, below, find_records, open_folder
from advfrontier.record.identity import settings
from advfrontier.table import Column, Table
from advfrontier.threat.names import norm_symbol

_AGAIN = "type the trace command again"


def find_traces(
    folders: Sequence[str | PathLike[str]], norms: Sequence[str]
) -> dict[str, list[Record]]:
    """Return norm to the traces at or below these folders; norms without any are left out.

    Args:
        folders: Folders that `trace` wrote.
        norms: Names of the norms to allocate in, such as `L2`; traces in others are left out.
    """
    if not folders:
        raise FrontierError("nothing to allocate on: expected folders of traces, such as traces/")
    records = {}
    for folder in folders:
        for record in find_records(str(folder), kind="trace"):
            records[record.place] = record
    by_norm: dict[str, list[Record]] = {}
    for norm in norms:
        own = [record for record in records.values() if record.header.terms.norm == norm]
        if own:
            by_norm[norm] = own
    if not by_norm:
        raise FrontierError(
            f"no trace in {', '.join(norms)} below {', '.join(map(str, folders))}: expected one; "
            "type `advfrontier trace`"
        )
    return by_norm


def common_runs(records: Sequence[Record]) -> dict[str, int]:
    """Return the runs that all of these traces have finished, and the queries all have reached.

    Args:
        records: Finished traces in one norm.
    """
    first, *others = [finished_runs(record) for record in records]
    common = dict(first)
    for reached in others:
        common = {run: min(common[run], reached[run]) for run in common if run in reached}
    if not common:
        raise FrontierError(f"no run is finished in all of {_places(records)}: {_AGAIN}")
    return common


def allocate_traces(
    records: Sequence[Record],
    *,
    budgets: Sequence[int],
    runs: Sequence[str] | None = None,
    queries: int | None = None,
    plain: bool = False,
) -> dict[int, Ensemble]:
    """Allocate on traced models of one norm; returns budget to ensemble, each inside the next.

    Args:
        records: Traces, one per model.
        budgets: Rising numbers of queries per sample.
        runs: Names of runs. Default: those that every model has finished.
        queries: Most queries of a run. Default: as far as every model has come.
        plain: Use the paper's algorithm as printed, without swaps.
    """
    reached = common_runs(records)
    chosen = list(reached) if runs is None else list(runs)
    for run in chosen:
        if reached.get(run, 0) < (queries or 1):
            raise FrontierError(f"{run} is not finished in all of {_places(records)}: {_AGAIN}")
    _check_solvers(records, chosen)
    most = queries or min(reached[run] for run in chosen)
    levels = levels_of(most)
    traces = _read_one_by_one(records, chosen, levels)
    ensembles = allocate(traces, budgets=budgets, levels=levels, plain=plain)
    return dict(zip(budgets, ensembles, strict=True))


def write_ensembles(folder: str | PathLike[str], ensembles: Mapping[int, Ensemble]) -> list[str]:
    """Write one file per budget, such as `L2-4k.toml`.

    Args:
        folder: Output folder: a path or an address.
        ensembles: Budget to ensemble.

    Returns:
        The paths of the files.
    """
    target = open_folder(folder)
    written = []
    for budget, ensemble in ensembles.items():
        file = ensemble_file(ensemble.norm, budget)
        target.write(file, ensemble.to_toml().encode())
        written.append(below(folder, file))
    return written


def ensemble_file(norm: str, budget: int) -> str:
    """Return the name of a file of an ensemble, such as `L2-4k.toml`.

    Args:
        norm: Name of the norm, such as `L2`.
        budget: Queries per sample.
    """
    return f"{norm}-{tier_label(budget)}.toml"


def traces_table(traces: Mapping[str, Traces]) -> tuple[Table, dict[str, Any]]:
    """Return one line per trace for people, and the same with the names of the runs for programs.

    Args:
        traces: Folder to trace.
    """
    columns = (
        Column("trace"),
        Column("runs", "integer"),
        Column("queries each", "integer"),
        Column("samples", "integer"),
        Column("queries in all", "count"),
    )
    rows, notes, facts = [], [], {}
    for folder, trace in traces.items():
        queries, spent = int(trace.queries[-1]), trace.counts.get("attack", 0)
        rows.append((folder, len(trace.runs), queries, len(trace.samples), spent))
        notes += [f"{folder}: {flag}" for flag in trace.flags]
        facts[folder] = {
            "norm": trace.norm,
            "runs": list(trace.runs),
            "queries": queries,
            "samples": len(trace.samples),
            "counts": dict(trace.counts),
            "flags": [str(flag) for flag in trace.flags],
        }
    return Table("", columns, tuple(rows), tuple(notes)), facts


def allocation_tables(
    norm: str, records: Sequence[Record], ensembles: Mapping[int, Ensemble], files: Sequence[str]
) -> tuple[tuple[Table, Table], dict[str, Any]]:
    """Return the queries of every run, and the AOI with its upper bound, for people and programs.

    Args:
        norm: Name of the norm, for the titles.
        records: The traces that were allocated on.
        ensembles: Budget to ensemble.
        files: Files of the ensembles, in the same order.
    """
    runs: dict[str, None] = {}
    for ensemble in ensembles.values():
        runs |= dict.fromkeys(ensemble.runs)
    budgets = tuple(Column(tier_label(budget), "count") for budget in ensembles)
    rows = []
    for run in runs:
        spent = [ensemble.queries.get(run) for ensemble in ensembles.values()]
        rows.append((run, *spent))
    symbol = norm_symbol(norm)
    title = f"{symbol}, allocated on {len(records)} models"
    queries = Table(title, (Column("run"), *budgets), tuple(rows))

    columns = (
        Column(symbol, key="ensemble"),
        Column("queries", "count"),
        Column("runs", "integer"),
        Column("AOI (%)", "fine", key="aoi"),
        Column("upper bound (%)", "fine", key="bound"),
    )
    reached, notes, entries = [], [], {}
    for (budget, ensemble), file in zip(ensembles.items(), files, strict=True):
        number = len(ensemble.runs)
        reached.append((ensemble.name, ensemble.total, number, ensemble.aoi, ensemble.bound))
        notes += [str(flag) for flag in ensemble.flags]
        entries[str(budget)] = {
            "file": file,
            "aoi": ensemble.aoi,
            "bound": ensemble.bound,
            "total": ensemble.total,
            "queries": dict(ensemble.queries),
            "flags": [str(flag) for flag in ensemble.flags],
        }
    notes = [*dict.fromkeys(notes), *(f"ensemble: {file}" for file in files)]
    facts = {"norm": norm, "traces": [record.place for record in records], "ensembles": entries}
    return (queries, Table("", columns, tuple(reached), tuple(notes))), facts


def _read_one_by_one(
    records: Sequence[Record], runs: Sequence[str], levels: Sequence[int]
) -> Iterator[Traces]:
    """Yield the trajectories of one model after the other, so that memory holds one of them."""
    for record in records:
        yield read_traces(record, runs=runs).thin(levels)


def _check_solvers(records: Sequence[Record], runs: Sequence[str]) -> None:
    """Raise if a solver has other parameters in one trace than in the first."""
    attacks = {Run.parse(run).attack for run in runs}
    first, *others = records
    expected = settings(first.header.solvers)
    for record in others:
        found = settings(record.header.solvers)
        names = (first.place, record.place)
        check_same_settings(expected, found, names=names, attacks=attacks)


def _places(records: Sequence[Record]) -> str:
    return ", ".join(record.place for record in records)
