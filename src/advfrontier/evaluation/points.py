"""What a stored point proves: that it lies in the box, at a distance, and that the model takes it for another class."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from advfrontier.engine import CleanPass, Oracle
from advfrontier.engine.margins import safety
from advfrontier.record import StoredUnit
from advfrontier.record.units import DOUBTS
from advfrontier.threat.losses import margin
from advfrontier.threat.norms import get_norm

_AGREEMENT = 1e-9  # relative: what summing in another order changes in float64
_BATCH = 100
NEEDED = frozenset({"trajectory", "best_point", "classes", *DOUBTS})


@dataclass(frozen=True)
class Points:
    """The points of one unit: how many there are, and what is false about which sample."""

    points: int
    wrong: dict[int, str]


@dataclass(frozen=True, eq=False)
class PointCheck:
    """Looks at stored points: one forward pass each, charged to verification."""

    oracle: Oracle
    images: Callable[[Tensor], Tensor]  # reads those of some rows
    clean: CleanPass
    norm: str

    def __call__(self, rows: Tensor, stored: StoredUnit) -> Points:
        """The points that a unit found for these rows. Raises ValueError where its tensors are none of such a unit."""
        tensors = stored.tensors
        if missing := NEEDED - set(tensors):
            raise ValueError(f"its file has no {', '.join(sorted(missing))}")
        claimed, points, classes = tensors["trajectory"], tensors["best_point"], tensors["classes"]
        images = self.images(rows).to(self.oracle.dtype)
        expected = {
            "trajectory": (len(claimed), len(rows)),
            "best_point": images.flatten(1).shape,
            "classes": (len(rows),),
        }
        for name, shape in expected.items():
            if tuple(tensors[name].shape) != tuple(shape) or not len(claimed):
                raise ValueError(f"its {name} has the shape {tuple(tensors[name].shape)}: expected {tuple(shape)}")
        broken = (claimed[-1] != torch.inf).nonzero().flatten()  # NaN too, which no point can prove
        wrong: dict[int, str] = {}
        for some in torch.split(broken, _BATCH) if len(broken) else ():
            reasons = self._reasons(rows[some], images[some], points[some], claimed[-1][some].double(), classes[some])
            wrong |= {int(row): why for row, why in zip(rows[some], reasons, strict=True) if why}
        return Points(len(broken), wrong)

    @torch.no_grad()
    def _reasons(self, rows: Tensor, images: Tensor, points: Tensor, claimed: Tensor, classes: Tensor) -> list[str]:
        """Of each point what is false, or nothing."""
        labels = self.clean.labels[rows]
        measured = get_norm(self.norm).distance(points.double(), images.flatten(1).double())
        self.oracle.purpose = "verification"
        logits = self.oracle.logits(self.oracle.images(points.view_as(images))).cpu()
        gap, seen = margin(logits, labels), logits.argmax(1)
        # The class that a record names may be one that rounding cannot tell from the largest.
        named = logits.gather(1, classes.clamp(0, logits.shape[1] - 1).long()[:, None]).squeeze(1)
        other = (classes < 0) | (classes >= logits.shape[1]) | (logits.amax(1) - named > safety(logits))
        outside = ~((points >= 0) & (points <= 1)).all(1)
        away = ~((measured - claimed).abs() <= _AGREEMENT * measured)
        reasons = []
        for k in range(len(rows)):
            if outside[k]:
                low, high = float(points[k].min()), float(points[k].max())
                reasons.append(f"its point is not inside the box: it has values from {low:.6g} to {high:.6g}")
            elif away[k]:
                reasons.append(f"its point is at {float(measured[k]):.6g}, not at {float(claimed[k]):.6g}")
            elif not gap[k] < 0:
                reasons.append(f"its point is not misclassified: it is taken for {int(seen[k])}, its label")
            elif other[k]:
                reasons.append(f"its point is taken for class {int(seen[k])}, not for {int(classes[k])}")
            else:
                reasons.append("")
        return reasons
