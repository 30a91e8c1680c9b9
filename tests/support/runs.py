"""Every run of the catalogue, and the short way from a model to a run that was advanced."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

import pytest
import torch

from advfrontier.engine import CleanPass, Oracle, Search, Shard, Unit, advance, clean_pass
from advfrontier.engine.loop import advance_search
from advfrontier.pool import CATALOGUE, Ensemble, Run, pool
from advfrontier.solvers import solver_of
from advfrontier.threat.names import NORMS
from advfrontier.threat.norms import make_norm
from support.models import samples, tanh_mlp
from support.tensors import same

__all__ = ["SEED", "SHORT", "Advanced", "Bench", "catalogue", "complete", "length"]
__all__ += ["runs_of", "same", "small", "step_cost"]

SEED = 42
SHORT = 200  # a horizon: whole schedules that take a fifth of the time


def runs_of(norm, *variants, classes=10):
    """Return the base runs of the extended pool in a norm, and those variants named."""
    found = []
    for run in pool(norm, classes=classes, name="extended"):
        if run.variant == "base" or f"{run.variant}{run.index}" in variants:
            found.append(run)
    return found


def catalogue(*variants, classes=10):
    """Return (norm, run name) of every solver in every norm, as parameters of a test.

    Restarts and targets of a solver are tried in one of its norms, and elsewhere in long tests:
    where they differ from the base run, they do so in every norm.
    """
    solvers = list(CATALOGUE)
    parameters = []
    for norm in NORMS:
        for run in runs_of(norm, *variants, classes=classes):
            norms = [name for name in NORMS if CATALOGUE[run.solver].runs_in(name)]
            usual = run.variant == "base" or norms[solvers.index(run.solver) % len(norms)] == norm
            marks = [] if usual else [pytest.mark.slow]
            parameters.append(pytest.param(norm, str(run), marks=marks))
    return parameters


def step_cost(run):
    """Return the queries of one step of a run."""
    return CATALOGUE[Run.parse(run).solver].step_queries


class Advanced(NamedTuple):
    """A run and its best distances after 10, 20, … queries: (checkpoints, n)."""

    search: Search
    trajectory: torch.Tensor

    @property
    def distances(self):
        """Return the best distances."""
        return self.trajectory[-1]


@dataclass(frozen=True)
class Bench:
    """A model with its correctly classified samples in one norm, ready for runs and units."""

    oracle: Oracle
    shard: Shard
    clean: CleanPass

    @classmethod
    def of(cls, model, images, labels, norm, *, dtype=None, batch_size=None, gradients=True, eot=1):
        """Do the clean pass, and leave out the samples that are misclassified anyway."""
        oracle = Oracle(model, dtype=dtype, eot=eot)
        size = batch_size or len(images)
        measure = make_norm(norm, tuple(images.shape[1:]))
        with oracle:
            clean = clean_pass(
                oracle, images, labels, measure, batch_size=size, gradients=gradients
            )
            rows = clean.correct.nonzero().squeeze(1)
            clean = clean.rows(rows)
            shard = Shard.of(oracle, images[rows], clean, norm=measure, seed=SEED)
        return cls(oracle, shard, clean)

    def search(self, run, rows=None, *, solver=None, horizon=1000) -> Search:
        """Return a run at its start, on all samples or on these rows of the shard."""
        run = Run.parse(str(run))
        shard = self.shard if rows is None else self.shard.select(torch.as_tensor(rows))
        return Search.start(shard, solver or solver_of(run), run, horizon=horizon)

    def go(self, search, *stops, tick=None):
        """Advance a run to each number of queries; return the distances on the way."""
        measured = []
        with self.oracle:
            for stop in stops:
                measured.append(advance_search(self.oracle, search, stop, tick=tick))
        return torch.cat(measured)

    def finished(self, run, queries=1000, **options) -> Advanced:
        """Return a run that was advanced in one go."""
        search = self.search(run, **options)
        return Advanced(search, self.go(search, queries))

    def unit(self, ensemble: Ensemble, *stops) -> Unit:
        """Return a unit of an ensemble, advanced to each number of queries in turn."""
        unit = Unit.start(ensemble, self.shard)
        with self.oracle:
            for stop in stops:
                advance(self.oracle, unit, stop)
        return unit


@cache
def small(norm, dtype=torch.float32) -> Bench:
    """Return a smooth small model with five samples, for what is tried with every run."""
    model = tanh_mlp(hidden=16, seed=3)
    images, labels = samples(model, 6, seed=3)
    labels[2] = (labels[2] + 1) % 10
    return Bench.of(model.to(dtype), images, labels, norm, dtype=dtype)


def length(run, horizon=SHORT) -> int:
    """Return the queries that a run is tried with: base runs to their end, others less far."""
    return horizon if ":" not in str(run) else 100


@cache
def complete(norm, run, horizon=SHORT) -> Advanced:
    """Return a run on the small model, advanced in one go, to compare other ways with."""
    return small(norm).finished(run, length(run, horizon), horizon=horizon)
