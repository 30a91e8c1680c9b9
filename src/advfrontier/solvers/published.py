"""Solvers as their papers have them, and every place where ours depart from that.

Each departure is undone by a parameter or by a small subclass that overrides one method. A
published solver undoes all departures of its attack.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from advfrontier.errors import FrontierError
from advfrontier.pool.runs import Run
from advfrontier.solvers.alma import ALMA, ALMAState
from advfrontier.solvers.apgd_min import APGDMin
from advfrontier.solvers.ddn import DDN, DDNState
from advfrontier.solvers.fmn import FMN, FMNState, estimated_distance
from advfrontier.solvers.pdgd import PDGD
from advfrontier.solvers.pdpgd import PDPGD
from advfrontier.solvers.protocol import Answer, Problem, Solver, length, where_rows
from advfrontier.solvers.sigma_zero import SigmaZero
from advfrontier.threat.thresholds import wide

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

Prox = Callable[[Tensor, Tensor], Tensor]

_TOLERANCE = 1e-2  # relative change below which PDPGD's inner iteration ends


class KeptMomentum(ALMA):
    """ALMA that keeps momentum which pushes against the box."""

    def _release(self, problem: Problem, state: ALMAState) -> None:
        pass


class PlainRatio(ALMA):
    """ALMA with its tolerance added to the margin, not to the ratio."""

    def loss(self, i: int) -> str:  # noqa: ARG002
        """Differentiate the published ratio."""
        return "plain_dlr_plus"


class PublishedALMA(KeptMomentum, PlainRatio):
    """ALMA as published, with `rate_decrease=0.01`."""


class PlainEntropy(DDN):
    """DDN on the cross-entropy of the logits as they are."""

    def loss(self, i: int) -> str:  # noqa: ARG002
        """Differentiate the cross-entropy."""
        return "plain_ce"


class Rounded(DDN):
    """DDN that rounds every point to 8 bits; in a domain, which has no 8 bits, it does not."""

    def step(self, problem: Problem, state: DDNState, i: int, answer: Answer) -> None:
        """Step as DDN does, then round."""
        super().step(problem, state, i, answer)
        if problem.norm.frame is None:
            state.point.mul_(255).round_().div_(255)


class PublishedDDN(Rounded, PlainEntropy):
    """DDN as published."""


class EstimatedRadius(FMN):
    """FMN whose radius before the first success is the first-order estimate alone."""

    def _first(
        self,
        problem: Problem,
        state: FMNState,  # noqa: ARG002
        answer: Answer,
        γ: float,  # noqa: ARG002
    ) -> Tensor:
        return estimated_distance(problem, answer)


class PlainStep(FMN):
    """FMN whose step is cut by the box and not stretched again."""

    def _fit(
        self,
        problem: Problem,  # noqa: ARG002
        state: FMNState,  # noqa: ARG002
        answer: Answer,  # noqa: ARG002
        step: Tensor,
        α: float,  # noqa: ARG002
    ) -> Tensor:
        return step


class PublishedFMN(EstimatedRadius, PlainStep):
    """FMN as published, with `alpha=1`."""


class Settling(PDPGD):
    """PDPGD whose inner iteration ends, for each sample, when a step changes little."""

    def _proximal(self, problem: Problem, δ: Tensor, μ: Tensor, metric: Tensor) -> Tensor:
        return _iterate(problem.norm.prox, δ, μ, metric, steps=self.proximal_steps)


class LocalMinimum(PDPGD):
    """PDPGD whose proximal step in ℓ0 takes the minimum off 0 wherever there is one."""

    def _proximal(self, problem: Problem, δ: Tensor, μ: Tensor, metric: Tensor) -> Tensor:
        prox = _LOCAL.get(problem.norm.name)
        if prox is None:
            return super()._proximal(problem, δ, μ, metric)
        return _iterate(prox, δ, μ, metric, steps=self.proximal_steps, tolerance=0.0)


class PublishedPDPGD(PDPGD):
    """PDPGD as published, with `least_margin=0` and `dual_rate=0.1`."""

    def _proximal(self, problem: Problem, δ: Tensor, μ: Tensor, metric: Tensor) -> Tensor:
        prox = _LOCAL.get(problem.norm.name, problem.norm.prox)
        return _iterate(prox, δ, μ, metric, steps=self.proximal_steps)


def _iterate(
    prox: Prox,
    δ: Tensor,
    μ: Tensor,
    metric: Tensor,
    *,
    steps: int,
    tolerance: float = _TOLERANCE,
) -> Tensor:
    """Take proximal gradient steps from δ, for each sample until one changes it by little."""
    z = prox(δ, μ)
    moving = length(z - δ) > tolerance * length(z)
    for _ in range(steps - 1):
        ahead = prox(torch.lerp(z, δ, metric), μ)
        settled = length(ahead - z) <= tolerance * length(ahead)
        z = where_rows(moving, ahead, z)
        moving = moving & ~settled
    return z


def prox_local(v: Tensor, weight: Tensor) -> Tensor:
    """Return the local minimum of ½(u − v)² + weight·|u|^{2/3} off 0, and 0 where there is none.

    It exists from |v| = 4·(2·weight/9)^{3/4} on, a little before it is lower than 0 is. Its closed
    form is exact if it is taken with hyperbolic functions, in float64.

    Args:
        v: (n, d).
        weight: (n,), at least 0.
    """
    a, κ = wide(v.abs()), 2 * wide(weight)[:, None]
    κ.clamp_(min=torch.finfo(κ.dtype).tiny ** 0.5)
    ratio = 27 / 16 * a.square() * κ**-1.5
    φ = 2 / math.sqrt(3) * κ**0.25 * ratio.clamp(min=1).acosh_().div_(3).cosh_().sqrt_()
    u = ((φ + (2 * a / φ - φ.square()).clamp_(min=0).sqrt_()) / 2) ** 3
    return torch.where(ratio >= 1, u, 0).to(v.dtype).copysign_(v)


_LOCAL: dict[str, Prox] = {"L0": prox_local}


PUBLISHED: Mapping[str, Solver] = {
    "alma": PublishedALMA(rate_decrease=0.01),
    "apgd_min-ce": APGDMin(loss_name="plain_ce"),
    "apgd_min-dlr": APGDMin(loss_name="plain_dlr"),
    "ddn": PublishedDDN(),
    "fmn": PublishedFMN(alpha=1.0),
    "pdgd": PDGD(least_margin=0.0),
    "pdpgd": PublishedPDPGD(least_margin=0.0, dual_rate=0.1),
    "sigma_zero": SigmaZero(sigma=1e-3),
}


@dataclass(frozen=True)
class Departure:
    """One place where an attack's solver is not the published one.

    Args:
        attack: Name of the attack, such as `apgd_min-ce`.
        here: Behaviour in this package.
        published: Behaviour in the paper.
        solver: Solver with this departure undone, and no other.
        norms: Names of the norms where it makes a difference on ten classes.
    """

    attack: str
    here: str
    published: str
    solver: Solver
    norms: tuple[str, ...]

    @property
    def switch(self) -> str:
        """Return what to type in Python for the solver without this departure."""
        given = []
        solver: Any = self.solver
        for field in fields(solver):
            value = getattr(solver, field.name)
            if value != field.default:
                given.append(f"{field.name}={value!r}")
        return f"{type(solver).__name__}({', '.join(given)})"


_EVERYWHERE = ("L0", "L1", "L2", "Linf")
_ENTROPY = "log-odds of logits scaled so that the margin at the input is at least 3"
_PLAIN_ENTROPY = "cross-entropy of the logits"

DEPARTURES: tuple[Departure, ...] = (
    Departure("alma", "momentum against the box is dropped", "it is kept", KeptMomentum(), ("L1",)),
    Departure(
        "alma",
        "the rate falls to 0.003 of the first",
        "to 0.01",
        ALMA(rate_decrease=0.01),
        ("L1",),
    ),
    Departure(
        "alma",
        "tolerance added to the ratio; few classes: divided by the margin at the input",
        "tolerance added to the margin; few classes: bare margin",
        PlainRatio(),
        ("L1", "L2"),
    ),
    Departure(
        "apgd_min-ce",
        _ENTROPY,
        _PLAIN_ENTROPY,
        APGDMin(loss_name="plain_ce"),
        ("L1", "L2", "Linf"),
    ),
    Departure(
        "apgd_min-dlr",
        "few classes: divided by the margin at the input",
        "bare difference of logits",
        APGDMin(loss_name="plain_dlr"),
        (),
    ),
    Departure("ddn", _ENTROPY, _PLAIN_ENTROPY, PlainEntropy(), ("L2",)),
    Departure("ddn", "points are not rounded", "rounded to 8 bits", Rounded(), ("L2",)),
    Departure("fmn", "step length 10 in ℓ∞", "1", FMN(alpha=1.0), ("Linf",)),
    Departure(
        "fmn",
        "before the first success the radius grows by 1 + γ at least",
        "it is the estimate alone",
        EstimatedRadius(),
        ("L1", "L2", "Linf"),
    ),
    Departure(
        "fmn",
        "the step is clipped to the box and stretched to its full length",
        "the step is clipped to the box",
        PlainStep(),
        _EVERYWHERE,
    ),
    Departure(
        "pdgd",
        "margins are scaled so that the margin at the input is at least 2",
        "they are not scaled",
        PDGD(least_margin=0.0),
        ("L2",),
    ),
    Departure(
        "pdpgd",
        "margins are scaled so that the margin at the input is at least 1",
        "they are not scaled",
        PDPGD(least_margin=0.0),
        _EVERYWHERE,
    ),
    Departure("pdpgd", "dual rate 0.07 in ℓ∞", "0.1", PDPGD(dual_rate=0.1), ("Linf",)),
    Departure(
        "pdpgd",
        "ℓ0: the proximal step takes the lower of two minima",
        "the one that is not 0, wherever it exists",
        LocalMinimum(),
        ("L0",),
    ),
    Departure(
        "pdpgd",
        "the proximal step in Adam's metric is exact in ℓ2 and ℓ∞, and takes 5 steps elsewhere",
        "at most 5 steps, fewer for samples that change by less than 1 %",
        Settling(),
        _EVERYWHERE,
    ),
    Departure("sigma_zero", "σ = 5e-4", "1e-3", SigmaZero(sigma=1e-3), ("L0",)),
)


def check_published(runs: Iterable[str]) -> None:
    """Raise if a run's attack is of no paper: it would stand unnoticed among published ones.

    Args:
        runs: Names of runs.
    """
    others = sorted({Run.parse(run).attack for run in runs} - set(PUBLISHED))
    if others:
        raise FrontierError(
            f"{', '.join(others)}: no paper has these searches of advfrontier; expected runs of "
            f"{', '.join(PUBLISHED)} only. Type --ensemble paper-4k or --pool paper together with "
            "--published, or leave --published out"
        )
