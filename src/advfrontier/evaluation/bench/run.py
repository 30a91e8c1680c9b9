"""Do a benchmark: trace every model, allocate on the training models, read the tiers off the traces, run the baseline.

Every stage does only what is missing. One model that fails does not stop the others: it is left out of the tables of
that norm, and named.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from importlib.util import find_spec
from typing import TYPE_CHECKING

from advfrontier.engine.checks import TRAINING
from advfrontier.errors import FrontierError
from advfrontier.evaluation.bench.allocating import allocate_to
from advfrontier.evaluation.bench.baselines import baseline_to, radii_of
from advfrontier.evaluation.experiment import Experiment, ModelFacts, experiment, norm_experiment, reduce_traces
from advfrontier.evaluation.session import Workers, open_session
from advfrontier.evaluation.trace import TRACE, Traces, load_traces
from advfrontier.evaluation.units import Terms
from advfrontier.frontier.baseline import baseline_radii
from advfrontier.pool.ensemble import CHECKPOINT
from advfrontier.sources import load_model
from advfrontier.store import Store, open_folder

if TYPE_CHECKING:
    from collections.abc import Callable

    from advfrontier.bench.benchmark import BenchmarkModel
    from advfrontier.evaluation.bench.layout import Bench
    from advfrontier.evaluation.experiment import KnownPoints, NormExperiment, Subject
    from advfrontier.pool import Ensemble

FAILURES = "failures.json"
_EXTRA = "pyautoattack"


@dataclass(frozen=True)
class Resources:
    """Where units are done."""

    device: str = "cpu"
    threads: int = 1
    workers: int = 0
    ray: str | None = None


@dataclass(frozen=True)
class Failure:
    """A part of a benchmark that could not be done."""

    model: str
    norm: str
    stage: str  # "trace", "allocation" or "baseline"
    error: str

    def __str__(self) -> str:
        return f"{self.model} in {self.norm}, {self.stage}: {self.error}"


@dataclass
class _Running:
    """A benchmark under way."""

    bench: Bench
    resources: Resources
    progress: bool
    say: Callable[[str], object]
    command: str
    failures: list[Failure] = field(default_factory=list)
    traced: dict[tuple[str, str], tuple[str, ...]] = field(default_factory=dict)  # (model, norm) → runs

    def attempt(self, model: str, norm: str, stage: str, work: Callable[[], object]) -> None:
        """Do a part. If it cannot be done, write down why and go on."""
        try:
            work()
        except Exception as error:  # noqa: BLE001  # whatever one model raises, the others are to be done
            text = str(error) if isinstance(error, FrontierError) else f"{type(error).__name__}: {error}"
            self.failures.append(Failure(model, norm, stage, text))
            self.say(f"failed: {self.failures[-1]}")
            write_failures(self.bench.out, self.failures)


def run_benchmark(
    bench: Bench,
    *,
    resources: Resources | None = None,
    download: bool = False,
    progress: bool = False,
    say: Callable[[str], object] = lambda _: None,
    command: str = "",
) -> Experiment:
    """Do all that is missing, and put the tables together. What failed is in the result's `failures`."""
    running = _Running(bench, resources or Resources(), progress, say, command)
    write_failures(bench.out, [])
    for model, norm in bench.jobs:
        running.attempt(model.id, norm, "trace", lambda m=model, n=norm: _trace(running, m, n, download=download))  # type: ignore[misc]
    norms: dict[str, NormExperiment] = {}
    for norm in bench.benchmark.norms:
        running.attempt("all models", norm, "allocation", lambda n=norm: norms.update({n: _norm(running, n)}))  # type: ignore[misc]
    return experiment(
        bench.benchmark.name,
        bench.benchmark.budgets,
        norms,
        models=[_facts(model) for model in bench.benchmark.models],
        failures=[str(failure) for failure in running.failures],
    )


def write_failures(out: str, failures: list[Failure]) -> None:
    """For `bench status`."""
    content = json.dumps([asdict(failure) for failure in failures], indent=2, ensure_ascii=False)
    open_folder(out).write(FAILURES, content.encode() + b"\n")


def read_failures(out: str) -> list[Failure]:
    """What failed in the last run."""
    return [Failure(**entry) for entry in json.loads(open_folder(out).read(FAILURES) or b"[]")]


def _trace(running: _Running, model: BenchmarkModel, norm: str, *, download: bool) -> None:
    bench = running.bench
    if model.source is None:
        raise FrontierError(
            f"no source is known ({model.origin}): name your copy, as in --source {model.id}=file.py:factory"
        )
    if download and Store(bench.trace(model, norm)).record() is None:
        load_model(model.source, download=True)  # once, here: workers only read what is on the machine
    samples = bench.samples(model, download=download)
    running.say(f"{model.id} in {norm}")
    resources = running.resources
    session = open_session(
        bench.trace(model, norm),
        kind=TRACE,
        model=model.source,
        model_name=model.id,
        samples=samples,
        terms=Terms(norm, bench.benchmark.seed, model.batch, resources.device, "float32", resources.threads),
        keep_points=False,
        keep_state=False,
        command=running.command,
    )
    runs = bench.runs(norm, session.classes)
    workers = Workers(resources.workers, resources.ray)
    session.fulfil(dict.fromkeys(runs, bench.queries), workers=workers, progress=running.progress)
    load_traces(session.store.place, runs=runs, session=session)  # a unit whose file was damaged is done again
    running.traced[model.id, norm] = runs


def _facts(model: BenchmarkModel) -> ModelFacts:
    return ModelFacts(
        model=model.id,
        data=model.data,
        split=model.split,
        batch=model.batch,
        baseline_batch=model.baseline_batch,
        source=model.source,
        authors=model.authors,
        trained=model.trained,
        notes=tuple(text for text in (model.origin, model.note) if text),
    )


def _traces(running: _Running, model: BenchmarkModel, norm: str) -> Traces:
    """What the benchmark asks for, and no more: a record may hold other runs, or longer ones, of an earlier file."""
    bench = running.bench
    found = load_traces(bench.trace(model, norm), runs=running.traced[model.id, norm])
    return found.thin(range(CHECKPOINT, bench.queries + 1, CHECKPOINT))


def _norm(running: _Running, norm: str) -> NormExperiment:
    bench = running.bench
    models = [model for model in bench.benchmark.models if (model.id, norm) in running.traced]
    training = [model for model in models if model.split == "train"]
    if not training:
        raise FrontierError(f"no training model was traced in {norm}: there is nothing to allocate on")
    held = [set(running.traced[model.id, norm]) for model in training]
    runs = [run for run in running.traced[training[0].id, norm] if all(run in each for each in held)]
    ensembles = allocate_to(
        bench.ensembles,
        [bench.trace(model, norm) for model in training],
        norm=norm,
        budgets=bench.benchmark.budgets,
        runs=runs,
        queries=bench.queries,
    )
    running.say(f"{norm}: ensembles of {', '.join(str(e.total) for e in ensembles.values())} queries")
    notes = [f"{model.id} is missing: it failed" for model in bench.benchmark.models if model not in models]
    known: dict[str, KnownPoints] = {}
    absent = _no_baseline(bench, norm)
    if absent:
        notes.append(absent)
    else:
        for model in models:
            running.attempt(
                model.id,
                norm,
                "baseline",
                lambda m=model: known.update({m.id: _baseline(running, m, norm)}),  # type: ignore[misc]
            )
    subjects = [_subject(running, model, norm, ensembles, known.get(model.id)) for model in models]
    flags = (f"AutoAttack on {name}: {flag}" for name, points in known.items() for flag in points.flags)
    return norm_experiment(
        norm, subjects, ensembles, radii=bench.radii(norm), paper=bench.paper(norm), notes=[*notes, *flags]
    )


def _no_baseline(bench: Bench, norm: str) -> str | None:
    """Why there is no baseline, if there is none."""
    if bench.benchmark.baseline is None:
        return "no baseline: the benchmark asks for none"
    if not bench.has_baseline(norm):
        return f"no baseline: AutoAttack does not attack in {norm}"
    if find_spec(_EXTRA) is None:
        return "no baseline: AutoAttack is not installed; type pip install 'advfrontier[autoattack]'"
    return None


def _baseline(running: _Running, model: BenchmarkModel, norm: str) -> KnownPoints:
    bench = running.bench
    place = bench.baseline(model, norm)
    references = bench.radii(norm)[model.data]
    radii = radii_of(place)
    if radii is None:
        radii = tuple(baseline_radii(_traces(running, model, norm).frontier()).tolist())
    return baseline_to(
        place,
        str(model.source),
        bench.samples(model),
        norm=norm,
        radii=sorted({*radii, *references}),
        seed=bench.benchmark.seed,
        name=model.id,
        batch_size=model.baseline_batch,
        progress=running.progress,
        command=running.command,
        **asdict(running.resources),
    )


def _subject(
    running: _Running, model: BenchmarkModel, norm: str, ensembles: dict[int, Ensemble], known: KnownPoints | None
) -> Subject:
    bench = running.bench
    traces = _traces(running, model, norm)
    record = Store(bench.trace(model, norm)).record() or {}
    # Where models want pictures cut differently the same picture has other contents, and rows tell which it is.
    apart = any(other.preprocessing for other in bench.benchmark.models if other.data == model.data)
    return reduce_traces(
        model.id,
        model.data,
        model.split,
        traces,
        {budget: ensemble.for_classes(record["classes"]) for budget, ensemble in ensembles.items()},
        paper={budget: ensemble.for_classes(record["classes"]) for budget, ensemble in bench.paper(norm).items()},
        known=known,
        doubts=[flag for flag in record["flags"] if flag != TRAINING],
        samples=[f"row {row}" for row in range(len(traces.samples))] if apart else None,
    )
