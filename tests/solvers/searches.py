"""Runs of solvers on small models, and answers made up to try a solver's rules with."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache

import pytest
import torch
from support.models import samples, tanh_mlp

from advfrontier.engine import CleanPass, Oracle, Search, Shard, advance_search, clean_pass
from advfrontier.pool import CATALOGUE, Run, pool
from advfrontier.solvers import Answer, solver_of
from advfrontier.threat.names import NORMS
from advfrontier.threat.norms import make_norm

SEED = 42


@dataclass(frozen=True)
class Bench:
    """A model with correctly classified samples in one norm, ready for runs."""

    oracle: Oracle
    shard: Shard
    clean: CleanPass

    @classmethod
    def of(cls, model, images, labels, norm, *, dtype=torch.float32, seed=SEED) -> Bench:
        oracle = Oracle(model, dtype=dtype)
        measure = make_norm(norm, tuple(images.shape[1:]))
        with oracle:
            clean = clean_pass(oracle, images, labels, measure, batch_size=len(images))
            rows = clean.correct.nonzero().squeeze(1)
            clean = clean.rows(rows)
            shard = Shard.of(oracle, images[rows], clean, norm=measure, seed=seed)
        return cls(oracle, shard, clean)

    def search(self, run, rows=None, *, solver=None, horizon=1000) -> Search:
        """Return a run at its start, of all samples or of these rows."""
        run = Run.parse(run) if isinstance(run, str) else run
        shard = self.shard if rows is None else self.shard.select(torch.as_tensor(rows))
        return Search.start(shard, solver or solver_of(run), run, horizon=horizon)

    def go(self, search, *stops):
        """Advance a run to each number of queries; return the distances on the way."""
        with self.oracle:
            measured = [advance_search(self.oracle, search, stop) for stop in stops]
        return torch.cat(measured)

    def distances(self, run, queries=1000, **options):
        """Return the distances that a run ends with."""
        return self.go(self.search(run, **options), queries)[-1]


@cache
def small(norm, dtype=torch.float32, shape=(3, 4, 4)) -> Bench:
    """Return a smooth small model with five samples."""
    model = tanh_mlp(shape, hidden=16, seed=3)
    images, labels = samples(model, 6, shape, seed=3)
    labels[2] = (labels[2] + 1) % 10
    return Bench.of(model.to(dtype), images, labels, norm, dtype=dtype)


def search_of(norm, run, **options) -> Search:
    """Return a run at its start on the small model, with inputs of its own to change."""
    search = small(norm).search(run, **options)
    parts = vars(search.problem) | {"inputs": search.problem.inputs.clone()}
    parts |= {"largest": search.problem.largest.clone()}
    search.problem = type(search.problem)(**parts)
    return search


def answer_of(search, *, wrong, best, loss=0.5, distance=0.0, best_point=None) -> Answer:
    """Return an answer as the engine would give it, the same for all samples."""
    n, d = search.problem.inputs.shape
    gradient = torch.randn(n, d, generator=torch.Generator().manual_seed(0))
    return Answer(
        logits=torch.zeros(n, 10),
        loss=torch.full((n,), loss),
        gradient=gradient,
        length=gradient.norm(dim=1),
        margin=torch.full((n,), loss),
        misclassified=torch.full((n,), wrong),
        distance=torch.full((n,), distance),
        improved=torch.full((n,), wrong),
        best_point=search.problem.inputs if best_point is None else best_point,
        best_distance=torch.full((n,), best),
    )


def step(search, i, answer, solver=None):
    """Let a solver take one step."""
    (solver or search.solver).step(search.problem, search.state, i, answer)


def full(search, value):
    """Return the value once for each sample."""
    return torch.full((len(search.problem.inputs),), value)


def shift(search):
    """Return how far the point is from the input, feature by feature."""
    return search.state.point - search.problem.inputs


def annealed(first, last, i, steps=500):
    """Return a cosine schedule's value, by its formula."""
    return last + (first - last) * (1 + math.cos(math.pi * i / steps)) / 2


def runs_of(norm, *variants, classes=10):
    """Return the base runs of the extended pool in a norm, and those variants named."""
    wanted = {"base0", *variants}
    members = pool(norm, classes=classes, name="extended")
    return [run for run in members if f"{run.variant}{run.index}" in wanted]


def catalogue(*variants, classes=10):
    """Return (norm, run name) of every solver in every norm, as parameters of a test.

    Restarts and targets of a solver are tried in one of its norms, and elsewhere in long tests.
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
