"""Commands around the pool of attacks: trace, allocate, baseline, aoi, bench."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Annotated

from cyclopts import App, Parameter

from advfrontier.cli.app import typed
from advfrontier.cli.options import Data, Device, Json, Machine, Norm, Seed, Threads, WorkerCount, norms
from advfrontier.cli.output import say_json
from advfrontier.engine import find_device
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
from advfrontier.evaluation.radii import parse_radii, reference_radii
from advfrontier.evaluation.records import find_evaluations, find_places
from advfrontier.evaluation.trace import TRACE, load_traces, trace_to
from advfrontier.frontier.baseline import baseline_aoi, baseline_radii
from advfrontier.jsonable import jsonable
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
from advfrontier.store.folder import below, write_files
from advfrontier.threat.names import NORMS


@Parameter(name="*")
@dataclass(frozen=True)
class Place:
    """Where a benchmark is run."""

    out: Annotated[str | None, Parameter(name=("--out", "-o"))] = None
    "Folder of all that comes out; by default bench/ and the benchmark's name."
    source: tuple[str, ...] = ()
    "Where a model is to be found: --source C8=mine.py:c8."

    def open(self, name: str) -> Bench:
        """The benchmark of this name, or in this file, and its folder."""
        pairs = [text.partition("=") for text in self.source]
        if wrong := ["".join(pair) for pair in pairs if not pair[2]]:
            raise FrontierError(f"--source {wrong[0]}: expected MODEL=SOURCE, such as C8=mine.py:c8")
        found = load_benchmark(name).with_sources({model: place for model, _, place in pairs})
        return Bench(found, self.out or below("bench", folder_name(found.name)))


_DATA, _MACHINE, _PLACE = Data(), Machine(), Place()

bench = App(name="bench", help="Whole benchmarks: many models, four norms, tables and figures.")


def trace_command(
    *models: str,
    data: Data = _DATA,
    norm: Norm = "Linf",
    out: Annotated[str, Parameter(name=("--out", "-o"))] = "traces",
    runs: str | None = None,
    pool: str = "paper",
    queries: int = MAX_QUERIES,
    published: bool = False,
    seed: Seed = 42,
    machine: Machine = _MACHINE,
    json: Json = False,
) -> None:
    """Run every attack of the pool, and record how its distances fall with the queries it spends.

    Killed at any moment, the same command goes on. More models, norms, runs, queries or samples add to what is there.

    Parameters
    ----------
    models
        One or more: zoo:F3, file.py:factory, robustbench:cifar10/Linf/NAME, and so on.
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
    """
    if not models:
        raise FrontierError("no model to trace: expected at least one, such as zoo:F3")
    samples = data.load(*models)
    settings = machine.settings()
    done = {}
    for model in models:
        for each in norms(norm):
            place = below(out, folder_name(model), each)
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
                batch_size=data.batch_size,
                progress=True,
                command=typed(),
                **settings,
            )
    print_trace(done, as_json=json)


def allocate_command(
    *traces: str,
    budget: str = "4k,8k,12k",
    out: Annotated[str, Parameter(name=("--out", "-o"))] = "ensembles",
    norm: Norm = "all",
    plain: bool = False,
    json: Json = False,
) -> None:
    """Give a budget of queries to the runs of traced models: nested ensembles, with what no allocation can pass.

    Parameters
    ----------
    traces
        Folders that `advfrontier trace` wrote, of the models to allocate on.
    budget
        Rising budgets, with commas.
    out
        Folder of the ensemble files, such as L2-4k.toml; `advfrontier evaluate --ensemble` takes them.
    plain
        The paper's algorithm as printed: one run a move, no swaps afterwards.
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


def baseline_command(
    model: str,
    /,
    *,
    data: Data = _DATA,
    norm: str = "Linf",
    out: Annotated[str, Parameter(name=("--out", "-o"))] = "baselines",
    trace: str | None = None,
    radii: str | None = None,
    seed: Seed = 42,
    machine: Machine = _MACHINE,
    json: Json = False,
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
    """
    chosen = norms(norm)
    if len(chosen) != 1:
        raise FrontierError(f"--norm {norm}: expected one norm, because radii differ from norm to norm")
    each = chosen[0]
    place = below(out, folder_name(model), each)
    samples = data.load(model)
    frontier = load_traces(trace).frontier() if trace else None
    usual = [radius for _, radius in (parse_radii(radii) if radii else reference_radii(data.data, each))]
    wanted = [*usual, *(baseline_radii(frontier).tolist() if frontier is not None else [])]
    if not wanted:
        raise FrontierError("no radius to run AutoAttack at: expected --radii 4/255,8/255 or --trace traces/MODEL/NORM")
    found = baseline_to(
        place,
        model,
        samples,
        norm=each,
        radii=wanted,
        seed=seed,
        batch_size=data.batch_size,
        progress=True,
        command=typed(),
        **machine.settings(),
    )
    judged = baseline_aoi(found.radii, found.accuracies, frontier) if frontier is not None else None
    print_baseline(found, judged, norm=each, place=place, as_json=json)


def aoi_command(record: str, /, *, trace: str, json: Json = False) -> None:
    """How close an evaluation came to the frontier of a traced pool, and what each of its runs added.

    Parameters
    ----------
    record
        The folder of an evaluation.
    trace
        Folder of traces that holds one of the same model on the same samples.
    """
    places = find_places(trace, kind=TRACE)
    found = [record_aoi(evaluation, places) for evaluation in find_evaluations([record])]
    if json:
        say_json([jsonable(each) for each in found])
        return
    for each in found:
        print_record_aoi(each)


@bench.command(name="run")
def bench_run(benchmark: str, /, *, place: Place = _PLACE, download: bool = False, machine: Machine = _MACHINE) -> None:
    """Do a whole benchmark: trace, allocate, evaluate, run the baseline, write every table and figure.

    Killed at any moment, the same command goes on. Adding a model, a norm, samples or runs to the file does only what
    is missing.

    Parameters
    ----------
    benchmark
        fashion-mnist, small, paper, or a TOML file.
    download
        Fetch models and data that are not on this machine.
    """
    target = place.open(benchmark)
    results = run_benchmark(
        target,
        resources=Resources(**machine.settings()),
        download=download,
        progress=True,
        say=lambda text: print(text, file=sys.stderr),
        command=typed(),
    )
    if results.norms:
        for path in write_files(target.results, lambda aside: write_experiment(results, aside)):
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
    place: Place = _PLACE,
    calibration: bool = True,
    device: Device = "cpu",
    threads: Threads = None,
    workers: WorkerCount = None,
    json: Json = False,
) -> None:
    """Say what is done, what is left, what it will cost and what failed.

    Parameters
    ----------
    benchmark
        The benchmark given to `bench run`.
    calibration
        Measure how long a query takes here, if that is not known: a few short runs.
    """
    target = place.open(benchmark)
    workers, threads = Machine(workers, device=device, threads=threads).resolved()
    known = read_calibration(target.out, device=device, threads=threads)
    standing = status(target, known)
    if calibration and standing.queries and standing.seconds is None:
        find_device(device)
        busy = {part.model for part in standing.parts if part.left}
        models = [model for model in target.benchmark.models if model.id in busy]
        standing = status(target, calibrate(target, models, device=device, threads=threads))
    print_status(standing, workers=max(1, workers), used=disk_used(target.out), as_json=json)
