"""Commands around the pool of attacks: trace, allocate, baseline, aoi, bench."""

from __future__ import annotations

import json as json_text
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import App, Parameter

from advfrontier.cli.app import app, typed
from advfrontier.cli.options import Data, Machine, norms
from advfrontier.errors import FrontierError
from advfrontier.evaluation.bench import (
    Bench,
    Resources,
    allocate_places,
    baseline_to,
    calibrate,
    disk_used,
    folder_name,
    read_calibration,
    run_benchmark,
    status,
    write_ensembles,
)
from advfrontier.evaluation.bench.judging import record_aoi
from advfrontier.evaluation.plain import plain
from advfrontier.evaluation.radii import parse_radii, reference_radii
from advfrontier.evaluation.records import find_evaluations, find_places
from advfrontier.evaluation.trace import TRACE, load_traces, trace_to
from advfrontier.frontier.baseline import baseline_aoi, baseline_radii
from advfrontier.pool import MAX_QUERIES, tier_queries
from advfrontier.report.experiment import write_experiment
from advfrontier.report.experiment.terminal import (
    print_allocation,
    print_baseline,
    print_record_aoi,
    print_status,
    print_trace,
)
from advfrontier.solvers import PUBLISHED
from advfrontier.sources.benchmark import load_benchmark
from advfrontier.store import Store
from advfrontier.threat.names import NORMS

if TYPE_CHECKING:
    from advfrontier.sources.benchmark import Benchmark

_DATA, _MACHINE = Data(), Machine()

bench = App(name="bench", help="Whole benchmarks: many models, four norms, tables and figures.")
app.command(bench)


@app.command(name="trace")
def trace_command(
    *models: str,
    data: Data = _DATA,
    norm: str = "Linf",
    out: Annotated[str, Parameter(name=("--out", "-o"))] = "traces",
    runs: str | None = None,
    pool: str = "paper",
    queries: int = MAX_QUERIES,
    published: bool = False,
    seed: int = 42,
    machine: Machine = _MACHINE,
    json: bool = False,
) -> None:
    """Run every attack of the pool, and record how its distances fall with the queries it spends.

    Killed at any moment, the same command goes on. More models, norms, runs, queries or samples add to what is there.

    Parameters
    ----------
    models
        One or more: zoo:F3, file.py:factory, robustbench:cifar10/Linf/NAME, and so on.
    norm
        L0, L1, L2, Linf, several with commas, or all.
    out
        Folder of the traces; each model gets a folder, and in it one per norm.
    runs
        Some runs only, with commas: fmn,alma:target1.
    pool
        paper, or extended with attacks beyond it.
    queries
        Where each run stops, of its schedule of 1000.
    published
        The solvers as their papers have them, without the departures that docs/solvers.md lists.
    seed
        Of the random restarts.
    json
        Print figures as JSON and nothing else.
    """
    if not models:
        raise FrontierError("no model to trace: expected at least one, such as zoo:F3")
    samples = data.load(*models)
    workers, threads = machine.resolved()
    done = {}
    for model in models:
        for each in norms(norm):
            place = f"{out}/{folder_name(model)}/{each}"
            done[place] = trace_to(
                place,
                model,
                samples,
                norm=each,
                runs=[run.strip() for run in runs.split(",")] if runs else None,
                queries=queries,
                pool=pool,
                seed=seed,
                solvers=PUBLISHED if published else None,
                batch_size=machine.batch_size,
                device=machine.device,
                threads=threads,
                workers=workers,
                ray=machine.ray,
                progress=True,
                command=typed(),
            )
    print_trace(done, as_json=json)


@app.command(name="allocate")
def allocate_command(
    *traces: str,
    budget: str = "4k,8k,12k",
    out: Annotated[str, Parameter(name=("--out", "-o"))] = "ensembles",
    norm: str = "all",
    plain: bool = False,
    json: bool = False,
) -> None:
    """Give out a budget of queries to the runs of traced models: nested ensembles, with what no allocation can pass.

    Parameters
    ----------
    traces
        Folders that `advfrontier trace` wrote, of the models to allocate on.
    budget
        Rising budgets, with commas.
    out
        Folder of the ensemble files, such as L2-4k.toml; `advfrontier evaluate --ensemble` takes them.
    norm
        L0, L1, L2, Linf, several with commas, or all that were traced.
    plain
        The paper's algorithm as printed: one run a move, no swaps afterwards.
    json
        Print figures as JSON and nothing else.
    """
    if not traces:
        raise FrontierError("nothing to allocate on: expected folders of traces, such as traces/")
    budgets = tuple(sorted({tier_queries(part) for part in budget.split(",")}))
    places = list(dict.fromkeys(place for folder in traces for place in find_places(folder, kind=TRACE)))
    by_norm = {each: [p for p in places if (Store(p).record() or {}).get("norm") == each] for each in NORMS}
    chosen = {each: found for each, found in by_norm.items() if found and each in norms(norm)}
    if not chosen:
        raise FrontierError(f"no trace in {norm} below {', '.join(traces)}: expected one; type `advfrontier trace`")
    for each, found in chosen.items():
        ensembles = allocate_places(found, budgets=budgets, plain=plain)
        files = write_ensembles(out, ensembles)
        print_allocation(each, found, ensembles, files, as_json=json)


@app.command(name="baseline")
def baseline_command(
    model: str,
    /,
    *,
    data: Data = _DATA,
    norm: str = "Linf",
    out: Annotated[str, Parameter(name=("--out", "-o"))] = "baselines",
    trace: str | None = None,
    radii: str | None = None,
    seed: int = 42,
    machine: Machine = _MACHINE,
    json: bool = False,
) -> None:
    """Run AutoAttack at several radii, every pass counted, to compare with.

    Parameters
    ----------
    model
        zoo:F3, file.py:factory, robustbench:cifar10/Linf/NAME, and so on.
    norm
        L1, L2 or Linf.
    out
        Folder of the record; each model gets a folder, and in it one per norm.
    trace
        The model's trace in this norm: adds nine percentiles of its frontier to the radii, and tells the AOI.
    radii
        Other radii, such as 4/255,8/255.
    seed
        Of the random starts.
    json
        Print figures as JSON and nothing else.
    """
    chosen = norms(norm)
    if len(chosen) != 1:
        raise FrontierError(f"--norm {norm}: expected one norm, because radii differ from norm to norm")
    each = chosen[0]
    place = f"{out}/{folder_name(model)}/{each}"
    samples = data.load(model)
    frontier = load_traces(trace).frontier() if trace else None
    usual = [radius for _, radius in (parse_radii(radii) if radii else reference_radii(data.data, each))]
    wanted = [*usual, *(baseline_radii(frontier).tolist() if frontier is not None else [])]
    if not wanted:
        raise FrontierError("no radius to run AutoAttack at: expected --radii 4/255,8/255 or --trace traces/MODEL/NORM")
    workers, threads = machine.resolved()
    found = baseline_to(
        place,
        model,
        samples,
        norm=each,
        radii=wanted,
        seed=seed,
        batch_size=machine.batch_size,
        device=machine.device,
        threads=threads,
        workers=workers,
        ray=machine.ray,
        progress=True,
        command=typed(),
    )
    judged = baseline_aoi(found.radii, found.accuracies, frontier) if frontier is not None else None
    print_baseline(found, judged, norm=each, place=place, as_json=json)


@app.command(name="aoi")
def aoi_command(record: str, /, *, trace: str, json: bool = False) -> None:
    """How close an evaluation came to the frontier of a traced pool, and what each of its runs added.

    Parameters
    ----------
    record
        The folder of an evaluation.
    trace
        Folder of traces that holds one of the same model on the same samples.
    json
        Print figures as JSON and nothing else.
    """
    places = find_places(trace, kind=TRACE)
    found = [record_aoi(evaluation, places) for evaluation in find_evaluations([record])]
    if json:
        print(json_text.dumps([plain(each) for each in found], indent=2, ensure_ascii=False))
        return
    for each in found:
        print_record_aoi(each)


@bench.command(name="run")
def bench_run(
    benchmark: str,
    /,
    *,
    out: Annotated[str | None, Parameter(name=("--out", "-o"))] = None,
    source: tuple[str, ...] = (),
    download: bool = False,
    machine: Machine = _MACHINE,
) -> None:
    """Do a whole benchmark: trace, allocate, evaluate, run the baseline, write every table and figure.

    Killed at any moment, the same command goes on. Adding a model, a norm, samples or runs to the file does only what
    is missing.

    Parameters
    ----------
    benchmark
        fashion-mnist, small, paper, or a TOML file.
    out
        Folder of all that comes out; by default bench/ and the benchmark's name.
    source
        Where a model is to be found: --source C8=mine.py:c8.
    download
        Fetch models and data that are not on this machine.
    """
    found = _sourced(load_benchmark(benchmark), source)
    target = Bench(found, out or f"bench/{folder_name(found.name)}")
    workers, threads = machine.resolved()
    results = run_benchmark(
        target,
        resources=Resources(machine.device, threads, workers, machine.ray),
        download=download,
        progress=True,
        say=lambda text: print(text, file=sys.stderr),
        command=typed(),
    )
    if results.norms:
        for path in write_experiment(results, Path(target.results)):
            print(path)
    if results.failures:
        listed = "\n  ".join(results.failures)
        raise FrontierError(
            f"{len(results.failures)} parts failed, the others are done; the same command tries again:\n  {listed}"
        )


@bench.command(name="status")
def bench_status(
    benchmark: str,
    /,
    *,
    out: Annotated[str | None, Parameter(name=("--out", "-o"))] = None,
    source: tuple[str, ...] = (),
    calibration: bool = True,
    machine: Machine = _MACHINE,
    json: bool = False,
) -> None:
    """Say what is done, what is left, what it will cost and what failed.

    Parameters
    ----------
    benchmark
        fashion-mnist, small, paper, or a TOML file.
    out
        The folder given to `bench run`.
    source
        Where a model is to be found: --source C8=mine.py:c8.
    calibration
        Measure how long a query takes here, if that is not known: a few short runs.
    json
        Print figures as JSON and nothing else.
    """
    found = _sourced(load_benchmark(benchmark), source)
    target = Bench(found, out or f"bench/{folder_name(found.name)}")
    workers, threads = machine.resolved()
    known = read_calibration(target.out, device=machine.device, threads=threads)
    standing = status(target, known)
    if calibration and standing.queries and standing.seconds is None:
        busy = {part.model for part in standing.parts if part.left}
        models = [model for model in found.models if model.id in busy]
        standing = status(target, calibrate(target, models, device=machine.device, threads=threads))
    print_status(standing, workers=max(1, workers), used=disk_used(target.out), as_json=json)


def _sourced(found: Benchmark, sources: tuple[str, ...]) -> Benchmark:
    pairs = [text.partition("=") for text in sources]
    if wrong := ["".join(pair) for pair in pairs if not pair[2]]:
        raise FrontierError(f"--source {wrong[0]}: expected MODEL=SOURCE, such as C8=mine.py:c8")
    return found.with_sources({model: place for model, _, place in pairs})
