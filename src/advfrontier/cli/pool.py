"""Commands around the pool of attacks: trace, allocate, baseline, aoi."""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter

from advfrontier.bench import allocation, baselines
from advfrontier.cli.options import (
    OUT,
    RADII,
    Attacks,
    Data,
    Json,
    Machine,
    Model,
    Norm,
    Seed,
    norms,
)
from advfrontier.cli.output import show
from advfrontier.errors import FrontierError
from advfrontier.evaluation.compare import find_evaluations
from advfrontier.evaluation.trace import evaluation_aoi, load_traces
from advfrontier.evaluation.trace import trace as trace_runs
from advfrontier.pool import MAX_QUERIES, tier_queries
from advfrontier.record import below, find_records, folder_name

_DATA, _MACHINE, _ATTACKS = Data(), Machine(), Attacks()


def trace_command(
    *models: Model,
    data: Data = _DATA,
    norm: Norm = "Linf",
    out: Annotated[str, OUT] = "traces",
    attacks: Attacks = _ATTACKS,
    queries: int = MAX_QUERIES,
    seed: Seed = 42,
    machine: Machine = _MACHINE,
    json: Json = False,
) -> None:
    """Run every attack of a pool and record how its distances fall with the queries it spends.

    Interrupted? Run the same command again to resume. More models, norms, runs, queries or samples
    add to what is there.

    Args:
        out: Output folder; each model gets a folder, and in it one per norm.
        queries: Queries per run, at most 1000.
    """
    if not models:
        raise FrontierError("no model to trace: expected at least one, such as zoo:F3")
    samples = data.load(*models)
    asked, where = attacks.chosen(), machine.machine()
    done = {}
    for model in models:
        for each in norms(norm):
            folder = below(out, folder_name(model), each)
            done[folder] = trace_runs(
                model,
                samples,
                norm=each,
                runs=asked
                if attacks.runs is None
                else [run.strip() for run in attacks.runs.split(",")],
                queries=queries,
                seed=seed,
                solvers=attacks.solvers,
                eot=attacks.eot,
                out=folder,
                batch_size=100 if data.batch_size is None else data.batch_size,
                machine=where,
            )
    table, facts = allocation.told_traces(done)
    show(table, facts=facts, as_json=json)


def allocate_command(
    *traces: str,
    budget: str = "4k,8k,12k",
    out: Annotated[str, OUT] = "ensembles",
    norm: Norm = "all",
    plain: bool = False,
    json: Json = False,
) -> None:
    """Split query budgets over attacks using traces; writes nested ensembles and an upper bound on their AOI.

    Args:
        traces: Folders that `advfrontier trace` wrote, of the models to allocate on.
        budget: Rising budgets, with commas.
        out: Folder of the ensemble files, such as L2-4k.toml; `advfrontier evaluate --ensemble` takes them.
        plain: Use the paper's algorithm as printed: one run per move, no swaps afterwards.
    """
    budgets = tuple(sorted({tier_queries(part) for part in budget.split(",")}))
    for each, records in allocation.find_traces(traces, norms(norm)).items():
        ensembles = allocation.allocate_traces(records, budgets=budgets, plain=plain)
        files = allocation.write_ensembles(out, ensembles)
        tables, facts = allocation.told_allocation(each, records, ensembles, files)
        show(*tables, facts=facts, as_json=json)


def baseline_command(
    model: Model,
    /,
    *,
    norm: str = "Linf",
    radii: Annotated[str | None, Parameter(name=RADII)] = None,
    trace: str | None = None,
    data: Data = _DATA,
    out: Annotated[str, OUT] = "baselines",
    seed: Seed = 42,
    machine: Machine = _MACHINE,
    json: Json = False,
) -> None:
    """Run AutoAttack at several radii, every pass counted, to compare with.

    Args:
        norm: L1, L2 or Linf.
        radii: Such as 4/255,8/255; by default those usually quoted.
        trace: The model's trace in this norm: adds nine percentiles of its frontier to the radii, and tells the AOI.
        out: Folder of the record; each model gets a folder, and in it one per norm.
    """
    only, *others = norms(norm)
    if others:
        raise FrontierError(
            f"--norm {norm}: expected one norm, because radii differ from norm to norm"
        )
    folder = below(out, folder_name(model), only)
    frontier = load_traces(trace).frontier() if trace else None
    points = baselines.run_autoattack(
        folder,
        model,
        data.load(model),
        norm=only,
        radii=baselines.radii_to_run(radii, data.data, only, frontier),
        seed=seed,
        batch_size=100 if data.batch_size is None else data.batch_size,
        machine=machine.machine(),
    )
    table, facts = baselines.told_baseline(points, frontier, only, folder)
    show(table, facts=facts, as_json=json)


def aoi_command(record: str, /, *, trace: str, json: Json = False) -> None:
    """How close an evaluation came to the frontier of a traced pool, and what each of its runs added.

    Args:
        record: The folder of an evaluation.
        trace: Folder of traces that holds one of the same model on the same samples.
    """
    records = find_records(trace, kind="trace")
    told = [evaluation_aoi(evaluation, records) for evaluation in find_evaluations([record])]
    show(
        *(table for tables, _ in told for table in tables),
        facts=[facts for _, facts in told],
        as_json=json,
    )
