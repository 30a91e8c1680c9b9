"""The nearest point that a small ReLU network gives a certain class, as a mixed-integer program for HiGHS.

The image moves by rise − fall, both at least 0. Every ReLU is a variable between its two straight lines, with a binary
that says which one holds; where the bounds on what goes in have one sign, there is no choice and no binary.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
from scipy.optimize import Bounds, LinearConstraint, milp
from scipy.sparse import csr_array, hstack, vstack

Network = tuple[tuple[np.ndarray, np.ndarray], ...]  # weight and bias of each layer, ReLU between
Interval = tuple[np.ndarray, np.ndarray]
Sum = list[tuple[slice, np.ndarray]]  # of matrices times the variables at these places
GAP = 1e-6  # between the best point and what is proven, relative
_INFEASIBLE = 2  # SciPy's number for a program without any point


@dataclass(frozen=True)
class Ball:
    """All images within a distance of one, in L1 or Linf, inside [0, 1]."""

    norm: str
    image: np.ndarray
    radius: float

    def reach(self, weight: np.ndarray, bias: np.ndarray) -> Interval:
        """The exact least and largest value of each row of an affine function in the ball."""
        centre = weight @ self.image + bias
        return centre - self._gain(-weight), centre + self._gain(weight)

    def _gain(self, weight: np.ndarray) -> np.ndarray:
        """By how much each row can rise: steepest pixels first in L1, all as far as they can go in Linf."""
        room = np.where(weight > 0, 1 - self.image, self.image)
        slope = np.abs(weight)
        if self.norm == "Linf":
            return np.sum(slope * np.minimum(room, self.radius), axis=1)
        ranks = np.argsort(-slope, axis=1)
        slope, room = (np.take_along_axis(a, ranks, axis=1) for a in (slope, room))
        left = np.clip(self.radius - (np.cumsum(room, axis=1) - room), 0, None)
        return np.sum(slope * np.minimum(room, left), axis=1)


@dataclass
class Program:
    """Variables with their bounds, and rows low ≤ A·x ≤ high, which grow layer by layer."""

    low: np.ndarray
    high: np.ndarray
    binary: np.ndarray
    rows: list[csr_array] = field(default_factory=list)
    row_low: list[np.ndarray] = field(default_factory=list)
    row_high: list[np.ndarray] = field(default_factory=list)

    def add_variables(self, low: np.ndarray, high: np.ndarray, *, binary: bool = False) -> slice:
        """More variables; returns their places."""
        first = len(self.low)
        self.low, self.high = np.concatenate((self.low, low)), np.concatenate((self.high, high))
        self.binary = np.concatenate((self.binary, np.full(len(low), binary)))
        return slice(first, len(self.low))

    def add_rows(self, parts: Sum, low: np.ndarray | float, high: np.ndarray | float) -> None:
        """Rows low ≤ Σ part·variables ≤ high."""
        count = len(parts[0][1])
        row = np.zeros((count, len(self.low)))
        for where, part in parts:
            row[:, where] += part
        self.rows.append(csr_array(row))
        self.row_low.append(np.broadcast_to(low, count))
        self.row_high.append(np.broadcast_to(high, count))

    def solve(self, cost: np.ndarray, *, relaxed: bool, limit: float = 60.0) -> tuple[float, float, np.ndarray | None]:
        """The least cost that was found, the bound that was proven, and the point; ∞ where there is none."""
        width = len(self.low)
        matrix = vstack(
            [row if row.shape[1] == width else hstack([row, csr_array((row.shape[0], width - row.shape[1]))])
             for row in self.rows],
            format="csr",
        ) if self.rows else None  # fmt: skip
        constraints = (
            [] if matrix is None else [LinearConstraint(matrix, np.concatenate(self.row_low), np.concatenate(self.row_high))]
        )
        answer = milp(
            cost,
            integrality=None if relaxed else self.binary.astype(int),
            bounds=Bounds(self.low, self.high),
            constraints=constraints,
            options={"mip_rel_gap": GAP, "time_limit": limit},
        )
        if answer.status == _INFEASIBLE:
            return np.inf, np.inf, None
        if relaxed:
            if answer.x is None:
                raise RuntimeError(f"a linear program was not solved: {answer.message}")
            return answer.fun, answer.fun, answer.x
        bound = -np.inf if answer.mip_dual_bound is None else answer.mip_dual_bound
        return (np.inf if answer.x is None else answer.fun), bound, answer.x


def nearest(network: Network, ball: Ball, label: int, other: int, limit: float) -> tuple[float, float]:
    """Distance of the nearest point of the ball that is as much `other` as `label`, and what is proven of it.

    Both are the ball's radius at least where it holds no such point: the distance is ∞, the bound the radius.
    """
    program, cost, previous = _inside(ball)
    bounds = ball.reach(*network[0])
    for k, ((weight, bias), (following, shift)) in enumerate(pairwise(network)):
        if k:
            bounds = _tighten(program, previous, weight, bias, bounds)
        parts = [(where, weight @ part) for where, part in previous]
        constant = bias + (weight @ ball.image if not k else 0)
        outputs = _rectify(program, parts, constant, bounds)
        previous = [(outputs, np.eye(len(bias)))]
        low, high = np.maximum(bounds[0], 0), np.maximum(bounds[1], 0)
        positive, negative = np.clip(following, 0, None), np.clip(following, None, 0)
        bounds = positive @ low + negative @ high + shift, positive @ high + negative @ low + shift
    weight, bias = network[-1]
    ahead = (weight[other] - weight[label])[None]
    program.add_rows([(where, ahead @ part) for where, part in previous], bias[label] - bias[other], np.inf)
    cost = np.concatenate((cost, np.zeros(len(program.low) - len(cost))))
    distance, proven, point = program.solve(cost, relaxed=False, limit=limit)
    if point is not None:
        distance = _polish(program, cost, point)
    return distance, min(proven, ball.radius)


def _inside(ball: Ball) -> tuple[Program, np.ndarray, Sum]:
    """The moves inside the ball, what they cost, and the image's change as a function of them."""
    count = len(ball.image)
    program = Program(np.zeros(0), np.zeros(0), np.zeros(0, dtype=bool))
    rise = program.add_variables(np.zeros(count), np.minimum(1 - ball.image, ball.radius))
    fall = program.add_variables(np.zeros(count), np.minimum(ball.image, ball.radius))
    if ball.norm == "L1":
        cost = np.ones(2 * count)
        program.add_rows([(slice(0, 2 * count), cost[None])], 0, ball.radius)
    else:
        size = program.add_variables(np.zeros(1), np.full(1, ball.radius))
        cost = np.eye(1, 2 * count + 1, 2 * count)[0]
        for where in (rise, fall):
            movable = np.flatnonzero(program.high[where] > 0)
            program.add_rows([(where, np.eye(count)[movable]), (size, -np.ones((len(movable), 1)))], -np.inf, 0)
    return program, cost, [(rise, np.eye(count)), (fall, -np.eye(count))]


def _tighten(
    program: Program, previous: Sum, weight: np.ndarray, bias: np.ndarray, bounds: Interval
) -> Interval:
    """Interval bounds of a layer, those of both signs tightened by linear programs over all that comes before."""
    low, high = (side.copy() for side in bounds)
    for unit in np.flatnonzero((low < 0) & (high > 0)):
        cost = np.zeros(len(program.low))
        for where, part in previous:
            cost[where] += weight[unit] @ part
        slack = 1e-6  # what a solver takes for feasible may be off by 1e-7
        low[unit] = max(low[unit], program.solve(cost, relaxed=True)[0] + bias[unit] - slack)
        if low[unit] < 0:
            high[unit] = min(high[unit], -program.solve(-cost, relaxed=True)[0] + bias[unit] + slack)
    return low, high


def _rectify(program: Program, parts: Sum, constant: np.ndarray, bounds: Interval) -> slice:
    """ReLUs of Σ part·variables + constant, which lies within the bounds; returns the places of their outputs."""
    low, high = bounds
    outputs = program.add_variables(np.maximum(low, 0), np.maximum(high, 0))
    identity = np.eye(len(constant))
    used = np.flatnonzero(high > 0)
    above = [(outputs, identity[used]), *((where, -part[used]) for where, part in parts)]
    active = low[used] >= 0
    program.add_rows(above, constant[used], np.where(active, constant[used], np.inf))
    open_ = np.flatnonzero((low < 0) & (high > 0))
    if len(open_):
        on = program.add_variables(np.zeros(len(open_)), np.ones(len(open_)), binary=True)
        switch = np.eye(len(open_))
        program.add_rows([(outputs, identity[open_]), (on, -high[open_, None] * switch)], -np.inf, 0)
        inputs = [(where, -part[open_]) for where, part in parts]
        program.add_rows(
            [(outputs, identity[open_]), *inputs, (on, -low[open_, None] * switch)],
            -np.inf,
            constant[open_] - low[open_],
        )
    return outputs


def _polish(program: Program, cost: np.ndarray, point: np.ndarray) -> float:
    """The least cost with the binaries of a point rounded and held: a switch that is 1e-6 open would leak."""
    low, high = program.low.copy(), program.high.copy()
    chosen = np.round(point[program.binary])
    low[program.binary] = high[program.binary] = chosen
    held = Program(low, high, program.binary, program.rows, program.row_low, program.row_high)
    return held.solve(cost, relaxed=True)[0]
