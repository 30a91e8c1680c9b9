"""Commands around the pool of attacks: trace, allocate, baseline, aoi."""

# ruff: noqa: PLC0415  # torch is imported when a command runs, not for --help

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter

from advfrontier.cli.options import (
    DEFAULT_BATCH,
    OUT,
    RADII,
    Attacks,
    Data,
    Json,
    Machine,
    Model,
    Norm,
    Seed,
    Success,
    norms,
)
from advfrontier.errors import FrontierError

_DATA = Data()
_MACHINE = Machine()
_ATTACKS = Attacks()
_SUCCESS = Success()


def trace_command(
    *models: Model,
    data: Data = _DATA,
    norm: Norm = "Linf",
    out: Annotated[str, OUT] = "traces",
    attacks: Attacks = _ATTACKS,
    success: Success = _SUCCESS,
    queries: int = 1000,
    seed: Seed = 42,
    machine: Machine = _MACHINE,
    json: Json = False,
) -> None:
    """Run every attack of a pool and record how its distances fall with the queries it spends.

    Interrupted? Run the same command again to resume. More models, norms, runs, queries or samples
    add to what is there.

    Args:
        out: Output folder, with a folder per model and in it one per norm.
        queries: Queries per run, at most 1000.
    """
    from advfrontier.cli.output import say, show
    from advfrontier.evaluation.allocation import traces_table
    from advfrontier.evaluation.trace import trace
    from advfrontier.record import below, folder_name

    if not models:
        raise FrontierError("no model to trace: expected at least one, such as zoo:F3")
    samples = data.load(*models)
    runs = attacks.listed()
    work_machine = machine.machine()
    traces = {}
    with data.explained():
        for model in models:
            for each in norms(norm):
                folder = below(out, folder_name(model), each)
                traces[folder] = trace(
                    model,
                    samples,
                    norm=each,
                    runs=runs,
                    queries=queries,
                    seed=seed,
                    solvers=attacks.solvers,
                    eot=attacks.eot,
                    criterion=success.criterion(),
                    out=folder,
                    batch_size=DEFAULT_BATCH if data.batch_size is None else data.batch_size,
                    machine=work_machine,
                )
    if data.notice:
        say(data.notice, as_json=json)
    table, facts = traces_table(traces)
    show(table, facts=facts, as_json=json)


def attack_card_command(
    attack: str,
    /,
    *,
    model: Model = "zoo:F3",
    data: Data = _DATA,
    norm: Norm = "Linf",
    runs: str = "extended",
    queries: int = 1000,
    out: Annotated[str, OUT] = "cards",
    machine: Machine = _MACHINE,
    json: Json = False,
) -> None:
    """Show what an attack adds to a pool, on one model.

    The attack is traced beside the pool. Interrupted? Run the same command again to resume.

    Args:
        attack: Run of the attack, such as mine.py:attack?steps=100.
        runs: Runs to compare with, with commas, or a pool, whose base runs are traced.
        queries: Queries per run, at most 1000.
        out: Output folder, with a folder per attack: card-NORM.json, card-NORM.pdf and the trace.
    """
    import json as encoding

    from advfrontier.cli.output import say, show
    from advfrontier.evaluation.card import attack_card
    from advfrontier.record import below, folder_name, write_file
    from advfrontier.report.views import draw_card

    samples = data.load(model)
    for each in norms(norm):
        folder = below(out, folder_name(attack))
        card = attack_card(
            attack,
            model,
            samples,
            norm=each,
            runs=[run.strip() for run in runs.split(",")],
            queries=queries,
            out=below(folder, folder_name(model), each),
            batch_size=DEFAULT_BATCH if data.batch_size is None else data.batch_size,
            machine=machine.machine(),
        )
        facts = card.to_dict()
        show(*card.tables(), facts=facts, as_json=json)
        text = encoding.dumps(facts, indent=2, ensure_ascii=False) + "\n"
        path = write_file(below(folder, f"card-{each}.json"), text.encode(), mark=b'"attack"')
        say(f"card: {path}", as_json=json)
        figure = draw_card(card, below(folder, f"card-{each}.pdf"))
        say(f"figure: {figure}", as_json=json)


def allocate_command(
    *traces: str,
    budget: str = "4k,8k,12k",
    out: Annotated[str, OUT] = "ensembles",
    norm: Norm = "all",
    plain: bool = False,
    json: Json = False,
) -> None:
    """Split query budgets over attacks using traces.

    Writes nested ensembles and an upper bound on their AOI.

    Args:
        traces: Folders written by `advfrontier trace`, of the models to allocate on.
        budget: Rising query budgets per sample, with commas.
        out: Output folder of the ensemble files, such as L2-4k.toml, for `advfrontier evaluate
            --ensemble`.
        plain: Use the paper's algorithm as published: one run per move, no swaps afterwards.
    """
    from advfrontier.cli.output import show
    from advfrontier.evaluation.allocation import (
        allocate_traces,
        allocation_tables,
        find_traces,
        write_ensembles,
    )
    from advfrontier.pool import tier_queries

    budgets = tuple(sorted({tier_queries(part) for part in budget.split(",")}))
    for each, records in find_traces(traces, norms(norm)).items():
        ensembles = allocate_traces(records, budgets=budgets, plain=plain)
        files = write_ensembles(out, ensembles)
        tables, facts = allocation_tables(each, records, ensembles, files)
        show(*tables, facts=facts, as_json=json)


def baseline_command(
    model: Model,
    /,
    *,
    norm: Annotated[str, Parameter(help="L1, L2 or Linf.")] = "Linf",
    radii: Annotated[str | None, Parameter(name=RADII)] = None,
    trace: str | None = None,
    data: Data = _DATA,
    out: Annotated[str, OUT] = "baselines",
    seed: Seed = 42,
    machine: Machine = _MACHINE,
    json: Json = False,
) -> None:
    """Run AutoAttack at several radii, every pass counted, as a baseline.

    Args:
        radii: Radii, such as 4/255,8/255 (default: those usually quoted for the data).
        trace: Trace of the model in this norm: adds nine percentiles of its frontier to the radii,
            and the AOI to the table (default: none).
        out: Output folder, with a folder per model and in it one per norm.
    """
    from advfrontier.cli.output import say, show
    from advfrontier.evaluation.baseline import baseline_table, radii_to_run, run_autoattack
    from advfrontier.evaluation.trace import load_traces
    from advfrontier.record import below, folder_name

    only, *others = norms(norm)
    if others:
        raise FrontierError(
            f"--norm {norm}: expected one norm, because radii differ from norm to norm"
        )
    folder = below(out, folder_name(model), only)
    frontier = load_traces(trace).frontier() if trace else None
    wanted = radii_to_run(radii, data.name, only, frontier)
    with data.explained():
        points = run_autoattack(
            folder,
            model,
            data.load(model),
            norm=only,
            radii=wanted,
            seed=seed,
            batch_size=DEFAULT_BATCH if data.batch_size is None else data.batch_size,
            machine=machine.machine(),
        )
    if data.notice:
        say(data.notice, as_json=json)
    table, facts = baseline_table(points, frontier, only, folder)
    show(table, facts=facts, as_json=json)


def aoi_command(record: str, /, *, trace: str, json: Json = False) -> None:
    """Measure how close an evaluation came to the frontier of a traced pool.

    Prints the AOI, and what each run of the evaluation added.

    Args:
        record: Folder of an evaluation.
        trace: Folder of traces, one of them of the same model on the same samples.
    """
    from advfrontier.cli.output import show
    from advfrontier.evaluation.compare import find_evaluations
    from advfrontier.evaluation.trace import evaluation_aoi
    from advfrontier.record import find_records

    records = find_records(trace, kind="trace")
    tables, facts = [], []
    for evaluation in find_evaluations([record]):
        own_tables, own_facts = evaluation_aoi(evaluation, records)
        tables += own_tables
        facts.append(own_facts)
    show(*tables, facts=facts, as_json=json)
