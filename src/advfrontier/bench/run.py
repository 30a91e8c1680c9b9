"""Run a benchmark: trace, allocate, evaluate, run AutoAttack.

Every call resumes from its own record, so a benchmark keeps no books: run the same command again
after an interruption, or after adding a model, a norm, samples or runs to the file.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import numpy as np

from advfrontier.bench.benchmark import TRAIN, BenchmarkModel
from advfrontier.bench.folder import (
    BASELINE,
    EVALUATE,
    TRACE,
    Bench,
    finished_trace,
    read_trace,
)
from advfrontier.errors import FrontierError, Unfinished
from advfrontier.evaluation.allocation import allocate_traces, write_ensembles
from advfrontier.evaluation.baseline import run_autoattack
from advfrontier.evaluation.evaluate import evaluate
from advfrontier.evaluation.trace import trace
from advfrontier.execution import Machine
from advfrontier.frontier.optimality import baseline_radii
from advfrontier.jobs import Model
from advfrontier.record import Record
from advfrontier.sources import load_model
from advfrontier.threat.names import NORMS


@dataclass
class Failures:
    """Parts of a benchmark that failed.

    Args:
        say: Called with one line for every failure.
        lines: One line per failure.
    """

    say: Callable[[str], object]
    lines: list[str] = field(default_factory=list)

    @contextmanager
    def caught(self, what: str) -> Iterator[None]:
        """Keep the error of one part, so that the other parts are done.

        Args:
            what: Name of the part, for the message.
        """
        try:
            yield
        except Unfinished:
            raise
        except Exception as error:  # noqa: BLE001  # models of users raise anything
            text = str(error)
            if not isinstance(error, FrontierError):
                text = f"{type(error).__name__}: {error}"
            self.lines.append(f"{what}: {text}")
            self.say(f"failed: {self.lines[-1]}")


def run_benchmark(
    bench: Bench,
    *,
    norms: Sequence[str] = NORMS,
    stages: Collection[str] | None = None,
    machine: Machine | None = None,
    download: bool = False,
    say: Callable[[str], object] = lambda _: None,
) -> list[str]:
    """Do all missing parts; a part that fails does not stop the others.

    Args:
        bench: Benchmark, and the folder of its records.
        norms: Names of the norms to work in, such as `L2`.
        stages: Stages to do: some of `trace` (and allocate), `evaluate`, `baseline`. Default: all.
        machine: Device and processes. Default: this process.
        download: Fetch models and data that are not on this machine.
        say: Called with one line when a part begins or fails.

    Returns:
        One line for every part that failed.
    """
    bench.check()
    stages = bench.stages if stages is None else stages
    machine = machine or Machine(threads=1, progress=False)
    failures = Failures(say)
    for entry in bench.models:
        with failures.caught(f"model {entry.id}"):
            model = _load(bench, entry, download=download)
            for norm in norms:
                for stage in stages:
                    if entry in bench.models_of(stage, norm):
                        say(f"{stage} {entry.id} in {norm}")
                        with failures.caught(f"{stage} {entry.id} in {norm}"):
                            _DO[stage](bench, entry, model, norm, machine)
    for norm in norms:
        if TRACE in stages:
            say(f"allocate in {norm}")
            with failures.caught(f"allocate in {norm}"):
                _allocate(bench, norm)
    return failures.lines


def _load(bench: Bench, entry: BenchmarkModel, *, download: bool) -> Model:
    """Load a model once for all norms; raises if it cannot be loaded."""
    if download:  # once, in this process: workers read what is on the machine
        load_model(str(entry.source), download=True)
        bench.samples(entry, download=True)
    model = Model(entry.id, source=entry.source, load=load_model)
    _ = model.function
    return model


def _trace(bench: Bench, entry: BenchmarkModel, model: Model, norm: str, machine: Machine) -> None:
    trace(
        model,
        bench.samples(entry),
        norm=norm,
        runs=lambda classes: bench.runs(norm, classes),
        queries=bench.queries,
        solvers=bench.solvers,
        out=bench.folder("traces", entry.id, norm),
        batch_size=entry.batch,
        machine=machine,
    )


def _allocate(bench: Bench, norm: str) -> None:
    """Allocate on the traced training models, over the runs that all of them have."""
    training = [model for model in bench.models if model.split == TRAIN]
    traced = [finished_trace(bench, model, norm) for model in training]
    records = [record for record in traced if record is not None]
    if training and not records:
        raise FrontierError("no training model is traced: there is nothing to allocate on")
    if records:
        classes = min(record.clean.classes for record in records)
        ensembles = allocate_traces(
            records,
            budgets=bench.benchmark.budgets,
            runs=bench.runs(norm, classes),
            queries=bench.queries,
            plain=bench.benchmark.published,
        )
        write_ensembles(f"{bench.out}/ensembles", ensembles)


def _evaluate(
    bench: Bench, entry: BenchmarkModel, model: Model, norm: str, machine: Machine
) -> None:
    evaluate(
        model,
        bench.samples(entry),
        norm=norm,
        ensemble=bench.budget,
        solvers=bench.solvers,
        out=bench.folder("evaluations", entry.id),
        batch_size=entry.batch,
        machine=machine,
    )


def _run_baseline(
    bench: Bench, entry: BenchmarkModel, model: Model, norm: str, machine: Machine
) -> None:
    """Run AutoAttack at the radii it was begun with, or at percentiles of the traced frontier.

    A frontier that moves afterwards does not move the radii: the points stay true.
    """
    place = bench.folder("baselines", entry.id, norm)
    reference = bench.benchmark.data[entry.data].radii.get(norm)
    radii = [] if reference is None else [reference]
    begun, traced = Record.find(place), finished_trace(bench, entry, norm)
    if begun is not None:
        radii += begun.header.radii
    elif traced is not None:
        frontier = read_trace(bench, traced).frontier()
        if ((frontier > 0) & (frontier < np.inf)).any():
            radii += baseline_radii(frontier).tolist()
    if not radii:
        raise FrontierError("no radius to run AutoAttack at: trace the model first")
    run_autoattack(
        place,
        model,
        bench.samples(entry),
        norm=norm,
        radii=radii,
        batch_size=entry.batch,
        machine=machine,
    )


_DO = {TRACE: _trace, EVALUATE: _evaluate, BASELINE: _run_baseline}
