"""Ensembles allocated on traces on disk: read one record at a time, made again only if what they rest on changed."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from advfrontier.errors import FrontierError
from advfrontier.evaluation.trace import finished_runs, read_traces
from advfrontier.frontier.allocation import allocate
from advfrontier.frontier.problem import levels_of
from advfrontier.pool import Ensemble, tier_label
from advfrontier.record import find_records, open_folder
from advfrontier.record.identity import digest, versions

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from advfrontier.record import Record

_MADE_FROM = "made-from.json"


def find_traces(folders: Sequence[str], norms: Sequence[str]) -> dict[str, list[Record]]:
    """Norm → the traces at or below these folders, for those of the norms that have any."""
    if not folders:
        raise FrontierError("nothing to allocate on: expected folders of traces, such as traces/")
    records = {record.place: record for folder in folders for record in find_records(folder, kind="trace")}
    by_norm = {norm: [each for each in records.values() if each.header.terms.norm == norm] for norm in norms}
    if not any(by_norm.values()):
        raise FrontierError(
            f"no trace in {', '.join(norms)} below {', '.join(folders)}: expected one; type `advfrontier trace`"
        )
    return {norm: own for norm, own in by_norm.items() if own}


def common_runs(records: Sequence[Record]) -> dict[str, int]:
    """The runs that are finished in every one of these traces, and how far the shortest of each has come."""
    common: dict[str, int] | None = None
    for record in records:
        reached = finished_runs(record)
        common = reached if common is None else {r: min(q, reached[r]) for r, q in common.items() if r in reached}
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
        raise FrontierError(f"{missing[0]} is not finished in all of {_places(records)}: type the trace command again")
    levels = levels_of(queries or min(reached[run] for run in chosen))
    traces = (read_traces(record, runs=chosen).thin(levels) for record in records)
    return dict(zip(budgets, allocate(traces, budgets=budgets, levels=levels, plain=plain), strict=True))


def allocate_into(
    folder: str, records: Sequence[Record], *, norm: str, budgets: Sequence[int], runs: Sequence[str], queries: int
) -> dict[int, Ensemble]:
    """The same, written to a folder as `L2-4k.toml`, and read from there while what it rests on is unchanged."""
    store = open_folder(folder)
    made_from = json.loads(store.read(_MADE_FROM) or b"{}")
    key = _key(records, budgets, runs, queries)
    if made_from.get(norm) == key:
        contents = {budget: store.read(ensemble_file(norm, budget)) for budget in budgets}
        read = {budget: Ensemble.from_toml(content.decode()) for budget, content in contents.items() if content}
        if len(read) == len(budgets):
            return read
    ensembles = allocate_traces(records, budgets=budgets, runs=runs, queries=queries)
    write_ensembles(folder, ensembles)
    store.write(_MADE_FROM, json.dumps({**made_from, norm: key}, indent=2).encode())
    return ensembles


def write_ensembles(folder: str, ensembles: Mapping[int, Ensemble]) -> list[str]:
    """One file per budget; returns their names."""
    store = open_folder(folder)
    files = {ensemble_file(ensemble.norm, budget): ensemble for budget, ensemble in ensembles.items()}
    for file, ensemble in files.items():
        store.write(file, ensemble.to_toml().encode())
    return [f"{folder}/{file}" for file in files]


def ensemble_file(norm: str, budget: int) -> str:
    """`L2-4k.toml`."""
    return f"{norm}-{tier_label(budget)}.toml"


def _places(records: Sequence[Record]) -> str:
    return ", ".join(record.place for record in records)


def _key(records: Sequence[Record], budgets: Sequence[int], runs: Sequence[str], queries: int) -> str:
    """A digest of all that decides an allocation: the models, samples and terms of the traces, runs and budgets."""
    facts: list[Any] = [list(budgets), list(runs), queries, versions().advfrontier]
    for record in records:
        header = record.header
        units = record.units().items()
        reached = sorted((str(unit), min(far, queries)) for unit, far in units if unit.run in set(runs))
        facts.append([header.model.digest, header.data.digest, header.terms.model_dump(), header.solvers, reached])
    return digest(json.dumps(facts).encode())
