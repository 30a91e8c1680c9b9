"""The traces of a benchmark: making one, reading one, and why its distances may be too large."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from advfrontier.engine.checks import TRAINING
from advfrontier.evaluation.identity import SEVERAL
from advfrontier.evaluation.session import Workers, open_session
from advfrontier.evaluation.trace import TRACE, Traces, load_traces
from advfrontier.evaluation.units import Terms
from advfrontier.flags import Flag, Kind, doubts
from advfrontier.pool.ensemble import CHECKPOINT
from advfrontier.sources import load_model
from advfrontier.store import Store

if TYPE_CHECKING:
    from collections.abc import Sequence

    from advfrontier.bench.layout import Bench
    from advfrontier.sources.benchmark import BenchmarkModel


@dataclass(frozen=True)
class Resources:
    """Where units are done."""

    device: str = "cpu"
    threads: int = 1
    workers: int = 0
    ray: str | None = None


def trace_model(
    bench: Bench,
    model: BenchmarkModel,
    norm: str,
    resources: Resources,
    *,
    download: bool = False,
    progress: bool = False,
    command: str = "",
) -> tuple[str, ...]:
    """Trace all of the benchmark's runs on one model, as far as they are missing; returns the runs."""
    place, source = bench.trace(model, norm), str(model.source)
    if download and Store(place).record() is None:
        load_model(source, download=True)  # once, here: workers only read what is on the machine
    session = open_session(
        place,
        kind=TRACE,
        model=source,
        model_name=model.id,
        samples=bench.samples(model, download=download),
        terms=Terms(norm, bench.benchmark.seed, model.batch, resources.device, "float32", resources.threads),
        keep_points=False,
        keep_state=False,
        command=command,
    )
    runs = bench.runs(norm, session.classes)
    workers = Workers(resources.workers, resources.ray)
    session.fulfil(dict.fromkeys(runs, bench.queries), workers=workers, progress=progress)
    load_traces(place, runs=runs, session=session)  # a unit whose file was damaged is done again
    return runs


def read_traces(bench: Bench, model: BenchmarkModel, norm: str, runs: Sequence[str]) -> Traces:
    """What the benchmark asks for, and no more: a record may hold other runs, or longer ones, of an earlier file."""
    traces = load_traces(bench.trace(model, norm), runs=runs)
    return traces.thin(range(CHECKPOINT, bench.queries + 1, CHECKPOINT))


def classes_of(bench: Bench, model: BenchmarkModel, norm: str) -> int:
    """How many classes a traced model has."""
    record = Store(bench.trace(model, norm)).record() or {}
    return int(record["classes"])


def doubts_of(traces: Traces) -> tuple[str, ...]:
    """The flags of traces that say that their distances may be too large."""
    return tuple(str(flag) for flag in doubts(Flag(_kind(text), text) for text in traces.flags))


def _kind(text: str) -> Kind:
    """Which of the harmless flags this is; any other kind that leaves doubt."""
    if text == TRAINING:
        return Kind.TRAINING
    if text.startswith(SEVERAL):
        return Kind.VERSIONS
    return Kind.UNBROKEN if "never broken" in text else Kind.MISLEADING_GRADIENTS
