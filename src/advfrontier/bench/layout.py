"""What a benchmark asks for, and where each part of it lies.

OUT/traces/F1/L2         trajectories, one record per model and norm
OUT/ensembles/L2-4k.toml allocated on the training models
OUT/races/F1/1a2b3c4d/L2 the race that was learned on the training models, one folder for each that ever was
OUT/baselines/F1/L2      AutoAttack at ten radii
OUT/results              tables and figures
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass

from advfrontier import pool
from advfrontier.bench.benchmark import Benchmark, BenchmarkModel
from advfrontier.errors import FrontierError
from advfrontier.evaluation.evaluation import Evaluation
from advfrontier.jsonable import read_object
from advfrontier.record import folder_name, open_folder
from advfrontier.record.folder import check_empty
from advfrontier.record.identity import digest, policy_words
from advfrontier.solvers import PUBLISHED, Solver, check_published
from advfrontier.sources import Samples, load_data

_MARK = "benchmark.json"  # in a folder that a benchmark has made its own


@dataclass(frozen=True)
class Bench:
    """A benchmark and the folder it is run in."""

    benchmark: Benchmark
    out: str

    @property
    def queries(self) -> int:
        """How far every run is traced: to its end, or as far as the largest budget could ever take it."""
        return min(
            pool.MAX_QUERIES, self.benchmark.budgets[-1] // pool.CHECKPOINT * pool.CHECKPOINT
        )

    @property
    def raced(self) -> bool:
        """Whether a race can be learned and run: its runs are traced to their ends, and its budget is whole slices."""
        return self.queries == pool.MAX_QUERIES and self.benchmark.budgets[-1] % pool.SLICE == 0

    @property
    def jobs(self) -> tuple[tuple[BenchmarkModel, str], ...]:
        """Every model in every norm, one model after the other."""
        return tuple(
            (model, norm) for model in self.benchmark.models for norm in self.benchmark.norms
        )

    def check_pool(self) -> None:
        """Refuse a pool that names a run which no norm has, or one that no paper has where theirs are asked for."""
        for run in (pool.Run.parse(name) for name in self.benchmark.pool if name not in pool.POOLS):
            facts = pool.facts_of(run.solver)
            pool.check_run(run, facts.norms[0] if facts is not None else self.benchmark.norms[0])
        if self.benchmark.published:
            check_published(self.benchmark.pool)

    def runs(self, norm: str, classes: int) -> tuple[str, ...]:
        """The runs of the benchmark's pool that a norm and a number of classes have."""
        runs: dict[str, None] = {}
        for name in self.benchmark.pool:
            if name in pool.POOLS:
                runs |= dict.fromkeys(map(str, pool.pool(norm, classes=classes, name=name)))
            else:
                with suppress(FrontierError):  # a run that this norm or so few classes do not have
                    pool.check_run(pool.Run.parse(name), norm, classes)
                    runs[name] = None
        if not runs:
            raise FrontierError(
                f"the pool of {self.benchmark.name} has no run in {norm}: found {', '.join(self.benchmark.pool)}; "
                f"`advfrontier pool --norm {norm}` lists those there are"
            )
        return tuple(runs)

    def samples(self, model: BenchmarkModel, *, download: bool = False) -> Samples:
        """The samples a model is evaluated on."""
        data = self.benchmark.data[model.data]
        source = self.benchmark.data_source(model.id)
        return load_data(source, samples=data.samples, seed=data.seed, download=download)

    def radii(self, norm: str) -> dict[str, tuple[float, ...]]:
        """The reference radii of each data set in a norm."""
        return {name: tuple(data.radii.get(norm, ())) for name, data in self.benchmark.data.items()}

    def paper(self, norm: str) -> dict[int, pool.Ensemble]:
        """The paper's ensembles at those of the budgets that it has."""
        budgets = [budget for budget in self.benchmark.budgets if budget in pool.TIERS]
        return {
            budget: pool.paper_ensemble(f"paper-{pool.tier_label(budget)}", norm)
            for budget in budgets
        }

    @property
    def solvers(self) -> Mapping[str, Solver] | None:
        """Solvers in place of the attacks' own."""
        return PUBLISHED if self.benchmark.published else None

    # Where things lie

    def trace(self, model: BenchmarkModel, norm: str) -> str:
        """The record of trajectories."""
        return f"{self.out}/traces/{folder_name(model.id)}/{norm}"

    def baseline(self, model: BenchmarkModel, norm: str) -> str:
        """The record of the baseline."""
        return f"{self.out}/baselines/{folder_name(model.id)}/{norm}"

    def race(self, model: BenchmarkModel, race: pool.Race) -> str:
        """The folder of a race on a model. Each race has its own: what was learned anew cannot go on with another's."""
        samples = self.benchmark.data[model.data].samples
        mark = digest(policy_words(race).encode(), f"{race.total} {samples}".encode())[:8]
        return f"{self.out}/races/{folder_name(model.id)}/{mark}"

    def finished_race(self, model: BenchmarkModel, race: pool.Race) -> Evaluation | None:
        """A race on a model, if it is finished."""
        try:
            found = Evaluation.load(f"{self.race(model, race)}/{race.norm}")
        except FrontierError:
            return None
        return found if found.finished else None

    @property
    def ensembles(self) -> str:
        """The folder of ensemble files."""
        return f"{self.out}/ensembles"

    @property
    def results(self) -> str:
        """The folder of tables and figures."""
        return f"{self.out}/results"


def claim(out: str, name: str) -> None:
    """Make a folder the benchmark's own: one that is new or empty, or that this benchmark was run in before."""
    folder = open_folder(out)
    held = folder.read(_MARK)
    if held is None:
        check_empty(out)
        folder.write(_MARK, json.dumps({"benchmark": name}).encode() + b"\n")
    elif (other := read_object(held, f"{out}/{_MARK}").get("benchmark")) != name:
        raise FrontierError(
            f"{out} holds the benchmark {other}, not {name}: name another folder with --out"
        )
