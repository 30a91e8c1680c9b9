"""The race of a benchmark, really run: polishing starts at what other runs have found, and is in no trace."""

from __future__ import annotations

from dataclasses import replace

from advfrontier.bench.allocation import race_file
from advfrontier.bench.benchmark import BenchmarkModel
from advfrontier.bench.layout import Bench
from advfrontier.errors import FrontierError
from advfrontier.evaluation.evaluate import evaluate
from advfrontier.evaluation.evaluation import Evaluation
from advfrontier.execution import Machine
from advfrontier.jobs import Model
from advfrontier.pool import Race
from advfrontier.record import open_folder
from advfrontier.record.identity import digest, policy_words
from advfrontier.solvers import PUBLISHED


def run_race(
    bench: Bench, model: BenchmarkModel, subject: Model, *, norm: str, race: Race, machine: Machine
) -> Evaluation:
    """Race on a model into a record of this race on these samples; only what is missing of it."""
    place = race_place(bench, model, race)
    if (done := finished_race(place, norm)) is not None:
        return done
    return evaluate(
        subject,
        bench.samples(model),
        norm=norm,
        ensemble=race,
        seed=bench.benchmark.seed,
        solvers=PUBLISHED if bench.benchmark.published else None,
        out=place,
        batch_size=model.batch,
        machine=replace(machine, keep_state=False),
    )


def finished_race(place: str, norm: str) -> Evaluation | None:
    """What is in the folder, if it is finished."""
    try:
        found = Evaluation.load(f"{place}/{norm}")
    except FrontierError:
        return None
    return found if found.finished else None


def race_place(bench: Bench, model: BenchmarkModel, race: Race) -> str:
    """The folder of a race on a model. Each race has its own: what was learned anew cannot go on with another's."""
    samples = bench.benchmark.data[model.data].samples
    return f"{bench.races(model)}/{digest(policy_words(race).encode(), f'{race.total} {samples}'.encode())[:8]}"


def learned_race(bench: Bench, norm: str) -> Race | None:
    """The race as it was last learned; None before."""
    stored = open_folder(bench.ensembles).read(race_file(norm))
    return Race.from_toml(stored) if stored else None
