"""Whole benchmarks: bench run, bench page, bench status."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Annotated

from cyclopts import App, Parameter

from advfrontier.bench import Bench, run_benchmark
from advfrontier.bench.benchmark import load_benchmark
from advfrontier.bench.status import estimated_status, status
from advfrontier.bench.stored import folder_beside, read_stored
from advfrontier.cli.options import OUT, Device, Json, Machine, Norm, Threads, WorkerCount, norms
from advfrontier.cli.output import show
from advfrontier.errors import FrontierError
from advfrontier.record import below, folder_name, write_files
from advfrontier.report.benchmark import check_page, write_page, write_results


@Parameter(name="*")
@dataclass(frozen=True)
class Place:
    """Where a benchmark is run."""

    out: Annotated[str | None, OUT] = None
    "Folder of all that comes out; by default bench/ and the benchmark's name."
    source: tuple[str, ...] = ()
    "Where a model is to be found: --source C8=mine.py:c8."
    samples: Annotated[int | None, Parameter(name=("--samples", "-n"))] = None
    "How many samples of every data set, in place of what the file says."
    norm: Norm = "all"

    def open(self, name: str) -> Bench:
        """The benchmark of this name, or in this file, and its folder."""
        pairs = [text.partition("=") for text in self.source]
        if wrong := ["".join(pair) for pair in pairs if not pair[2]]:
            raise FrontierError(
                f"--source {wrong[0]}: expected MODEL=SOURCE, such as C8=mine.py:c8"
            )
        chosen = load_benchmark(name).with_sources({model: place for model, _, place in pairs})
        if self.samples is not None:
            chosen = chosen.with_samples(self.samples)
        if self.norm != "all":
            chosen = chosen.with_norms(norms(self.norm))
        return Bench(chosen, self.out or below("bench", folder_name(chosen.name)))


_MACHINE, _PLACE = Machine(), Place()

bench_command = App(
    name="bench", help="Whole benchmarks: many models, four norms, tables and figures."
)


@bench_command.command(name="run")
def run_command(
    benchmark: str,
    /,
    *,
    place: Place = _PLACE,
    page: str | None = None,
    cached: bool = False,
    download: bool = False,
    machine: Machine = _MACHINE,
) -> None:
    """Do a whole benchmark: trace, allocate, evaluate, run the baseline, write every table and figure.

    Killed at any moment, the same command goes on. Adding a model, a norm, samples or runs to the file does only what
    is missing.

    Args:
        benchmark: fashion-mnist, small, paper, cifar10, imagenet, or a TOML file.
        page: Write the page for a site as well, such as docs/results.md; what it links to goes to docs/results/. Norms
            that are not asked for stand there as they were stored beside it.
        cached: Trace and attack nothing: make the tables from what is done so far, and say what is missing.
        download: Fetch models and data that are not on this machine.
    """
    target = place.open(benchmark)
    # Read before anything is run: a page of another benchmark is told at once.
    stored = (
        None
        if page is None
        else read_stored(folder_beside(page), Bench(load_benchmark(benchmark), ""))
    )
    if page is not None and stored is not None:
        check_page(page, {*target.benchmark.norms, *stored.norms})
    done = (
        {(part.model, part.norm, part.stage) for part in status(target).parts if not part.left}
        if cached
        else None
    )
    results = run_benchmark(
        target,
        only=done,
        machine=machine.machine(),
        download=download,
        say=lambda text: print(text, file=sys.stderr),
    )
    if results.norms:
        for path in write_files(target.results, lambda aside: write_results(results, aside)):
            print(path)
        if page is not None and stored is not None:
            print(write_page(results.beside(stored), page)[0])
    if results.failures:
        listed = "\n  ".join(results.failures)
        raise FrontierError(
            f"{len(results.failures)} parts failed, the others are done; the same command tries again:\n  {listed}"
        )


@bench_command.command(name="page")
def page_command(benchmark: str, page: str, /) -> None:
    """Write the page of a benchmark again, with all tables and figures, from the distances stored beside it.

    No model is loaded and no query spent.

    Args:
        benchmark: The benchmark given to `bench run`.
        page: The page that `bench run --page` wrote, such as docs/results.md; its files lie in docs/results/.
    """
    stored = read_stored(folder_beside(page), Bench(load_benchmark(benchmark), ""))
    if not stored.norms:
        raise FrontierError(
            f"no results are stored beside {page}: `advfrontier bench run {benchmark} --page {page}` stores them"
        )
    check_page(page, stored.norms)
    for path in write_page(stored, page):
        print(path)


@bench_command.command(name="status")
def status_command(
    benchmark: str,
    /,
    *,
    place: Place = _PLACE,
    calibration: bool = True,
    device: Device = "auto",
    threads: Threads = 1,
    workers: WorkerCount = None,
    json: Json = False,
) -> None:
    """Say what is done, what is left, what it will cost and what failed.

    Args:
        benchmark: The benchmark given to `bench run`.
        calibration: Measure how long a query takes here, if that is not known: a few short runs.
    """
    target = place.open(benchmark)
    machine = Machine(workers, device=device, threads=threads)
    many, each = machine.resolved()
    standing = estimated_status(target, device=machine.found, threads=each, measure=calibration)
    together = max(1, many)
    show(standing.table(workers=together), facts=standing.facts(workers=together), as_json=json)
