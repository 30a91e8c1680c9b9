"""Nearest point that a small ReLU network gives a class, as a mixed-integer program.

Every sum of pixels that the network sees moves by rise − fall, both at least 0. Every ReLU is a
variable between its two straight lines, with a binary that says which one holds; where the bounds
on what goes in have one sign, there is no choice and no binary.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import Bounds, LinearConstraint, milp
from scipy.sparse import csr_array

Network = tuple[
    tuple[NDArray[np.float64], NDArray[np.float64]], ...
]  # weight and bias of each layer, from sums of pixels, ReLU between
Interval = tuple[NDArray[np.float64], NDArray[np.float64]]
Sum = list[tuple[slice, NDArray[np.float64]]]  # of matrices times the variables at these places
GAP = 1e-6  # between the best point and what is proven, relative
_INFEASIBLE = 2  # SciPy's number for a program without any point


@dataclass(frozen=True)
class Ball:
    """All images within a distance of one, in L1 or Linf, inside [0, 1].

    The network sees sums of pixels only, so an image is a matrix (sums, pixels of each). In L1 it
    does not matter which pixels of a sum move, and in Linf all move alike until they have no room.
    """

    norm: str
    pixels: NDArray[np.float64]
    radius: float

    @property
    def sums(self) -> NDArray[np.float64]:
        """Return the sums that the network sees of the image."""
        sums: NDArray[np.float64] = self.pixels.sum(1)
        return sums

    def room(self, direction: int) -> NDArray[np.float64]:
        """Return how far each sum can go up (1) or down (−1)."""
        room: NDArray[np.float64] = np.minimum(self.pixel_room(direction), self.radius).sum(1)
        return room if self.norm == "Linf" else np.minimum(room, self.radius)

    def pixel_room(self, direction: int) -> NDArray[np.float64]:
        """Return how far each pixel can go, least first."""
        room: NDArray[np.float64] = 1 - self.pixels if direction > 0 else self.pixels
        return np.sort(room, axis=1)

    def reach(self, weight: NDArray[np.float64], bias: NDArray[np.float64]) -> Interval:
        """Return the exact range of each row of an affine function of the sums."""
        centre = weight @ self.sums + bias
        return centre - self._gain(-weight), centre + self._gain(weight)

    def _gain(self, weight: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return how much each row can rise: steepest sums first in L1, all in Linf."""
        slope, room = np.abs(weight), np.where(weight > 0, self.room(1), self.room(-1))
        if self.norm == "Linf":
            whole: NDArray[np.float64] = np.sum(slope * room, axis=1)
            return whole
        ranks = np.argsort(-slope, axis=1)
        slope, room = (np.take_along_axis(a, ranks, axis=1) for a in (slope, room))
        left = np.clip(self.radius - (np.cumsum(room, axis=1) - room), 0, None)
        gain: NDArray[np.float64] = np.sum(slope * np.minimum(room, left), axis=1)
        return gain

    def moved(self, moves: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the pixels where each sum has moved evenly, the smallest move in both norms."""
        pixels = self.pixels.copy()
        for block, move in zip(pixels, moves, strict=True):
            room, left = (1 - block if move > 0 else block), abs(move)
            for rank, pixel in enumerate(np.argsort(room)):
                step = min(room[pixel], left / (len(block) - rank))
                block[pixel] += step * np.sign(move)
                left -= step
        return pixels


@dataclass
class Program:
    """Variables with their bounds, and rows low ≤ A·x ≤ high, which grow layer by layer."""

    low: NDArray[np.float64]
    high: NDArray[np.float64]
    binary: NDArray[np.float64]
    rows: list[tuple[Sum, NDArray[np.float64] | float, NDArray[np.float64] | float]] = field(
        default_factory=list
    )

    def add_variables(
        self, low: NDArray[np.float64], high: NDArray[np.float64], *, binary: bool = False
    ) -> slice:
        """More variables; returns their places."""
        first = len(self.low)
        self.low, self.high = np.concatenate((self.low, low)), np.concatenate((self.high, high))
        self.binary = np.concatenate((self.binary, np.full(len(low), binary)))
        return slice(first, len(self.low))

    def add_rows(
        self, parts: Sum, low: NDArray[np.float64] | float, high: NDArray[np.float64] | float
    ) -> None:
        """Rows low ≤ Σ part·variables ≤ high."""
        if len(parts[0][1]):
            self.rows.append((parts, low, high))

    def _constraint(
        self, parts: Sum, low: NDArray[np.float64] | float, high: NDArray[np.float64] | float
    ) -> LinearConstraint:
        row = np.zeros((len(parts[0][1]), len(self.low)))
        for where, part in parts:
            row[:, where] += part
        return LinearConstraint(csr_array(row), low, high)

    def solve(
        self, cost: NDArray[np.float64], *, relaxed: bool, limit: float = 60.0
    ) -> tuple[float, float, NDArray[np.float64] | None]:
        """Return the least cost, its proven lower bound, and the point; ∞ where there is none."""
        relaxed = relaxed or not self.binary.any()  # a program without any choice is a linear one
        answer = milp(
            cost,
            integrality=None if relaxed else self.binary.astype(int),
            bounds=Bounds(self.low, self.high),
            constraints=[self._constraint(*row) for row in self.rows],
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


def nearest(
    network: Network, ball: Ball, label: int, other: int, limit: float
) -> tuple[float, float, NDArray[np.float64] | None]:
    """Return the nearest point of the ball with equal logits of `other` and `label`, with bounds.

    Where the ball holds no such point the distance is ∞, and its radius is proven.
    """
    program, cost, previous = _inside(ball)
    bounds = ball.reach(*network[0])
    for k, ((weight, bias), (following, shift)) in enumerate(pairwise(network)):
        if k:
            bounds = _tighten(program, previous, weight, bias, bounds)
        parts = [(where, weight @ part) for where, part in previous]
        constant = bias + (weight @ ball.sums if not k else 0)
        outputs = _rectify(program, parts, constant, bounds)
        previous = [(outputs, np.eye(len(bias)))]
        low, high = np.maximum(bounds[0], 0), np.maximum(bounds[1], 0)
        positive, negative = np.clip(following, 0, None), np.clip(following, None, 0)
        bounds = positive @ low + negative @ high + shift, positive @ high + negative @ low + shift
    weight, bias = network[-1]
    ahead = (weight[other] - weight[label])[None]
    program.add_rows(
        [(where, ahead @ part) for where, part in previous], bias[label] - bias[other], np.inf
    )
    cost = np.concatenate((cost, np.zeros(len(program.low) - len(cost))))
    distance, proven, point = program.solve(cost, relaxed=False, limit=limit)
    if point is None:
        return np.inf, min(proven, ball.radius), None
    distance, point = _polish(program, cost, point)
    count = len(ball.pixels)
    return distance, min(proven, ball.radius), ball.moved(point[:count] - point[count : 2 * count])


def _inside(ball: Ball) -> tuple[Program, NDArray[np.float64], Sum]:
    """Return the moves inside the ball, their costs, and the change of the sums."""
    count, pixels = ball.pixels.shape
    program = Program(np.zeros(0), np.zeros(0), np.zeros(0, dtype=bool))
    rise, fall = (
        program.add_variables(np.zeros(count), ball.room(direction)) for direction in (1, -1)
    )
    if ball.norm == "L1":
        cost = np.ones(2 * count)
        program.add_rows([(slice(0, 2 * count), cost[None])], 0, ball.radius)
    else:
        size = program.add_variables(np.zeros(1), np.full(1, ball.radius))
        cost = np.eye(1, 2 * count + 1, 2 * count)[0]
        for where, direction in ((rise, 1), (fall, -1)):
            # A sum can move by Σ min(size, room of a pixel): concave, so the least of its straight
            # lines.
            room = ball.pixel_room(direction)
            for spent in range(pixels):
                before = room[:, spent - 1] if spent else np.zeros(count)
                used = np.flatnonzero((room[:, spent] > before) & (before < ball.radius))
                lines = [
                    (where, np.eye(count)[used]),
                    (size, np.full((len(used), 1), spent - pixels)),
                ]
                program.add_rows(lines, -np.inf, room[used, :spent].sum(1))
    return program, cost, [(rise, np.eye(count)), (fall, -np.eye(count))]


def _tighten(
    program: Program,
    previous: Sum,
    weight: NDArray[np.float64],
    bias: NDArray[np.float64],
    bounds: Interval,
) -> Interval:
    """Bound a layer by intervals, tightened by linear programs where signs are open."""
    low, high = (side.copy() for side in bounds)
    for unit in np.flatnonzero((low < 0) & (high > 0)):
        cost = np.zeros(len(program.low))
        for where, part in previous:
            cost[where] += weight[unit] @ part
        slack = 1e-6  # what a solver takes for feasible may be off by 1e-7
        low[unit] = max(low[unit], program.solve(cost, relaxed=True)[0] + bias[unit] - slack)
        if low[unit] < 0:
            high[unit] = min(
                high[unit], -program.solve(-cost, relaxed=True)[0] + bias[unit] + slack
            )
    return low, high


def _rectify(
    program: Program, parts: Sum, constant: NDArray[np.float64], bounds: Interval
) -> slice:
    """Add ReLUs of Σ part·variables + constant; return the places of their outputs."""
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
        program.add_rows(
            [(outputs, identity[open_]), (on, -high[open_, None] * switch)], -np.inf, 0
        )
        inputs = [(where, -part[open_]) for where, part in parts]
        program.add_rows(
            [(outputs, identity[open_]), *inputs, (on, -low[open_, None] * switch)],
            -np.inf,
            constant[open_] - low[open_],
        )
    return outputs


def _polish(
    program: Program, cost: NDArray[np.float64], point: NDArray[np.float64]
) -> tuple[float, NDArray[np.float64]]:
    """Return the least cost and its point with all binaries rounded and held."""
    low, high = program.low.copy(), program.high.copy()
    chosen = np.round(point[program.binary])
    low[program.binary] = high[program.binary] = chosen
    least, _, nearest_point = replace(program, low=low, high=high).solve(cost, relaxed=True)
    return (least, nearest_point) if nearest_point is not None else (float(cost @ point), point)
