"""Claims of a record, tested: points are classified again, and units run again.

A point proves that it lies in the box, at a distance, and that the model misclassifies it. A list
in a file names the evaluations that were verified; leaderboards may use only these.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import fields
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from advfrontier.engine import LAST_LOOK, Oracle, vote
from advfrontier.engine.margins import safety
from advfrontier.errors import FrontierError
from advfrontier.evaluation.evaluation import Evaluation
from advfrontier.jobs import UnitJob
from advfrontier.record import Record, StoredUnit, UnitName, open_folder, write_file
from advfrontier.record.identity import digest, rounds_alike
from advfrontier.threat.criteria import Aim, gap_of
from advfrontier.threat.domain import Space
from advfrontier.threat.norms import make_norm

if TYPE_CHECKING:
    from advfrontier.evaluation.verify import Verification

_AGREEMENT = 1e-9  # relative: what summing in another order changes in float64
_BATCH = 100
_LISTED = ("model", "norm", "place", "samples", "points", "units", "again", "same", "close", "seed")
# By how much the distances of a unit may differ, in the median over its samples, where rounding is
# not the same: 500 steps amplify rounding on single samples, but not on most of them.
TOLERANCE = 0.05


def false_points(
    oracle: Oracle,
    images: Tensor,
    labels: Tensor,
    norm: str,
    stored: StoredUnit,
    *,
    aim: Aim | None = None,
    space: Space | None = None,
) -> tuple[int, dict[int, str]]:
    """Check every point of a unit: one forward pass each, charged to verification.

    Args:
        oracle: Model on its device, which judges the points again.
        images: (n, …), the images that the unit attacked.
        labels: True classes, int64 (n,).
        norm: Name of the norm of the distances.
        stored: The unit, with its points.
        aim: The criterion of the record; None for misclassification.
        space: The domain of the record; None for [0, 1].

    Returns:
        How many points it found; and by their index among the images what is false about which.
    """
    images = images.to(oracle.dtype)
    points, claimed, classes = stored.best_point, stored.trajectory, stored.classes
    shape = images.flatten(1).shape
    if points is None or points.shape != shape:
        found = None if points is None else tuple(points.shape)
        raise ValueError(f"its points have the shape {found}: expected {tuple(shape)}")
    broken = (claimed[-1] != torch.inf).nonzero().flatten()
    wrong: dict[int, str] = {}
    for some in torch.split(broken, _BATCH) if len(broken) else ():
        said = points[some], claimed[-1][some], classes[some]
        reasons = _reasons(
            oracle,
            images[some],
            *said,
            labels=labels[some],
            norm=norm,
            aim=None if aim is None else aim.select(some),
            space=space,
        )
        for row, why in zip(some.tolist(), reasons, strict=True):
            if why:
                wrong[row] = why
    return len(broken), wrong


@torch.no_grad()
def _reasons(
    oracle: Oracle,
    images: Tensor,
    points: Tensor,
    claimed: Tensor,
    classes: Tensor,
    *,
    labels: Tensor,
    norm: str,
    aim: Aim | None,
    space: Space | None,
) -> list[str]:
    """Return the false claim about each point, or nothing."""
    measure = make_norm(norm, tuple(images.shape[1:]))
    exact = points.double(), images.flatten(1).double()
    if space is None:
        measured = measure.distance(*exact)
        outside = ~((points >= 0) & (points <= 1)).all(1)
    else:
        measured = space.distance(norm, *exact)
        outside = space.breaches(points, images.flatten(1))
    oracle.purpose = "verification"
    shown = oracle.images(points.view_as(images))
    if oracle.eot > 1:
        right, seen, other = _voted(oracle, shown, labels, classes)
    else:
        right, seen, other = _judged(oracle, shown, labels, classes, aim)
    away = ~((measured - claimed).abs() <= _AGREEMENT * measured)

    def reason(k: int) -> str:
        if outside[k]:
            low, high = float(points[k].min()), float(points[k].max())
            if space is not None:
                return "its point leaves the box of the domain, or changes what may not change"
            return f"its point is not inside the box: it has values from {low:.6g} to {high:.6g}"
        if away[k]:
            return f"its point is at {float(measured[k]):.6g}, not at {float(claimed[k]):.6g}"
        if right[k]:
            if aim is not None:
                words = aim.criterion.words
                return f"its point is taken for {int(seen[k])}: it is not {words}"
            return f"its point is not misclassified: it is taken for {int(seen[k])}, its label"
        return (
            f"its point is taken for class {int(seen[k])}, not for {int(classes[k])}"
            if other[k]
            else ""
        )

    return [reason(k) for k in range(len(images))]


def _judged(
    oracle: Oracle, points: Tensor, labels: Tensor, classes: Tensor, aim: Aim | None = None
) -> tuple[Tensor, Tensor, Tensor]:
    """Return which points are not misclassified, their classes, and which classes differ."""
    logits = oracle.logits(points).cpu()
    # The class that a record names may be one that rounding cannot tell from the largest.
    named = logits.gather(1, classes.clamp(0, logits.shape[1] - 1).long()[:, None]).squeeze(1)
    other = (classes < 0) | (classes >= logits.shape[1]) | (logits.amax(1) - named > safety(logits))
    return ~(gap_of(aim, logits, labels) < 0), logits.argmax(1), other


def _voted(
    oracle: Oracle, points: Tensor, labels: Tensor, classes: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Classify points of a random model, with as many passes as the record's own last check.

    Two classes may be named about as often, so only one that is none of the model's is another.
    """
    share, seen = vote(oracle, points, oracle.labels(labels), "last look", LAST_LOOK)
    return share.cpu() <= 1 / 2, seen.cpu(), (classes < 0) | (classes == labels)


def same_bits(claimed: Record, fresh: Record, unit: UnitName) -> bool:
    """Return whether a unit's bits should repeat: those of its shard's clean pass did.

    Args:
        claimed: Record to verify.
        fresh: Record of the same data, made here.
        unit: Unit of both records.
    """
    said, found = claimed.header, fresh.header
    versions = all(rounds_alike(found.versions, each) for each in (said.versions, *said.later))
    rows = slice(unit.first, unit.first + unit.count)
    clean = [
        (record.clean.logits[rows], record.clean.boundary[rows]) for record in (claimed, fresh)
    ]
    bits = all(torch.equal(one, two) for one, two in zip(*clean, strict=True))
    return said.numerics == found.numerics and said.terms == found.terms and versions and bits


def difference(claimed: Evaluation, job: UnitJob, unit: UnitName, *, exact: bool) -> str | None:
    """Run one unit again in the record of a job, and return any difference.

    Args:
        claimed: Evaluation to verify.
        job: Job on the record made here, which runs the unit.
        unit: Unit to run again.
        exact: Compare bits; otherwise distances within a tolerance.
    """
    queries = claimed.ensemble.total
    job.again(unit, queries)
    again, stored = job.work.read_unit(unit, queries), claimed.record.read_unit(unit, queries)
    if again is None or stored is None:
        return "its file cannot be read"
    if exact:
        others = []
        for field in fields(again):
            one, other = getattr(again, field.name), getattr(stored, field.name)
            if isinstance(one, Tensor) and not (
                isinstance(other, Tensor) and torch.equal(one, other)
            ):
                others.append(field.name)
        return f"{', '.join(others)} differ in their bits" if others else None
    if stored.trajectory.shape != again.trajectory.shape:
        return "it attacked other samples"
    deviation = _deviation(stored.trajectory[-1], again.trajectory[-1])
    if deviation <= TOLERANCE:
        return None
    return f"its distances differ by {deviation:.0%} in the median"


def _deviation(said: Tensor, found: Tensor) -> float:
    """Return the median relative difference of two distances; samples neither broke agree."""
    difference = (said - found).abs() / torch.maximum(said, found)
    difference = torch.where(said == found, torch.zeros_like(difference), difference).nan_to_num(
        nan=1.0
    )
    return float(np.median(difference.numpy()))


def figures_digest(evaluation: Evaluation) -> str:
    """Hash everything that tables and ranks use, which tells one evaluation from any other.

    Args:
        evaluation: Finished evaluation.
    """
    header = evaluation.record.header
    about = [header.model, header.data, header.terms, evaluation.ensemble]
    words = [
        *(each.model_dump_json() for each in about),
        *(f"{flag.kind} {flag.text}" for flag in evaluation.flags),
    ]
    words += [*evaluation.samples, *(winner or "" for winner in evaluation.winners)]
    tables = evaluation.distances.tobytes(), evaluation.trajectory.tobytes()
    return digest("\0".join(words).encode(), *tables)


def write_verified(path: str, verifications: Iterable[Verification]) -> str:
    """Add verified evaluations to a list; a missing file is created.

    Args:
        path: File of the list: a path or an address.
        verifications: Results of `verify`; those that found anything false are left out.
    """
    entries = _read(path) or {}
    for each in verifications:
        if each.holds:
            entries[each.digest] = {name: getattr(each, name) for name in _LISTED}
    return write_file(
        path, json.dumps({"verified": entries}, indent=2, ensure_ascii=False).encode() + b"\n"
    )


def only_verified(
    evaluations: Iterable[Evaluation], path: str
) -> tuple[list[Evaluation], list[Evaluation]]:
    """Split evaluations into those whose figures are on a list, and the others.

    Args:
        evaluations: Evaluations to split.
        path: File of the list that `write_verified` wrote.
    """
    known = _read(path)
    if known is None:
        raise FrontierError(
            f"no file {path}: expected one that `advfrontier verify … --out {path}` has written"
        )
    found = [(each, figures_digest(each) in known) for each in evaluations]
    return [each for each, listed in found if listed], [
        each for each, listed in found if not listed
    ]


def _read(path: str) -> dict[str, Any] | None:
    """Read the entries of a list; None if there is no such file."""
    folder, slash, name = path.replace("\\", "/").rpartition("/")
    content = open_folder(folder or slash or ".").read(name)
    if content is None:
        return None
    try:
        entries = json.loads(content)["verified"]
    except (ValueError, RecursionError, KeyError, TypeError):
        entries = None
    if not isinstance(entries, dict):
        raise FrontierError(
            f"{path} is no list of verified records: expected what `advfrontier verify --out` wrote"
        )
    return entries
