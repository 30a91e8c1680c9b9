"""A solver of one's own: written to the contract, and run beside those of the pool.

To offer it to everyone who installs your package, declare it there instead of calling `register`:

    [project.entry-points."advfrontier.solvers"]
    newton = "your_package:Newton"
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from advfrontier import register, trace
from advfrontier.pool import SolverFacts
from advfrontier.solvers import Answer, Problem


@dataclass
class NewtonState:
    """All that a run has to remember: tensors, one row per sample."""

    point: Tensor


@dataclass(frozen=True)
class Newton:
    """Step to where the linearised margin vanishes, a little beyond; from a success go a tenth of the way back."""

    facts: ClassVar[SolverFacts] = SolverFacts("newton", ("L2",), restarts=False)

    overshoot: float = 0.2
    retreat: float = 0.1

    def start(self, problem: Problem) -> NewtonState:
        """From the input."""
        return NewtonState(problem.starts.clone())

    def loss(self, i: int) -> str:  # noqa: ARG002
        """The margin, whose gradient the engine hands over; of a targeted run, the targeted one."""
        return "margin"

    def step(self, problem: Problem, state: NewtonState, i: int, answer: Answer) -> None:  # noqa: ARG002
        """Move; the engine has counted, judged and kept the point already."""
        reach = (1 + self.overshoot) * answer.loss / answer.length.square()
        forward = state.point - reach[:, None] * answer.gradient
        back = torch.lerp(problem.inputs, answer.best_point, 1 - self.retreat)
        state.point = torch.where(answer.improved[:, None], back, forward).clamp(0, 1)


if __name__ == "__main__":
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Flatten(), nn.Linear(64, 100), nn.Tanh(), nn.Linear(100, 10)
    ).eval()  # yours, trained
    images = torch.rand(20, 1, 8, 8)
    labels = model(images).argmax(1)

    register(Newton)
    traces = trace(model, images, labels, norm="L2", runs=["newton", "newton:target1", "ddn"])
    for run, distances in zip(traces.runs, traces.at(1000), strict=True):
        print(f"{run:16s} median distance {np.median(distances):.4f}")
