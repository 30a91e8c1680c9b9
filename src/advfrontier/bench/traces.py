"""The traces of a benchmark: making one, reading one, and why its distances may be too large."""

from __future__ import annotations

from typing import TYPE_CHECKING

from advfrontier.evaluation.trace import read_traces, trace
from advfrontier.pool import CHECKPOINT
from advfrontier.record import Record
from advfrontier.sources import load_model

if TYPE_CHECKING:
    from collections.abc import Sequence

    from advfrontier.bench.benchmark import BenchmarkModel
    from advfrontier.bench.layout import Bench
    from advfrontier.evaluation.trace import Traces
    from advfrontier.execution import Machine
    from advfrontier.jobs import Model


def trace_model(
    bench: Bench,
    model: BenchmarkModel,
    loaded: Model,
    norm: str,
    machine: Machine,
    *,
    download: bool = False,
    progress: bool = False,
) -> tuple[Record, tuple[str, ...]]:
    """Trace all of the benchmark's runs on one model, as far as they are missing; returns the record and the runs."""
    place = bench.trace(model, norm)
    if download and Record.find(place) is None:
        load_model(str(model.source), download=True)  # once, here: workers only read what is on the machine
    traces = trace(
        loaded,
        bench.samples(model, download=download),
        norm=norm,
        runs=lambda classes: bench.runs(norm, classes),
        queries=bench.queries,
        seed=bench.benchmark.seed,
        out=place,
        batch_size=model.batch,
        machine=machine,
        progress=progress,
    )
    return Record.open(place, "trace"), traces.runs


def thin_traces(bench: Bench, record: Record, runs: Sequence[str]) -> Traces:
    """What the benchmark asks for, and no more: a record may hold other runs, or longer ones, of an earlier file."""
    return read_traces(record, runs=runs).thin(range(CHECKPOINT, bench.queries + 1, CHECKPOINT))
