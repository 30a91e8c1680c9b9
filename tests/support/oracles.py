"""Exact minimum distances to misclassification for linear classifiers inside a box, in float64.

To make class j beat label y the score a·x + c with a = w_y − w_j has to fall to 0. Feature k can
lower it by at most |a_k|·room_k, where room_k is the distance to the end of the box in the useful
direction. Misclassification is the union of these half-spaces over j, so the least distance is the
least over rival classes.
"""

from __future__ import annotations

import numpy as np

_BISECTIONS = 200


def linear_minimum(weight, bias, inputs, labels, norm, **domain):
    """Least ‖δ‖ of each sample for logits `weight @ x + bias`; inf where the box is too small, 0
    where it is wrong. `domain` as `halfspace_minimum` takes it.
    """
    weight, bias, inputs = (np.asarray(array, dtype=np.float64) for array in (weight, bias, inputs))
    return np.array(
        [
            min(
                halfspace_minimum(weight[y] - weight[j], bias[y] - bias[j], x, norm, **domain)
                for j in range(len(weight))
                if j != y
            )
            for x, y in zip(inputs, np.asarray(labels), strict=True)
        ]
    )


def halfspace_minimum(a, c, x, norm, *, lower=0.0, upper=1.0, changeable=True, weights=1.0):
    """Least ‖weights·δ‖ with a·(x + δ) + c ≤ 0 and x + δ in the box, where δ may change.

    Measured in weighted changes, a feature gains |a|/weight per unit and has weight·room units.
    """
    gap = float(a @ x + c)
    slope = np.abs(a) / weights
    room = np.where(changeable, weights * np.where(a > 0, x - lower, upper - x), 0.0)
    if gap <= 0:
        return 0.0
    if (slope * room).sum() < gap:
        return np.inf
    return {"L0": _fewest, "L1": _cheapest, "L2": _shortest, "Linf": _flattest}[norm](
        slope, room, gap
    )


def _fewest(slope, room, gap):
    """Features in order of what each can gain in all."""
    gains = np.sort(slope * room)[::-1].cumsum()
    return float(min(np.searchsorted(gains, gap) + 1, len(gains)))


def _cheapest(slope, room, gap):
    """Features in order of what they gain per unit of movement; the last one is moved as far as it
    takes.
    """
    total = 0.0
    for k in np.argsort(-slope, kind="stable"):
        if slope[k] * room[k] >= gap:
            return total + gap / slope[k]
        gap -= slope[k] * room[k]
        total += room[k]
    return total


def _shortest(slope, room, gap):
    """The stationary δ is min(λ·slope, room): bisection on λ."""
    used = slope > 0
    low, high = 0.0, float((room[used] / slope[used]).max())
    for _ in range(_BISECTIONS):
        middle = (low + high) / 2
        short = slope @ np.minimum(middle * slope, room) < gap
        low, high = (middle, high) if short else (low, middle)
    return float(np.linalg.norm(np.minimum(high * slope, room)))


def _flattest(slope, room, gap):
    """Everything moves by min(ε, room): bisection on ε."""
    low, high = 0.0, float(room.max())
    for _ in range(_BISECTIONS):
        middle = (low + high) / 2
        short = slope @ np.minimum(middle, room) < gap
        low, high = (middle, high) if short else (low, middle)
    return high
