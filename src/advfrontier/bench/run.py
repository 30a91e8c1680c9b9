"""Do a benchmark: trace every model, allocate on the training models, read the tiers off the traces, run the baseline.

Every stage does only what is missing. One model that fails does not stop the others: it is left out of the tables of
that norm, and named.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from typing import TypeVar

import numpy as np
from pydantic import TypeAdapter, ValidationError

from advfrontier.attacks.autoattack import KnownPoints
from advfrontier.bench.allocation import allocate_into, learn_into
from advfrontier.bench.baselines import no_baseline, radii_of, run_autoattack
from advfrontier.bench.benchmark import BenchmarkModel
from advfrontier.bench.layout import Bench, claim
from advfrontier.bench.races import Races
from advfrontier.bench.results import NormResults, Results
from advfrontier.bench.rivals import rival_words, rivals
from advfrontier.bench.subject import PAPER, Allocations, Subject
from advfrontier.errors import FrontierError, Unfinished
from advfrontier.evaluation.evaluation import Evaluation
from advfrontier.evaluation.trace import Traces, read_traces, trace
from advfrontier.execution import Machine
from advfrontier.flags import doubts
from advfrontier.frontier.optimality import baseline_radii
from advfrontier.jobs import Model
from advfrontier.pool import CHECKPOINT, Ensemble, Race, tier_label
from advfrontier.record import Record, open_folder
from advfrontier.sources import load_model

T = TypeVar("T")

FAILURES = "failures.json"


@dataclass(frozen=True)
class Failure:
    """A part of a benchmark that could not be done."""

    model: str
    norm: str
    stage: str  # "trace", "allocation", "race" or "baseline"
    error: str

    def __str__(self) -> str:
        return f"{self.model} in {self.norm}, {self.stage}: {self.error}"


def run_benchmark(
    bench: Bench,
    *,
    machine: Machine | None = None,
    download: bool = False,
    only: Collection[tuple[str, str, str]] | None = None,
    say: Callable[[str], object] = lambda _: None,
) -> Results:
    """Do all that is missing, and put the results together. What failed is in their `failures`.

    Args:
        bench: The benchmark and its folder.
        machine: Where the units are done; by default in this process.
        download: Fetch models and data that are not on this machine.
        only: The parts (model, norm, "trace", "race" or "baseline") to take; notes name the others, which are left out.
        say: Told what begins and what failed.
    """
    bench.check_pool()
    claim(bench.out, bench.benchmark.name)
    return _Running(bench, machine or Machine(threads=1, progress=False), say, only).all(
        download=download
    )


def read_failures(out: str) -> tuple[Failure, ...]:
    """What failed in the last run."""
    try:
        return TypeAdapter(tuple[Failure, ...]).validate_json(
            open_folder(out).read(FAILURES) or b"[]"
        )
    except ValidationError as error:
        raise FrontierError(
            f"{out}/{FAILURES} is damaged, or was not written by advfrontier: remove it"
        ) from error


@dataclass
class _Running:
    """A benchmark under way."""

    bench: Bench
    machine: Machine
    say: Callable[[str], object]
    only: Collection[tuple[str, str, str]] | None = None
    failures: list[Failure] = field(default_factory=list)
    models: dict[str, Model] = field(default_factory=dict)  # each is loaded once, for all norms
    traced: dict[tuple[str, str], tuple[Record, tuple[str, ...]]] = field(
        default_factory=dict
    )  # (model, norm) → runs

    def all(self, *, download: bool) -> Results:
        """Every model in every norm, then norm by norm what all of them together are needed for."""
        self._write_failures()
        for model, norm in self.bench.jobs:
            if self._asked(model.id, norm, "trace"):
                with self._part(model.id, norm, "trace"):
                    self.traced[model.id, norm] = self._trace(model, norm, download=download)
        norms: dict[str, NormResults] = {}
        for norm in self.bench.benchmark.norms:
            with self._part("all models", norm, "allocation"):
                norms[norm] = self._norm(norm)
        benchmark = self.bench.benchmark
        failures = tuple(str(failure) for failure in self.failures)
        return Results(
            benchmark.name, tuple(benchmark.budgets), norms, tuple(benchmark.models), failures
        )

    def _asked(self, *part: str) -> bool:
        return self.only is None or part in self.only

    @contextmanager
    def _part(self, model: str, norm: str, stage: str) -> Iterator[None]:
        """Do a part. If it cannot be done, write down why and go on."""
        try:
            yield
        except Unfinished:
            raise
        except Exception as error:  # noqa: BLE001  # whatever one model raises, the others are to be done
            text = (
                str(error)
                if isinstance(error, FrontierError)
                else f"{type(error).__name__}: {error}"
            )
            self.failures.append(Failure(model, norm, stage, text))
            self.say(f"failed: {self.failures[-1]}")
            self._write_failures()

    def _each(
        self,
        models: Iterable[BenchmarkModel],
        norm: str,
        stage: str,
        do: Callable[[BenchmarkModel], T],
    ) -> tuple[dict[str, T], list[str]]:
        """What comes out for every model on which it can be done, and those that it was not asked for."""
        done, left = {}, []
        for model in models:
            if self._asked(model.id, norm, stage):
                with self._part(model.id, norm, stage):
                    done[model.id] = do(model)
            else:
                left.append(model.id)
        return done, left

    def _write_failures(self) -> None:
        """For `bench status`. Putting together what is done tries nothing: the failures of the last run stay."""
        if self.only is not None:
            return
        content = json.dumps(
            [asdict(failure) for failure in self.failures], indent=2, ensure_ascii=False
        )
        open_folder(self.bench.out).write(FAILURES, content.encode() + b"\n")

    def _trace(
        self, model: BenchmarkModel, norm: str, *, download: bool
    ) -> tuple[Record, tuple[str, ...]]:
        if model.source is None:
            raise FrontierError(
                f"no source is known ({model.origin}): name your copy, as in --source {model.id}=file.py:factory"
            )
        self.say(f"{model.id} in {norm}")
        bench, place = self.bench, self.bench.trace(model, norm)
        if model.id not in self.models:
            if download:
                load_model(
                    model.source, download=True
                )  # once, here: workers only read what is on the machine
            self.models[model.id] = Model(model.id, source=model.source, load=load_model)
        traces = trace(
            self.models[model.id],
            bench.samples(model, download=download),
            norm=norm,
            runs=lambda classes: bench.runs(norm, classes),
            queries=bench.queries,
            seed=bench.benchmark.seed,
            solvers=bench.solvers,
            out=place,
            batch_size=model.batch,
            machine=self.machine,
        )
        return Record.open(place, "trace"), traces.runs

    def _traces(self, model: BenchmarkModel, norm: str) -> Traces:
        """What the benchmark asks for and no more: a record may hold other or longer runs, of an earlier file."""
        record, runs = self.traced[model.id, norm]
        return read_traces(record, runs=runs).thin(
            range(CHECKPOINT, self.bench.queries + 1, CHECKPOINT)
        )

    def _norm(self, norm: str) -> NormResults:
        """Allocate, run the baseline, and put the models together."""
        bench, benchmark = self.bench, self.bench.benchmark
        models = [model for model in benchmark.models if (model.id, norm) in self.traced]
        ensembles, race, others = self._learned(
            [model for model in models if model.split == "train"], norm
        )
        notes = [
            f"{model.id} is missing: {'it failed' if self._asked(model.id, norm, 'trace') else 'it is not done yet'}"
            for model in benchmark.models
            if model not in models
        ]
        if benchmark.published:
            notes.append("the solvers are those of their papers")
        if benchmark.allocation == "plain":
            notes.append("allocated by the paper's algorithm as printed")
        known: dict[str, KnownPoints] = {}
        if absent := no_baseline(bench, norm):
            notes.append(absent)
        else:
            if benchmark.baseline_split:
                notes.append(f"AutoAttack was run on the {benchmark.baseline_split} models alone")
            compared = [
                model for model in models if benchmark.baseline_split in {None, model.split}
            ]
            known, left = self._each(
                compared, norm, "baseline", lambda model: self._baseline(model, norm)
            )
            notes += [f"AutoAttack on {name} is missing: it is not done yet" for name in left]
        notes += [
            f"AutoAttack on {name}: {text}"
            for name, points in known.items()
            for text in _warnings(points)
        ]
        raced: dict[str, Evaluation] = {}
        if race is not None:
            races = Races(bench, race, self.models, self.machine, self.say)
            if (
                self.only is not None
            ):  # another race than the one that was done may have been learned now
                raced_now = {model.id for model in models if bench.finished_race(model, race)}
                self.only = {
                    part for part in self.only if part[1:] != (norm, "race") or part[0] in raced_now
                }
            races.side_by_side([model for model in models if self._asked(model.id, norm, "race")])
            raced, left = self._each(models, norm, "race", races.on)
            notes += [f"the race on {name} is missing: it is not done yet" for name in left]
        return NormResults(
            norm,
            [
                self._subject(
                    model, norm, ensembles, others, raced.get(model.id), known=known.get(model.id)
                )
                for model in models
            ],
            ensembles,
            radii=bench.radii(norm),
            paper=bench.paper(norm),
            race=race,
            rivals=rival_words(others),
            notes=notes,
        )

    def _learned(
        self, training: Sequence[BenchmarkModel], norm: str
    ) -> tuple[dict[int, Ensemble], Race | None, Allocations]:
        """What the training models teach, over the runs that all of them have: ensembles, the race, and its rivals."""
        bench, budgets = self.bench, self.bench.benchmark.budgets
        if not training:
            raise FrontierError(
                f"no training model was traced in {norm}: there is nothing to allocate on"
            )
        records, pools = zip(*(self.traced[model.id, norm] for model in training), strict=True)
        runs = [run for run in pools[0] if all(run in pool for pool in pools)]
        ensembles = allocate_into(
            bench.ensembles,
            records,
            norm=norm,
            budgets=budgets,
            runs=runs,
            queries=bench.queries,
            plain=bench.benchmark.allocation == "plain",
        )
        self.say(
            f"{norm}: ensembles of {', '.join(tier_label(e.total) for e in ensembles.values())} queries"
        )
        race = (
            learn_into(bench.ensembles, records, norm=norm, total=budgets[-1], runs=runs)
            if bench.raced
            else None
        )
        traces = (self._traces(model, norm) for model in training)
        return ensembles, race, rivals(traces, runs, budgets=budgets, queries=bench.queries)

    def _baseline(self, model: BenchmarkModel, norm: str) -> KnownPoints:
        """AutoAttack at the radii it was begun with, or at percentiles of the frontier, and at the reference radii.

        A frontier that breaks nothing has no percentiles: then at the reference radii alone.
        """
        bench, place = self.bench, self.bench.baseline(model, norm)
        references, radii = bench.radii(norm)[model.data], radii_of(place)
        if radii is None:
            frontier = self._traces(model, norm).frontier()
            broken = ((frontier > 0) & (frontier < np.inf)).any()
            radii = tuple(baseline_radii(frontier).tolist()) if broken or not references else ()
        return run_autoattack(
            place,
            self.models[model.id],
            bench.samples(model),
            norm=norm,
            radii=sorted({*radii, *references}),
            seed=bench.benchmark.seed,
            batch_size=model.baseline_batch,
            machine=self.machine,
        )

    def _subject(
        self,
        model: BenchmarkModel,
        norm: str,
        ensembles: Mapping[int, Ensemble],
        others: Allocations,
        raced: Evaluation | None,
        *,
        known: KnownPoints | None,
    ) -> Subject:
        traces, classes = self._traces(model, norm), self.traced[model.id, norm][0].clean.classes
        # Where models want pictures cut differently the same picture has other contents, and rows tell which it is.
        apart = any(
            other.preprocessing for other in self.bench.benchmark.models if other.data == model.data
        )
        papers = {
            tier: each.for_classes(classes).queries for tier, each in self.bench.paper(norm).items()
        }
        return Subject.of(
            traces,
            {budget: ensemble.for_classes(classes) for budget, ensemble in ensembles.items()},
            raced={}
            if raced is None
            else {budget: raced.distances_at(budget) for budget in ensembles},
            others={PAPER: papers, **others},
            model=model.id,
            data=model.data,
            split=model.split,
            known=known,
            doubts=doubts(traces.flags),
            samples=tuple(f"row {row}" for row in range(len(traces.samples)))
            if apart
            else traces.samples,
        )


def _warnings(points: KnownPoints) -> list[str]:
    """What AutoAttack warned of, once each: at other radii it says the same with other figures."""
    alike: dict[str, list[str]] = {}
    for flag in points.flags:
        alike.setdefault(re.sub(r"[\d.]+", "", flag), []).append(flag)
    return [
        f"{first} (and {len(more)} more like it)" if more else first
        for first, *more in alike.values()
    ]
