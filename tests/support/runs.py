"""Every run of the catalogue, and the short way from a model to an advanced unit."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import pytest
import torch

from advfrontier.engine import Oracle, Unit, advance, clean_pass, start_unit
from advfrontier.pool import CATALOGUE, Run, pool
from advfrontier.threat.norms import get_norm
from advfrontier.threat.random import sample_ids
from support.models import samples, tanh_mlp

SEED = 42


def runs_of(norm, *variants, classes=10):
    """The base runs of the extended pool in that norm, and those variants named (such as restart1) that there are."""
    wanted = {"base", *variants}
    names = {
        run: "base" if run.variant == "base" else f"{run.variant}{run.index}"
        for run in pool(norm, classes=classes, name="extended")
    }
    return [run for run, name in names.items() if name in wanted]


def catalogue(*variants, classes=10):
    """(norm, run name) of every solver in every norm, for parametrisation: a new solver is taken in by itself.

    Restarts and targets of a solver are tried in one of its norms, each solver's in another, and in the others in the
    long tests: what they do otherwise than the base run, they do in every norm.
    """
    norms, solvers = (
        sorted({norm for facts in CATALOGUE.values() for norm in facts.norms}),
        list(CATALOGUE),
    )
    found = []
    for norm in norms:
        for run in runs_of(norm, *variants, classes=classes):
            own = CATALOGUE[run.solver].norms
            usual = run.variant == "base" or own[solvers.index(run.solver) % len(own)] == norm
            found.append(pytest.param(norm, str(run), marks=[] if usual else pytest.mark.slow))
    return found


@dataclass
class Bench:
    """A model with samples in one norm, ready to start units; the clean pass is done."""

    oracle: Oracle
    images: torch.Tensor
    labels: torch.Tensor
    norm: str
    clean: object
    ids: object

    @classmethod
    def of(
        cls, model, images, labels, norm, *, dtype=torch.float32, batch_size=None, gradients=True
    ):
        oracle = Oracle(model, dtype=dtype)
        with oracle:
            clean = clean_pass(
                oracle,
                images,
                labels,
                get_norm(norm),
                batch_size=batch_size or len(images),
                gradients=gradients,
            )
        return cls(oracle, images, labels, norm, clean, sample_ids(images.float().numpy()))

    def unit(self, run, rows=None, *, solver=None, horizon=1000) -> Unit:
        """A fresh unit of the run on all correctly classified samples, or on these rows."""
        rows = self.clean.correct.nonzero().squeeze(1) if rows is None else torch.as_tensor(rows)
        return start_unit(
            self.oracle,
            Run.parse(run) if isinstance(run, str) else run,
            self.images[rows],
            self.clean.rows(rows),
            norm=get_norm(self.norm),
            seed=SEED,
            solver=solver,
            horizon=horizon,
        )

    def go(self, units, *stops) -> None:
        """Advance one unit or several to each number of queries in turn."""
        units = units if isinstance(units, list) else [units]
        with self.oracle:
            for stop in stops:
                advance(self.oracle, units, [stop] * len(units))

    def finished(self, run, queries=1000, **options) -> Unit:
        """A unit of the run, advanced."""
        unit = self.unit(run, **options)
        self.go(unit, queries)
        return unit


@cache
def small(norm, dtype=torch.float32) -> Bench:
    """A smooth small model with a few images, one of which it misclassifies, for what is tried with every run."""
    model = tanh_mlp(hidden=16, seed=3)
    images, labels = samples(model, 6, seed=3)
    labels[2] = (labels[2] + 1) % 10
    return Bench.of(model.to(dtype), images, labels, norm, dtype=dtype)


SHORT = 200  # a horizon: whole schedules that take a fifth of the time


def length(run, horizon=SHORT) -> int:
    """Queries that a run is tried with: base runs to their end, restarts and targets not so far."""
    return horizon if ":" not in str(run) else 100


@cache
def complete(norm, run, horizon=SHORT) -> Unit:
    """A run on it, advanced in one go: what other ways of getting there are compared with."""
    return small(norm).finished(run, length(run, horizon), horizon=horizon)


def same(one, two):
    """Whether two dictionaries of tensors hold the same bits."""
    assert one.keys() == two.keys()
    return [name for name in one if not torch.equal(one[name], two[name])] == []
