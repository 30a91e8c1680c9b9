"""One run of a solver on a shard, and the loop that advances it.

The engine alone evaluates points, decides what is misclassified, measures distances on the points
themselves and keeps the nearest. Between two checkpoints nothing reads a tensor on the host, so a
GPU never waits for Python; what was measured is fetched when the run stops.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import TYPE_CHECKING, Any, Self

import torch
from torch import Tensor

from advfrontier.engine.expectation import ask, clearly_misclassified, mean, typical
from advfrontier.engine.margins import margin_to_go, safety, spread
from advfrontier.errors import FrontierError
from advfrontier.pool import CHECKPOINT, Refine, Run
from advfrontier.solvers import Answer, Problem, Solver
from advfrontier.solvers.protocol import length
from advfrontier.threat.criteria import Aim, gap_of
from advfrontier.threat.losses import LOSSES
from advfrontier.threat.norms import TINY, Norm
from advfrontier.threat.random import Draws, sample_keys

if TYPE_CHECKING:
    from advfrontier.engine.clean import CleanPass
    from advfrontier.engine.oracle import Oracle
    from advfrontier.threat.criteria import Criterion

_TARGET_SEEDS = 100  # added to the seed where a run towards a class becomes a restart
_MEASURED = 2**21  # numbers that are measured at a time

Tick = Callable[[int], object]  # called with the sample-queries just spent


@dataclass(frozen=True)
class Shard:
    """Samples of a shard that are attacked, on the device.

    Args:
        inputs: (n, d), the unperturbed samples, in [0, 1] or in the box of the norm's domain.
        labels: (n,), their classes.
        logits: (n, classes), of the unperturbed samples.
        targets: (n, up to 9), wrong classes, the likeliest or of many the nearest first.
        boundary: (n,), first-order estimate of the distance to the boundary.
        keys: (n, 2) int32, identifies each sample to the random number generator.
        norm: The norm to minimise; it knows the shape of a sample, and its frame the domain.
        shape: Shape of one sample before flattening.
        seed: Seed of the base runs.
        aim: The criterion of success; None for misclassification.
    """

    inputs: Tensor
    labels: Tensor
    logits: Tensor
    targets: Tensor
    boundary: Tensor
    keys: Tensor
    norm: Norm
    shape: tuple[int, ...]
    seed: int
    aim: Aim | None = None

    @classmethod
    def of(
        cls,
        oracle: Oracle,
        images: Tensor,
        clean: CleanPass,
        *,
        norm: Norm,
        seed: int,
        criterion: Criterion | None = None,
    ) -> Shard:
        """Put samples to attack on the device; `clean` holds the same rows as `images`.

        Args:
            oracle: Model, whose device and precision the samples are put to.
            images: (n, …) in [0, 1].
            clean: Clean pass of the same samples.
            norm: Norm to minimise.
            seed: Seed of the base runs.
            criterion: Criterion of success; None for misclassification.
        """
        inputs = oracle.images(images).detach().flatten(1).contiguous()
        labels, targets = oracle.labels(clean.labels), clean.targets.to(oracle.device)
        return cls(
            inputs=inputs,
            labels=labels,
            logits=clean.logits.to(oracle.device),
            targets=targets,
            boundary=clean.boundary.to(inputs),
            keys=sample_keys(clean.ids).to(oracle.device),
            norm=norm,
            shape=tuple(images.shape[1:]),
            seed=seed,
            aim=None if criterion is None else criterion.aim(labels, targets[:, 0]),
        )

    def __len__(self) -> int:
        return len(self.inputs)

    def enter(self, points: Tensor) -> Tensor:
        """Return points in the coordinates of the search, which differ in a domain: (n, d).

        Args:
            points: (n, d), in the user's own coordinates.
        """
        return points if self.norm.frame is None else self.norm.frame.enter(points)

    @property
    def reach(self) -> Tensor:
        """Return the estimated distance to the boundary in the coordinates of the search: (n,)."""
        return self.boundary if self.norm.frame is None else self.boundary / self.norm.frame.unit

    def select(self, rows: Tensor) -> Shard:
        """Return the shard of these samples only.

        Args:
            rows: Indices of samples, int64 (k,), on the device.
        """
        parts: dict[str, Any] = dict(vars(self))
        for name, value in parts.items():
            if isinstance(value, Tensor | Aim):
                parts[name] = _rows_of(value, rows)
        return Shard(**parts)


@dataclass
class Search:
    """One run of a solver on a shard: the problem, the solver's state and the best points.

    Problem, state, points and distances are in the coordinates of the norm's frame, if it has one.

    Args:
        solver: Solver, with its parameters.
        problem: Samples and starting points of the run.
        inputs: (n, d), the unperturbed samples in the user's own coordinates.
        state: The solver's state, a dataclass of tensors.
        best_point: (n, d), nearest misclassified point of this run; the input before the first.
        best_distance: (n,) in working precision; inf before the first success.
        clean_spread: (n,), spread of the logits at the inputs, which scales the margin that counts.
        zero_gradients: (n,) int32, steps on which the gradient vanished since the run was opened.
        bad_gradients: (n,) int32, steps on which logits or gradient were not finite since then.
        queries: Queries spent on every sample so far.
    """

    solver: Solver
    problem: Problem
    inputs: Tensor
    state: Any
    best_point: Tensor
    best_distance: Tensor
    clean_spread: Tensor
    zero_gradients: Tensor
    bad_gradients: Tensor
    queries: int = 0

    @classmethod
    def start(cls, shard: Shard, solver: Solver, run: Run, *, horizon: int) -> Self:
        """Set up a run of `horizon` queries; none are spent.

        Args:
            shard: Samples to attack.
            solver: Solver, with its parameters.
            run: Run to set up: base run, restart or target.
            horizon: Queries of the whole run, which the solver's schedules are made for.
        """
        restart = run.variant == "restart"
        seed = shard.seed + (run.index if restart else 0)
        aim = shard.aim
        if aim is not None and run.variant == "target":
            if aim.goals is None:  # this class must be one of those that win
                aim = replace(aim, goals=shard.targets[:, run.index - 1])
            else:  # there is one class to reach, and nothing to find elsewhere
                restart, seed = True, shard.seed + _TARGET_SEEDS + run.index
        inputs = starts = shard.enter(shard.inputs)
        if restart:
            draws = Draws(seed, shard.keys)
            starts = shard.norm.random_start(inputs, shard.reach, draws)
        targets = None
        if run.variant == "target" and shard.aim is None:
            targets = shard.targets[:, run.index - 1]
        aimed = shard if aim is shard.aim else replace(shard, aim=aim)
        return cls._of(aimed, solver, targets, starts, seed=seed, horizon=horizon)

    @classmethod
    def refine(
        cls, shard: Shard, solver: Solver, step: Refine, starts: Tensor, *, seed: int
    ) -> Self:
        """Set up a refinement that starts at these points; none of its queries are spent.

        Args:
            shard: Samples to attack, with the criterion and the norm.
            solver: Solver, with its parameters.
            step: Refinement of the ensemble: base run, queries and start.
            starts: (n, d), as `refinement_starts` returns them.
            seed: Added to the shard's seed, so that every refinement draws its own numbers.
        """
        return cls._of(
            shard,
            solver,
            None,
            starts,
            seed=shard.seed + seed,
            horizon=step.queries,
            refines=step.start == "best",
        )

    @classmethod
    def _of(
        cls,
        shard: Shard,
        solver: Solver,
        targets: Tensor | None,
        starts: Tensor,
        *,
        seed: int,
        horizon: int,
        refines: bool = False,
    ) -> Self:
        inputs, boundary = shard.enter(shard.inputs), shard.reach
        problem = Problem(
            inputs=inputs,
            labels=shard.labels,
            targets=targets,
            norm=shard.norm,
            steps=horizon // step_queries(solver),
            starts=starts,
            margin=margin_to_go(shard.logits, shard.labels, targets, shard.aim).to(inputs),
            boundary=boundary,
            largest=shard.norm.largest(inputs),
            shape=shard.shape,
            seed=seed,
            keys=shard.keys,
            refines=refines,
            aim=shard.aim,
        )
        count = inputs.new_zeros(len(inputs), dtype=torch.int32)
        state = _checked_state(solver.start(problem), solver, len(inputs))
        return cls(
            solver=solver,
            problem=replace(
                problem, starts=inputs
            ),  # those of the run take memory, and are used up
            inputs=shard.inputs,
            state=state,
            best_point=inputs.clone(),
            best_distance=torch.full_like(boundary, torch.inf),
            clean_spread=spread(shard.logits).to(inputs),
            zero_gradients=count,
            bad_gradients=count.clone(),
        )

    def shown(self, points: Tensor) -> Tensor:
        """Return points of the search as the model sees them: in the user's own coordinates.

        Args:
            points: (n, d), in the coordinates of the search.
        """
        frame = self.problem.norm.frame
        return points if frame is None else frame.leave(points, self.problem.inputs, self.inputs)

    def tensors(self) -> dict[str, Tensor]:
        """Return everything that changes, which is all that `restore` needs."""
        kept = {"best_point": self.best_point, "best_distance": self.best_distance}
        for field in fields(self.state):
            kept[f"state/{field.name}"] = getattr(self.state, field.name)
        return kept

    def restore(self, tensors: Mapping[str, Tensor], queries: int) -> None:
        """Continue where an equal run stopped after `queries` queries.

        Args:
            tensors: Tensors that `tensors` of that run returned, on any device.
            queries: Queries that it had spent.
        """
        device = self.best_point.device
        self.best_point = tensors["best_point"].to(device)
        self.best_distance = tensors["best_distance"].to(device)
        for field in fields(self.state):
            setattr(self.state, field.name, tensors[f"state/{field.name}"].to(device))
        self.queries = queries


def _rows_of(value: Tensor | Aim, rows: Tensor) -> Tensor | Aim:
    """Return these rows of a tensor or of an aim."""
    return value.index_select(0, rows) if isinstance(value, Tensor) else value.select(rows)


def refinement_starts(shard: Shard, step: Refine, best: Tensor, *, seed: int) -> Tensor:
    """Return where a refinement starts: at the best points, or beyond them as seen from the inputs.

    Args:
        shard: Samples to attack.
        step: Refinement of the ensemble, which says where to start.
        best: (n, d), the best points so far, in the user's own coordinates.
        seed: Added to the shard's seed, so that every refinement draws its own numbers.

    Returns:
        (n, d), in the coordinates of the search.
    """
    inputs, best = shard.enter(shard.inputs), shard.enter(best)
    if step.start == "best":
        return best.clone()
    drawn = Draws(shard.seed + seed, shard.keys).uniform("reach", 1).to(best.dtype)
    stretch = 1 + (step.reach - 1) * drawn
    return shard.norm.clamp_(torch.addcmul(inputs, stretch, best - inputs))


def step_queries(solver: Solver) -> int:
    """Return the queries of one step: a forward and a backward pass, or a forward pass alone.

    Args:
        solver: Solver; one without a loss uses no gradients.
    """
    return 1 if solver.loss(0) is None else 2


@torch.no_grad()
def advance_search(
    oracle: Oracle, search: Search, queries: int, *, tick: Tick | None = None
) -> Tensor:
    """Advance a run to `queries` queries.

    Args:
        oracle: Model on its device, which counts the queries.
        search: Run to advance; its tensors are changed in place.
        queries: Where to stop, a multiple of CHECKPOINT.
        tick: Called after every step with the sample-queries that it spent.

    Returns:
        (checkpoints, n) float64 on the CPU: the best distance after every CHECKPOINT queries that
        were spent here, measured on the points; inf before the first success.
    """
    oracle.purpose = "attack"
    cost = step_queries(search.solver)
    measured: list[Tensor] = []
    while search.queries < queries:
        _step(oracle, search, search.queries // cost)
        search.queries += cost
        if search.queries % CHECKPOINT == 0:
            measured.append(_measure(search))
        if tick is not None:
            tick(cost * len(search.best_point))
    if not measured:
        return torch.empty((0, len(search.best_point)), dtype=torch.float64)
    _check_box(search)
    return torch.stack(measured).cpu()


def _step(oracle: Oracle, search: Search, i: int) -> None:
    """Evaluate the point of step i, keep it if it is the best, and let the solver move on."""
    problem, solver = search.problem, search.solver
    frame = problem.norm.frame
    points: Tensor = search.shown(search.state.point)
    name = solver.loss(i)
    images = points.detach().view(-1, *problem.shape).requires_grad_(name is not None)
    reply = ask(oracle, images, lambda logits: problem.loss(name or "margin", logits))

    # Judge: by more than another batch layout can undo. Logits that are not finite never count.
    logits = mean(reply.passes)
    needed = safety(logits, search.clean_spread, oracle.logits_dtype)
    if name in {None, "margin"} and problem.targets is None:
        margins = reply.loss
    else:
        gaps = [gap_of(problem.aim, each, problem.labels) for each in reply.passes]
        margins = typical(torch.stack(gaps))
    wrong = margins < -needed
    if frame is None:
        distance = problem.norm.distance(points, problem.inputs)
    else:  # measured on the points that the model has seen
        distance = problem.norm.size((points - search.inputs).mul_(frame.scale))
    # Nearer by more than rounding, so that distances measured in float64 never rise.
    threshold = (1 - 8 * torch.finfo(distance.dtype).eps) * search.best_distance
    improved = wrong & (distance < threshold)
    if oracle.eot > 1:
        wrong, improved = _confirmed(oracle, search, points, wrong, improved)

    # Keep. A linear interpolation with weights 0 and 1 is exact.
    search.best_distance = torch.where(improved, distance, search.best_distance)
    search.best_point.lerp_(search.state.point, improved.to(points.dtype)[:, None])

    gradient, size = _usable_gradient(search, reply.gradient, needed)
    answer = Answer(
        logits=logits.to(points.dtype),
        loss=reply.loss.nan_to_num(0, 0, 0).to(points.dtype),
        gradient=gradient,
        length=size,
        margin=margins.nan_to_num(0, 0, 0).to(points.dtype),
        misclassified=wrong,
        distance=distance,
        improved=improved,
        best_point=search.best_point,
        best_distance=search.best_distance,
    )
    solver.step(problem, search.state, i, answer)


def _usable_gradient(
    search: Search, gradient: Tensor | None, needed: Tensor
) -> tuple[Tensor, Tensor]:
    """Return the gradient, zero in rows where it is not finite, and its length; count such rows."""
    if gradient is None:
        search.bad_gradients += ~needed.isfinite()
        rows = len(needed)
        empty = search.best_point.new_empty((rows, 0))
        return empty, search.best_distance.new_full((rows,), TINY)
    gradient = gradient.flatten(1)
    if search.problem.norm.frame is not None:
        gradient = gradient.mul_(search.problem.norm.frame.stretch)
    size = length(gradient)
    finite = size.isfinite()
    gradient = gradient.nan_to_num_(0, 0, 0).mul_(finite.to(gradient.dtype)[:, None])
    search.bad_gradients += ~(finite & needed.isfinite())
    search.zero_gradients += ~(size > TINY)
    return gradient, torch.where(finite, size, TINY)


def _confirmed(
    oracle: Oracle, search: Search, points: Tensor, wrong: Tensor, improved: Tensor
) -> tuple[Tensor, Tensor]:
    """Keep a point of a random model only if fresh passes, charged to verification, confirm it."""
    rows = improved.nonzero().squeeze(1)
    if not len(rows):
        return wrong, improved
    images = points.index_select(0, rows).view(-1, *search.problem.shape)
    labels = search.problem.labels.index_select(0, rows)
    oracle.purpose = "verification"
    held = clearly_misclassified(oracle, images, labels, "search")
    oracle.purpose = "attack"
    wrong = wrong.index_copy(0, rows, held)
    return wrong, improved.index_copy(0, rows, held)


def _measure(search: Search) -> Tensor:
    """Return the distances of the kept points in float64; inf where there is none."""
    norm, points, inputs = search.problem.norm, search.shown(search.best_point), search.inputs
    found = search.best_distance < torch.inf
    if points.device.type == "mps":  # which has no float64
        points, inputs, found = points.cpu(), inputs.cpu(), found.cpu()
    few = max(1, _MEASURED // inputs.shape[1])  # rows: numbers in float64 take twice the memory
    parts = []
    for some, own in zip(torch.split(points, few), torch.split(inputs, few), strict=True):
        if norm.frame is None:
            parts.append(norm.distance(some.double(), own.double()))
        else:
            parts.append(norm.frame.measure(norm, some.double(), own.double()))
    return torch.where(found, torch.cat(parts), torch.inf)


def _check_box(search: Search) -> None:
    """Raise if a kept point has left the box, as those of a solver of another package may."""
    if search.problem.norm.frame is not None:  # whose points are clamped when they are shown
        return
    low, high = torch.aminmax(search.best_point)
    if not 0 <= float(low) <= float(high) <= 1:
        raise FrontierError(
            f"a point of {type(search.solver).__name__} has left [0, 1]: expected the solver to "
            "clamp what it tries"
        )


def _checked_state(state: Any, solver: Solver, rows: int) -> Any:
    """Return the state; raise if a solver of another package breaks the contract."""
    parts: dict[str, Any] = {}
    if is_dataclass(state):
        parts = {field.name: getattr(state, field.name) for field in fields(state)}
    wrong = []
    for name, part in parts.items():
        if not isinstance(part, Tensor) or part.shape[:1] != (rows,):
            wrong.append(name)
    loss = solver.loss(0)
    if "point" not in parts or wrong or loss not in {None, *LOSSES}:
        raise FrontierError(
            f"the solver {type(solver).__name__} keeps "
            f"{', '.join(wrong) or type(state).__name__}, with the loss {loss!r}: expected a "
            "dataclass of tensors with one row per sample, among them `point`, and a loss that is "
            f"None or one of {', '.join(LOSSES)}"
        )
    return state
