"""Certify an evaluation: radii around samples that provably hold no misclassified point."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from advfrontier.certified import SUPPORTED, certified_radius
from advfrontier.command import current_command
from advfrontier.errors import FrontierError
from advfrontier.evaluation.evaluate import recognised
from advfrontier.evaluation.evaluation import Evaluation
from advfrontier.jobs import Model
from advfrontier.progress import progress_bar
from advfrontier.record import HeaderChange

AGREEMENT = 1e-5  # relative: float32 may put a point this much nearer than exact arithmetic allows


def certify(
    evaluation: Evaluation,
    *,
    model: Model | Callable[[Tensor], Tensor] | str | None = None,
    precision: float = 0.01,
    progress: bool = False,
) -> NDArray[np.float64]:
    """Compute the certified radius of each sample, and store it in the evaluation's record.

    Args:
        evaluation: Finished evaluation in L1, L2 or Linf, of a feed-forward ReLU network.
        model: Model of the evaluation; needed where the record names no source that can be loaded
            without running code.
        precision: By what share a radius may be below the largest that the bounds certify.
        progress: Show a progress bar.
    """
    norm = evaluation.norm
    if norm not in SUPPORTED:  # before a model is loaded
        raise FrontierError(
            f"{evaluation.place} is an evaluation in {norm}: expected one in "
            f"{', '.join(SUPPORTED)}, because linear bounds say nothing about {norm}"
        )
    if evaluation.criterion is not None:
        raise FrontierError(
            f"{evaluation.place} has the criterion {evaluation.criterion.name}: expected an "
            "evaluation of misclassification, because the bounds are about the label's margin"
        )
    if evaluation.space is not None:
        raise FrontierError(
            f"{evaluation.place} is in a domain ({evaluation.space.words}): expected an "
            "evaluation in [0, 1], because the bounds are computed in that box"
        )
    subject, prepared = recognised(evaluation, model, "certify")
    if not isinstance(subject.function, nn.Module):
        raise FrontierError(
            f"{subject.name} is a function: expected an nn.Module, whose layers can be followed"
        )
    with prepared.record.folder.lock():  # a folder that must not be written shows before the work
        pass
    distances = evaluation.distances
    rows = np.flatnonzero(distances > 0)
    # Radii near half of what was found are tried first: attacks seldom overestimate by more, nor do
    # these bounds.
    start = torch.from_numpy(distances[rows] / 2).nan_to_num(posinf=1.0)
    radii = np.zeros_like(distances)
    if len(rows):
        label = f"certifying {subject.name} in {norm}"
        with progress_bar(progress, len(rows), unit="samples", label=label) as shown:
            radii[rows] = certified_radius(
                subject.function,
                evaluation.images(rows.tolist()),
                evaluation.labels[rows],
                norm,
                start=start,
                precision=precision,
                done=shown.advance,
            ).numpy()
    _check_below(evaluation, radii)
    record = prepared.record
    record.write_certified(np.minimum(radii, distances))
    # The last command stays the one that resumes an interrupted extension.
    record.change(HeaderChange(command=current_command(), resumes=evaluation.finished))
    return np.minimum(radii, distances)


def _check_below(evaluation: Evaluation, radii: NDArray[np.float64]) -> None:
    """Raise if a misclassified point lies within its radius: the bounds are of another function."""
    distances = evaluation.distances
    wrong = np.flatnonzero(radii > distances * (1 + AGREEMENT))
    if len(wrong):
        row = int(wrong[0])
        raise FrontierError(
            f"sample {row} of {evaluation.place} is certified up to {radii[row]:.6g}, yet a "
            f"misclassified point was found at {distances[row]:.6g} ({len(wrong)} such samples): "
            "the model does not compute what its layers say, perhaps because it works in low "
            "precision; nothing was stored"
        )
