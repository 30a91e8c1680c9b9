"""A solver of one's own, run beside those of advfrontier.

To offer it to everyone who installs your package, declare its facts there instead of calling
`register`:

    [project.entry-points."advfrontier.solvers"]
    newton = "your_package:FACTS"

with FACTS = SolverFacts("newton", "your_package:Newton", norms=("L2",), restarts=False).
"""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from advfrontier import register, trace
from advfrontier.pool import SolverFacts
from advfrontier.solvers import Answer, Problem
from advfrontier.solvers.protocol import where_rows


@dataclass
class NewtonState:
    """All that a run has to remember: tensors with one row per sample.

    Args:
        point: (n, d), the point to evaluate.
    """

    point: Tensor


@dataclass(frozen=True)
class Newton:
    """Step a little beyond the hyperplane on which the linearised margin vanishes.

    After a success, go a part of the way back to the input.

    Args:
        overshoot: How far to go beyond the hyperplane, over the way to it.
        retreat: Share of the way back to the input after a success.
    """

    overshoot: float = 0.2
    retreat: float = 0.1

    def start(self, problem: Problem) -> NewtonState:
        """Start from the input."""
        return NewtonState(problem.starts.clone())

    def loss(self, i: int) -> str:  # noqa: ARG002
        """Differentiate the margin; in a targeted run, the margin towards the target."""
        return "margin"

    def step(self, problem: Problem, state: NewtonState, i: int, answer: Answer) -> None:  # noqa: ARG002
        """Move the point. The engine has counted, judged and kept the point before."""
        reach = (1 + self.overshoot) * answer.loss / answer.length.square()
        forward = state.point - reach[:, None] * answer.gradient
        back = torch.lerp(problem.inputs, answer.best_point, 1 - self.retreat)
        # Conditions are tensors too: an `if` on a tensor would make a GPU wait for Python.
        state.point = where_rows(answer.improved, back, forward).clamp_(0, 1)


FACTS = SolverFacts("newton", Newton, norms=("L2",), restarts=False)


if __name__ == "__main__":
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Flatten(), nn.Linear(64, 100), nn.Tanh(), nn.Linear(100, 10)
    ).eval()  # yours, trained
    images = torch.rand(20, 1, 8, 8)
    labels = model(images).argmax(1)

    register(FACTS)
    traces = trace(model, images, labels, norm="L2", runs=["newton", "newton:target1", "ddn"])
    for run, distances in zip(traces.runs, traces.at(1000), strict=True):
        print(f"{run:16s} median distance {np.median(distances):.4f}")
