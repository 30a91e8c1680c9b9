"""APGD_min: Auto-PGD with a radius that adapts to the sample, ℓ1, ℓ2 and ℓ∞."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from advfrontier.solvers.protocol import Answer, Problem, cosine
from advfrontier.threat.thresholds import TINY

_PASSES = 14  # of the search for the threshold of a sparse step, to 2^-14 of its upper bound


@dataclass
class APGDMinState:
    """State of APGD_min.

    The reference point is the nearest misclassified point so far, and before the first success the
    point with the lowest loss. Checkpoints go back to it.

    Args:
        point: (n, d), the point to evaluate.
        previous: (n, d), the point before it.
        reference: (n, d), the reference point.
        reference_gradient: (n, d), gradient of the loss there.
        radius: (n,), radius of the ball.
        relative_step: (n,), step size over radius.
        lowest_loss: (n,), lowest loss so far.
        last_loss: (n,), loss at the step before.
        falls: (n,), steps since the last checkpoint on which the loss fell.
        reduced: (n,) bool, whether the last checkpoint halved the step size.
        checked_loss: (n,), lowest loss at the last checkpoint.
        checked_distance: (n,), best distance at the last checkpoint.
        share: (n,), share of the features that a sparse step moves.
        features: (n,), features that the reference point changed at the last checkpoint.
    """

    point: Tensor
    previous: Tensor
    reference: Tensor
    reference_gradient: Tensor
    radius: Tensor
    relative_step: Tensor
    lowest_loss: Tensor
    last_loss: Tensor
    falls: Tensor
    reduced: Tensor
    checked_loss: Tensor
    checked_distance: Tensor
    share: Tensor
    features: Tensor


@dataclass(frozen=True)
class APGDMin:
    """Take APGD's steps inside a ball whose radius follows FMN's rule.

    The radius starts from a first-order estimate, shrinks towards the best distance while the point
    is misclassified and grows while it is not. Projected steps, momentum and checkpoints are those
    of APGD, and in ℓ1 the sparse steps of ℓ1-APGD.

    Croce and Hein, "Reliable Evaluation of Adversarial Robustness with an Ensemble of Diverse
    Parameter-free Attacks", ICML 2020, arXiv 2003.01690; in ℓ1 "Mind the Box: ℓ1-APGD for Sparse
    Adversarial Attacks on Image Classifiers", ICML 2021, arXiv 2103.01208.

    Args:
        loss_name: Loss to descend, a name of `threat.losses`: ce or dlr.
        gamma: Relative change of the radius at the first step.
        gamma_final: Relative change of the radius at the last step, along a cosine.
        step_size: First step size over the radius; by default 1 in ℓ1 and 2 elsewhere.
        momentum: Share of the new step in the move; the rest repeats the move before.
    """

    loss_name: str = "dlr"
    gamma: float = 0.05
    gamma_final: float = 0.001
    step_size: float | None = None
    momentum: float = 0.75

    def start(self, problem: Problem) -> APGDMinState:
        """Start from the input or the restart's point, with the largest step."""
        point, one = problem.starts.clone(), torch.ones_like(problem.boundary)
        size = _steps_of(problem).first_size if self.step_size is None else self.step_size
        return APGDMinState(
            point=point,
            previous=point.clone(),
            reference=point.clone(),
            reference_gradient=torch.zeros_like(point),
            radius=problem.boundary.clone(),
            relative_step=size * one,
            lowest_loss=torch.inf * one,
            last_loss=torch.inf * one,
            falls=torch.zeros_like(one),
            reduced=torch.ones_like(one, dtype=torch.bool),
            checked_loss=torch.inf * one,
            checked_distance=torch.inf * one,
            share=0.2 * one,
            features=point.shape[1] * one,
        )

    def loss(self, i: int) -> str:
        """Differentiate the margin at step 0, to estimate the distance; then the run's own loss."""
        return "margin" if i == 0 else self.loss_name

    def step(self, problem: Problem, state: APGDMinState, i: int, answer: Answer) -> None:
        """Take in the answer, adapt the radius and the step size, move."""
        self._record(problem, state, i, answer)
        state.radius = self._radius(problem, state, i, answer)
        steps, gradient = _steps_of(problem), answer.gradient
        window = steps.window(i, problem.steps)
        if window is not None:
            back = steps.check(problem, state, answer, window).to(gradient.dtype)[:, None]
            state.point.lerp_(state.reference, back)
            state.previous.lerp_(state.reference, back)
            gradient.lerp_(state.reference_gradient, back)
        steps.move(problem, state, gradient, 1.0 if i == 0 else self.momentum)

    def _record(self, problem: Problem, state: APGDMinState, i: int, answer: Answer) -> None:
        """Note whether the loss fell, and keep the reference point with its gradient."""
        loss = answer.loss if i > 0 else problem.loss(self.loss_name, answer.logits)
        lower = (loss < state.lowest_loss) & ~answer.found
        kept = (answer.improved | lower).to(loss.dtype)[:, None]
        state.reference.lerp_(state.point, kept)
        state.reference_gradient.lerp_(answer.gradient, kept)
        state.lowest_loss = torch.minimum(loss, state.lowest_loss)
        if i > 0:
            state.falls = state.falls + (loss < state.last_loss)
        state.last_loss = loss

    def _radius(self, problem: Problem, state: APGDMinState, i: int, answer: Answer) -> Tensor:
        """Return the new radius: the first-order estimate at step 0, then FMN's rule."""
        if i == 0:
            slope = problem.norm.dual_size(answer.gradient).clamp_(min=TINY)
            estimate = answer.distance + answer.loss.abs() / slope
            # On a tie the estimate is zero, and the radius must not begin there.
            further = torch.maximum(estimate, problem.boundary / 2)
            radius = torch.where(answer.misclassified, answer.distance, further)
        else:
            γ = cosine(self.gamma, self.gamma_final, i, problem.steps)
            shrunk = torch.minimum((1 - γ) * state.radius, answer.best_distance)
            radius = torch.where(answer.misclassified, shrunk, (1 + γ) * state.radius)
        return torch.clamp(radius, 1e-8 * problem.largest, problem.largest)


class Steps:
    """APGD's steps: along the steepest direction, with momentum, halved at checkpoints."""

    first_size = 2.0

    def window(self, i: int, steps: int) -> int | None:
        """Return the length of the window that ends with step i; None at other steps.

        Args:
            i: Index of the step.
            steps: Number of steps of the whole run.
        """
        window, end = max(int(0.22 * steps), 1), 0
        while end <= i:
            end += window
            if end == i + 1:
                return window
            window = max(window - max(int(0.03 * steps), 1), int(0.06 * steps), 1)
        return None

    def check(
        self,
        problem: Problem,  # noqa: ARG002
        state: APGDMinState,
        answer: Answer,
        window: int,
    ) -> Tensor:
        """Halve the step where the loss rarely fell or nothing was gained; return these rows.

        Args:
            problem: Samples, norm and box.
            state: State of the run, which is changed.
            answer: Answer at the point of the step, with the best distance so far.
            window: Steps since the last checkpoint.
        """
        nearer = answer.best_distance < (1 - 1e-4) * state.checked_distance
        gained = torch.where(answer.found, nearer, state.lowest_loss < state.checked_loss)
        state.reduced = (state.falls <= 0.75 * window) | ~(state.reduced | gained)
        halved = state.relative_step / 2
        state.relative_step = torch.where(state.reduced, halved, state.relative_step)
        state.falls = torch.zeros_like(state.falls)
        state.checked_loss, state.checked_distance = state.lowest_loss, answer.best_distance
        return state.reduced

    def move(
        self, problem: Problem, state: APGDMinState, gradient: Tensor, momentum: float
    ) -> None:
        """Step, project, add momentum, project again.

        Args:
            problem: Samples, norm and box.
            state: State of the run, whose point is moved.
            gradient: (n, d), gradient of the loss; the step descends.
            momentum: Share of the new step in the move; the rest repeats the move before.
        """
        norm, x = problem.norm, problem.inputs

        def project(point: Tensor) -> Tensor:
            return norm.clamp_(norm.project(point.sub_(x), state.radius).add_(x))

        size = (state.relative_step * state.radius)[:, None]
        ahead = project(torch.addcmul(state.point, norm.steepest(gradient), -size))
        if momentum < 1:
            moved = torch.lerp(state.point, ahead, momentum)
            drift = (state.point - state.previous).mul_(1 - momentum)
            ahead = project(moved.add_(drift))
        state.previous, state.point = state.point, ahead


class SparseSteps(Steps):
    """ℓ1-APGD's steps: along the signs of the largest gradient entries, without momentum.

    The share of features that move follows how many the reference point has changed.
    """

    first_size = 1.0

    def window(self, i: int, steps: int) -> int | None:
        """Return the length of the window that ends with step i, every 4 % of the steps."""
        window = max(int(0.04 * steps), 1)
        return window if (i + 1) % window == 0 else None

    def check(
        self,
        problem: Problem,
        state: APGDMinState,
        answer: Answer,  # noqa: ARG002
        window: int,  # noqa: ARG002
    ) -> Tensor:
        """Take the largest step where the reference point became sparser; return these rows."""
        changed = (state.reference - problem.inputs).sign_().abs_().sum(1)
        features = changed.clamp_(min=1)
        sparser = features < 0.95 * state.features
        state.share = features / (1.5 * problem.inputs.shape[1])
        shorter = (state.relative_step / 1.5).clamp_(min=0.1)
        state.relative_step = torch.where(sparser, self.first_size, shorter)
        state.features = features
        return sparser

    def move(
        self,
        problem: Problem,
        state: APGDMinState,
        gradient: Tensor,
        momentum: float,  # noqa: ARG002
    ) -> None:
        """Step, then project onto the intersection of ball and box."""
        norm, x = problem.norm, problem.inputs
        size = (state.relative_step * state.radius)[:, None]
        δ = (state.point - x).addcmul_(sparse_sign(gradient, state.share), -size)
        state.point = norm.clamp_(norm.project_in_box(δ, state.radius, x).add_(x))


_BY_NORM = {"L1": SparseSteps()}
_ELSEWHERE = Steps()


def _steps_of(problem: Problem) -> Steps:
    return _BY_NORM.get(problem.norm.name, _ELSEWHERE)


def sparse_sign(gradient: Tensor, share: Tensor) -> Tensor:
    """Return the signs of each row's largest entries, divided by their number: (n, d).

    The threshold is bisected: at least as many entries as asked for are kept, and hardly more.

    Args:
        gradient: (n, d).
        share: (n,), share of the features to keep, rounded up to whole features.
    """
    features = gradient.shape[1]
    count = (share * features).ceil_().clamp_(1, features)
    magnitude = gradient.abs()
    # k entries of size t or more have the length √k·t at least, which bounds t from above.
    bound = torch.linalg.vector_norm(magnitude, 2, dim=1) / count.sqrt()
    threshold, width = bound / 2, 0.5
    # Entries above minus entries below, for which sign is faster than comparing.
    wanted = 2 * count - features - 0.5
    for _ in range(_PASSES):
        balance = (magnitude - threshold[:, None]).sign_().sum(1)
        width /= 2
        threshold.addcmul_(balance.sub_(wanted).sign_(), bound, value=width)
    low = threshold.sub_(bound, alpha=width).clamp_(min=0)
    kept = magnitude.sub_(low[:, None]).sign_().add_(1).clamp_(max=1)
    signs = kept.mul_(gradient.sign())
    return signs.div_(signs.abs().sum(1, keepdim=True).clamp_(min=1))
