"""Curves as a small SVG picture: a leaderboard need not carry a plotting library."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from advfrontier.frontier.curve import Curve

WIDTH, HEIGHT = 520, 300
_LEFT, _RIGHT, _TOP, _BOTTOM = 44, 12, 12, 40
_POINTS = 250


def curves_svg(
    curves: Sequence[tuple[str, Curve]], *, frontier: Curve, doubtful: Collection[str], axis: str
) -> dict[str, Any]:
    """Paths and ticks in the picture's own coordinates, for the template to draw.

    The picture ends where the curves have fallen to 1 %, but for those in doubt: one that was never broken has no end.
    """
    trusted = [curve for model, curve in curves if model not in doubtful]
    end = max((curve.falls_to(0.01) for curve in (*trusted, frontier)), default=0.0) or 1.0
    x_ticks = _ticks(end)
    return {
        "width": WIDTH,
        "height": HEIGHT,
        "axis": axis,
        "paths": [{"model": model, "d": _path(curve, end)} for model, curve in curves],
        "frontier": _path(frontier, end),
        "x_ticks": [{"at": round(_x(tick, end), 1), "text": f"{tick:g}"} for tick in x_ticks],
        "y_ticks": [{"at": round(_y(share), 1), "text": f"{share:.0%}"} for share in (0, 0.25, 0.5, 0.75, 1)],
        "left": _LEFT,
        "right": WIDTH - _RIGHT,
        "bottom": HEIGHT - _BOTTOM,
        "middle": (_LEFT + WIDTH - _RIGHT) / 2,
    }


def _path(curve: Curve, end: float) -> str:
    """Steps: along to the next ε, then down to the next accuracy."""
    step = -(-len(curve.epsilons) // _POINTS)
    parts = [f"M{_x(0, end):.1f} {_y(curve.accuracies[0]):.1f}"]
    last = len(curve.epsilons) - 1
    for k in sorted({*range(step, last + 1, step), last}):
        if curve.epsilons[k] > end:
            break
        parts.append(f"H{_x(curve.epsilons[k], end):.1f}V{_y(curve.accuracies[k]):.1f}")
    return "".join([*parts, f"H{_x(end, end):.1f}"])


def _x(epsilon: float, end: float) -> float:
    return _LEFT + (WIDTH - _LEFT - _RIGHT) * epsilon / end


def _y(share: float) -> float:
    return HEIGHT - _BOTTOM - (HEIGHT - _TOP - _BOTTOM) * share


def _ticks(end: float) -> list[float]:
    """Four to eight round numbers from 0 to the end."""
    power = 10.0 ** math.floor(math.log10(end))
    step = next(unit * power for unit in (0.2, 0.25, 0.5, 1, 2) if end / (unit * power) <= 7)
    return [float(f"{k * step:.6g}") for k in range(int(end / step + 1e-9) + 1)]
