"""Answers as the engine would give them, made up: what a solver's rules are tried with."""

from functools import partial

import torch

from advfrontier.solvers import Answer


def answer_of(unit, *, wrong, best, loss=0.5, distance=0.0):
    """An answer as the engine would give it, made up."""
    n, d = unit.problem.inputs.shape
    full = partial(torch.full, (n,))
    g = torch.randn(n, d, generator=torch.Generator().manual_seed(0))
    return Answer(
        logits=torch.zeros(n, 10),
        loss=full(loss),
        gradient=g,
        length=g.norm(dim=1),
        margin=full(loss),
        misclassified=torch.full((n,), wrong),
        distance=full(distance),
        improved=torch.full((n,), wrong),
        best_point=unit.problem.inputs,
        best_distance=full(best),
    )
