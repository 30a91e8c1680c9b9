"""What a benchmark asks for, and where each part of it lies.

OUT/traces/F1/L2         trajectories, one record per model and norm
OUT/ensembles/L2-4k.toml allocated on the training models
OUT/baselines/F1/L2      AutoAttack at ten radii
OUT/results              tables and figures
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from advfrontier.errors import FrontierError
from advfrontier.evaluation.baseline import NORMS as BASELINE_NORMS
from advfrontier.frontier.problem import levels_of
from advfrontier.pool import MAX_QUERIES, TIERS, Run, check_run, paper_ensemble
from advfrontier.pool import pool as pool_of
from advfrontier.pool.ensemble import CHECKPOINT
from advfrontier.sources import load_data

if TYPE_CHECKING:
    from advfrontier.bench.benchmark import Benchmark, BenchmarkModel
    from advfrontier.pool import Ensemble
    from advfrontier.sources import Samples


@dataclass(frozen=True)
class Bench:
    """A benchmark and the folder it is run in."""

    benchmark: Benchmark
    out: str

    @property
    def queries(self) -> int:
        """How far every run is traced: to its end, or as far as the largest budget could ever take it."""
        return min(MAX_QUERIES, self.benchmark.budgets[-1] // CHECKPOINT * CHECKPOINT)

    @property
    def levels(self) -> tuple[int, ...]:
        """What a run may be given: tenths of its queries."""
        return levels_of(self.queries)

    @property
    def jobs(self) -> tuple[tuple[BenchmarkModel, str], ...]:
        """Every model in every norm, one model after the other."""
        return tuple((model, norm) for model in self.benchmark.models for norm in self.benchmark.norms)

    def runs(self, norm: str, classes: int) -> tuple[str, ...]:
        """The runs of the benchmark's pool that a norm and a number of classes have."""
        named = self.benchmark.pool
        if named is None:
            return tuple(str(run) for run in pool_of(norm, classes=classes))
        found = tuple(name for name in named if _exists(name, norm, classes))
        if not found:
            raise FrontierError(
                f"the pool of {self.benchmark.name} has no run in {norm}: found {', '.join(named)}; "
                f"`advfrontier pool --norm {norm}` lists those there are"
            )
        return found

    def samples(self, model: BenchmarkModel, *, download: bool = False) -> Samples:
        """The samples a model is evaluated on."""
        data = self.benchmark.data[model.data]
        source = self.benchmark.data_source(model.id)
        return load_data(source, samples=data.samples, seed=data.seed, download=download)

    def radii(self, norm: str) -> dict[str, tuple[float, ...]]:
        """The reference radii of each data set in a norm."""
        return {name: tuple(data.radii.get(norm, ())) for name, data in self.benchmark.data.items()}

    def has_baseline(self, norm: str) -> bool:
        """Whether a baseline is asked for that exists in this norm."""
        return self.benchmark.baseline is not None and norm in BASELINE_NORMS

    def paper(self, norm: str) -> dict[int, Ensemble]:
        """The paper's ensembles at those of the budgets that it has."""
        budgets = [budget for budget in self.benchmark.budgets if budget in TIERS]
        return {budget: paper_ensemble(f"paper-{tier_name(budget)}", norm) for budget in budgets}

    # Where things lie

    def trace(self, model: BenchmarkModel, norm: str) -> str:
        """The record of trajectories."""
        return f"{self.out}/traces/{folder_name(model.id)}/{norm}"

    def baseline(self, model: BenchmarkModel, norm: str) -> str:
        """The record of the baseline."""
        return f"{self.out}/baselines/{folder_name(model.id)}/{norm}"

    @property
    def ensembles(self) -> str:
        """The folder of ensemble files."""
        return f"{self.out}/ensembles"

    @property
    def results(self) -> str:
        """The folder of tables and figures."""
        return f"{self.out}/results"


def tier_name(budget: int) -> str:
    """`4k`, or the number."""
    return f"{budget // 1000}k" if budget % 1000 == 0 else str(budget)


def folder_name(name: str) -> str:
    """A model's name without what a folder cannot hold."""
    return "".join(c if c.isalnum() or c in "-_." else "-" for c in name).strip("-.")


def _exists(name: str, norm: str, classes: int) -> bool:
    try:
        check_run(Run.parse(name), norm, classes)
    except FrontierError:
        return False
    return True
