"""Ensembles allocated on traces on disk: read one record at a time, made again only if what they rest on changed."""

from __future__ import annotations

import json
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

from advfrontier.errors import FrontierError
from advfrontier.evaluation.identity import versions
from advfrontier.evaluation.records import find_places
from advfrontier.evaluation.trace import TRACE, finished_runs, load_traces
from advfrontier.evaluation.units import read_clean
from advfrontier.frontier.allocation import allocate
from advfrontier.frontier.problem import levels_of
from advfrontier.pool import Ensemble, tier_name
from advfrontier.store import Store, open_folder

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_MADE_FROM = "made-from.json"


def find_traces(folders: Sequence[str], norms: Sequence[str]) -> dict[str, list[str]]:
    """Norm → the traces at or below these folders, for those of the norms that have any."""
    if not folders:
        raise FrontierError("nothing to allocate on: expected folders of traces, such as traces/")
    records = list(dict.fromkeys(record for folder in folders for record in find_places(folder, kind=TRACE)))
    norm_of = {record: (Store(record).record() or {}).get("norm") for record in records}
    by_norm = {norm: [record for record in records if norm_of[record] == norm] for norm in norms}
    if not any(by_norm.values()):
        raise FrontierError(
            f"no trace in {', '.join(norms)} below {', '.join(folders)}: expected one; type `advfrontier trace`"
        )
    return {norm: own for norm, own in by_norm.items() if own}


def common_runs(records: Sequence[str]) -> dict[str, int]:
    """The runs that are finished in every one of these traces, and how far the shortest of each has come."""
    common: dict[str, int] | None = None
    for record in records:
        store = Store(record)
        header, clean = store.record(), read_clean(store)
        if header is None or clean is None:
            raise FrontierError(
                f"{record} holds no trace: expected a folder that `advfrontier trace --out` has written"
            )
        reached = finished_runs(store, clean, header["shard"])
        common = reached if common is None else {r: min(q, reached[r]) for r, q in common.items() if r in reached}
    if not common:
        raise FrontierError(
            f"no run is finished in all of {', '.join(records)}: type the trace command again, for the same runs"
        )
    return common


def allocate_traces(
    records: Sequence[str],
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
            f"{missing[0]} is not finished in all of {', '.join(records)}: type the trace command again"
        )
    levels = levels_of(queries or min(reached[run] for run in chosen))
    traces = (load_traces(record, runs=chosen).thin(levels) for record in records)
    return dict(zip(budgets, allocate(traces, budgets=budgets, levels=levels, plain=plain), strict=True))


def allocate_into(
    folder: str, records: Sequence[str], *, norm: str, budgets: Sequence[int], runs: Sequence[str], queries: int
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
    return f"{norm}-{tier_name(budget)}.toml"


def _key(records: Sequence[str], budgets: Sequence[int], runs: Sequence[str], queries: int) -> str:
    """A hash of all that decides an allocation: the models, samples and terms of the traces, runs and budgets."""
    facts: list[Any] = [list(budgets), list(runs), queries, versions()["advfrontier"]]
    for record in records:
        store = Store(record)
        header = store.record() or {}
        decides = {k: header.get(k) for k in ("seed", "shard", "device", "dtype", "threads", "data", "solvers")}
        reached = sorted((str(unit), min(far, queries)) for unit, far in store.units().items() if unit.run in set(runs))
        facts.append([header.get("model", {}).get("fingerprint"), decides, reached])
    return blake2b(json.dumps(facts).encode(), digest_size=16).hexdigest()
