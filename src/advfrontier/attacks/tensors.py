"""One solver on tensors: no record, no ensemble, nothing stored."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, cast

import torch
from torch import Tensor

from advfrontier.attacks.external import ExternalAttack
from advfrontier.attacks.watched import Attack
from advfrontier.engine.checks import check_data
from advfrontier.engine.clean import clean_pass
from advfrontier.engine.data import as_float32
from advfrontier.engine.loop import Search, Shard, advance_search, step_queries
from advfrontier.engine.oracle import Oracle
from advfrontier.errors import FrontierError, whole_number
from advfrontier.pool import CHECKPOINT, MAX_QUERIES, Run, check_run
from advfrontier.solvers import Solver, solver_of
from advfrontier.threat.criteria import Criterion, Targeted
from advfrontier.threat.domain import Domain, Space
from advfrontier.threat.names import norm_name
from advfrontier.threat.norms import make_norm


class Attacked(NamedTuple):
    """Points and distances of an attack.

    Args:
        points: (n, …), the nearest misclassified points; the images themselves where there is none.
        distances: (n,) float64: 0 where the image itself is misclassified, inf where no point was
            found.
    """

    points: Tensor
    distances: Tensor


def attack(
    model: Callable[[Tensor], Tensor],
    images: Tensor,
    labels: Tensor,
    *,
    solver: Solver | Attack | str = "fmn",
    norm: str = "L2",
    queries: int = MAX_QUERIES,
    seed: int = 42,
    batch_size: int = 100,
    device: str | torch.device | None = None,
    criterion: Criterion | None = None,
    domain: Domain | None = None,
) -> Attacked:
    """Run one minimum-norm attack.

    Args:
        model: From images in [0, 1] to logits.
        images: (n, channels, height, width) in [0, 1].
        labels: (n,), the true classes.
        solver: A solver, such as `FMN(gamma=0.1)`; the name of a run, such as `fmn:target1` or
            `foolbox:DDNAttack?steps=100`; or a function `attack(model, images, labels)`.
        norm: Name of the norm, such as `L2`.
        queries: Queries per sample: forward plus backward passes. A solver's schedule is made for
            as many.
        seed: Random seed.
        batch_size: Samples per batch.
        device: Device of the model; by default the model's own.
        criterion: Criterion of success, such as `Targeted(3)`; by default misclassification.
        domain: What images may be, where that is not [0, 1].

    Returns:
        Points and distances, as `points, distances = attack(…)`.
    """
    name = norm_name(norm)
    run, made = _solver(solver, name)
    if isinstance(made, ExternalAttack) and criterion is not None:
        raise FrontierError(
            f"{run} with the criterion {criterion.name}: expected a solver of advfrontier, because "
            "other attacks aim at misclassification"
        )
    queries = whole_number(queries, "queries", least=CHECKPOINT)
    if queries % CHECKPOINT:
        raise FrontierError(
            f"cannot stop after {queries} queries: expected a multiple of {CHECKPOINT}"
        )
    space = None if domain is None else domain.space(tuple(images.shape[1:]))
    if isinstance(made, ExternalAttack) and space is not None:
        raise FrontierError(
            f"{run} in a domain ({space.words}): expected a solver of advfrontier, because other "
            "attacks search in [0, 1]"
        )
    images = check_data(images, labels, space)
    goals = None
    if isinstance(criterion, Targeted):
        rows_used, goals = criterion.rows(labels.cpu())
        if len(rows_used) != len(labels):
            raise FrontierError(
                f"{criterion.name} leaves samples out or repeats them: expected Targeted(classes) "
                "with one class per sample"
            )
    points, distances = [], []
    with Oracle(model, device=device) as oracle:
        if oracle.dtype == torch.float32:
            images = as_float32(images)
        for first in range(0, len(images), batch_size):
            rows = slice(first, first + batch_size)
            found = _attack_batch(
                oracle,
                images[rows],
                labels[rows],
                made,
                run,
                norm=name,
                queries=queries,
                seed=seed,
                criterion=criterion,
                goals=None if goals is None else goals[rows],
                space=space,
            )
            points.append(found[0])
            distances.append(found[1])
    return Attacked(torch.cat(points).to(images.device), torch.cat(distances))


def _solver(solver: Solver | Attack | str, norm: str) -> tuple[Run, Solver | ExternalAttack]:
    """Return the run of a solver, of a name or of a function, and what does it."""
    if isinstance(solver, str):
        run = Run.parse(solver)
        check_run(run, norm)
        return run, solver_of(run) if run.external is None else ExternalAttack(solver, norm)
    if hasattr(solver, "start"):
        return Run(type(solver).__name__.lower()), cast("Solver", solver)
    named = f"callable:{getattr(solver, '__name__', 'attack').replace('<lambda>', 'attack')}"
    return Run.parse(named), ExternalAttack(named, norm, solver)


def _attack_batch(
    oracle: Oracle,
    images: Tensor,
    labels: Tensor,
    solver: Solver | ExternalAttack,
    run: Run,
    *,
    norm: str,
    queries: int,
    seed: int,
    criterion: Criterion | None,
    goals: Tensor | None,
    space: Space | None,
) -> tuple[Tensor, Tensor]:
    """Attack the correctly classified samples of a batch; return points and distances of all."""
    external = isinstance(solver, ExternalAttack)
    gradients = not external and step_queries(cast("Solver", solver)) > 1
    measure = make_norm(norm, tuple(images.shape[1:]))
    if space is not None:
        measure = space.norm(norm, oracle.device, oracle.dtype)
    clean = clean_pass(
        oracle,
        images,
        labels,
        measure,
        batch_size=len(images),
        gradients=gradients,
        criterion=criterion,
        goals=goals,
    )
    attacked = clean.correct.nonzero().squeeze(1)
    points = oracle.images(images).detach().clone()
    distances = torch.zeros(len(images), dtype=torch.float64)
    if not len(attacked):
        return points.cpu(), distances
    if run.variant == "target" and criterion is None and run.index > clean.targets.shape[1]:
        raise FrontierError(
            f"there is no {run} with {clean.classes} classes: expected at most "
            f"target{clean.targets.shape[1]}"
        )
    rows = clean.rows(attacked)
    shard = Shard.of(oracle, images[attacked], rows, norm=measure, seed=seed, criterion=criterion)
    if isinstance(solver, ExternalAttack):
        whole = solver.run(oracle, shard, queries)
        measured, best_point = whole.measured, whole.best_point
    else:
        search = Search.start(shard, solver, run, horizon=queries)
        measured = advance_search(oracle, search, queries)
        best_point = search.shown(search.best_point)
    distances[attacked] = measured[-1]
    here = attacked.to(points.device)
    points[here] = best_point.view(-1, *images.shape[1:])
    return points.cpu(), distances
