"""Benchmarks on the command line: bench run, bench page, bench status."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

from cyclopts import App, Parameter

from advfrontier.cli.options import OUT, Json, Machine, Norm, norms
from advfrontier.errors import FrontierError, printable

if TYPE_CHECKING:
    from advfrontier.bench.folder import Bench


@Parameter(name="*")
@dataclass(frozen=True)
class Place:
    """Folder and samples of a benchmark."""

    out: Annotated[str | None, OUT] = None
    "Folder of all records (default: bench/NAME)."
    source: tuple[str, ...] = ()
    "Source of a model, as in --source C8=mine.py:c8."
    data: str | None = None
    "Data sets of the benchmark, several with commas, with their models (default: all)."
    samples: Annotated[int | None, Parameter(name=("--samples", "-n"))] = None
    "Number of samples of every data set: the first N (default: the number in the file)."

    def open(self, name: str) -> Bench:
        """Return the benchmark of a name or a file, with the options applied.

        Args:
            name: A shipped benchmark or the path of a TOML file.
        """
        from advfrontier.bench.folder import Bench  # noqa: PLC0415  # loads torch

        bench = Bench.open(name, self.out)
        sources = {}
        for text in self.source:
            model, equals, source = text.partition("=")
            if not equals:
                raise FrontierError(
                    f"--source {text}: expected MODEL=SOURCE, such as C8=mine.py:c8"
                )
            sources[model] = source
        benchmark = bench.benchmark.with_sources(sources)
        if self.data is not None:
            benchmark = benchmark.with_data(self.data.split(","))
        if self.samples is not None:
            benchmark = benchmark.with_samples(self.samples)
        return Bench(bench.name, benchmark, bench.out)


_MACHINE, _PLACE = Machine(), Place()

bench_command = App(name="bench", help="Benchmarks: many models, all norms, tables and figures.")


@bench_command.command(name="run")
def run_command(
    benchmark: str,
    /,
    *,
    place: Place = _PLACE,
    norm: Norm = "all",
    only: str | None = None,
    page: str | None = None,
    download: bool = False,
    machine: Machine = _MACHINE,
) -> None:
    """Run a benchmark: trace, allocate, evaluate, run AutoAttack, write tables and figures.

    Interrupted? Run the same command again to resume.

    Args:
        benchmark: fashion-mnist, small, paper, or a TOML file.
        only: Some of trace, evaluate, baseline, with commas (default: all).
        page: Page of results (default: results.md in the output folder). Tables and figures are
            written beside it; rows of norms or models that are not run now stay there.
        download: Fetch models and data that are not on this machine.
    """
    from advfrontier.bench.run import run_benchmark  # noqa: PLC0415  # loads torch
    from advfrontier.record import below  # noqa: PLC0415
    from advfrontier.report.benchmark import check_page, update_page  # noqa: PLC0415  # loads pandas

    bench = place.open(benchmark)
    target = check_page(page or below(bench.out, "results.md"))  # before hours of work
    failures = run_benchmark(
        bench,
        norms=norms(norm),
        stages=bench.chosen_stages(only),
        machine=machine.machine(),
        download=download,
        say=lambda text: print(printable(text), file=sys.stderr),
    )
    for path in update_page(bench, target, norms=norms(norm)):
        print(printable(path))
    if failures:
        listed = "\n  ".join(failures)
        raise FrontierError(
            f"{len(failures)} parts failed, the others are done; run the same command again to "
            f"retry them:\n  {listed}"
        )


@bench_command.command(name="page")
def page_command(
    benchmark: str, page: str, /, *, place: Place = _PLACE, norm: Norm = "all"
) -> None:
    """Write the page of a benchmark, its tables and figures, without a model or a query.

    Finished records in the output folder are put in the tables beside the page first. Without such
    records the page is made of the tables alone.

    Args:
        benchmark: The benchmark given to `bench run`.
        page: The page, such as docs/results.md; its tables and figures are in docs/results/.
    """
    from advfrontier.report.benchmark import update_page  # noqa: PLC0415  # loads pandas

    for path in update_page(place.open(benchmark), page, norms=norms(norm)):
        print(printable(path))


@bench_command.command(name="status")
def status_command(
    benchmark: str, /, *, place: Place = _PLACE, norm: Norm = "all", json: Json = False
) -> None:
    """Print how many models are finished, per stage and norm. Nothing is written.

    Args:
        benchmark: The benchmark given to `bench run`.
    """
    from advfrontier.bench.folder import status  # noqa: PLC0415  # loads torch
    from advfrontier.cli.output import show  # noqa: PLC0415

    table = status(place.open(benchmark), norms=norms(norm))
    show(table, facts=table.records(), as_json=json)
