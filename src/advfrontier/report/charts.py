"""Curves as pages draw them: points for plotly, and small SVG pictures that need no plotting library."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from advfrontier.threat.names import SYMBOLS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from advfrontier.evaluation.summary import NormSummary
    from advfrontier.frontier.curve import Curve
    from advfrontier.frontier.ranking import RankTable

_OWN_POINTS, _POOL_POINTS = 2000, 250  # steps drawn of a curve; more would not be seen
_WIDTH, _HEIGHT = 520, 300  # of an SVG picture, and what its axes take on each side
_LEFT, _RIGHT, _TOP, _BOTTOM = 44, 12, 12, 40


def norm_data(
    summary: NormSummary, others: Sequence[NormSummary], *, names: Sequence[str] | None = None
) -> dict[str, Any]:
    """What the charts of one norm are drawn from. A model's place in `names` decides its colour in every norm."""
    curves = [summary.curve, *(other.curve for other in others)]
    places = list(names) if names is not None else [other.model for other in others]
    far = max([curve.falls_to(0.01) for curve in curves] + [1.2 * at.epsilon for at in summary.robust], default=0.0)
    near = min((float(ε) for curve in curves for ε in curve.epsilons[1:2]), default=far)
    found = summary.convergence
    return {
        "norm": summary.norm,
        "symbol": SYMBOLS[summary.norm],
        "own": _model(summary),
        "others": [{**_model(other), "place": places.index(other.model)} for other in others],
        **_pool(summary),
        "radii": [{"label": at.label, "x": short(at.epsilon)} for at in summary.robust],
        "far": short(far or 1.0),
        "near": short(near or 1e-3),
        "queries": {
            "x": list(found.queries),
            "y": [short(area) for area in found.aurec],
            "tiers": list(found.tiers),
            "E": short(summary.E),
        },
    }


def _model(summary: NormSummary) -> dict[str, Any]:
    certified = None if summary.certified is None else points(summary.certified.curve, _OWN_POINTS)
    return {
        "name": summary.model,
        **points(summary.curve, _OWN_POINTS),
        "margin": summary.margin,
        "certified": certified,
    }


def _pool(summary: NormSummary) -> dict[str, Any]:
    """The curves of the reference models and their frontier, where there are any."""
    if summary.standing is None:
        return {"pool": [], "frontier": None}
    table = summary.standing.table
    return {
        "pool": [
            {"name": row.model, **points(table.curves[row.model], _POOL_POINTS), "flagged": row.bracketed}
            for row in table.rows
            if not row.given
        ],
        "frontier": points(table.frontier, _POOL_POINTS),
    }


def points(curve: Curve, limit: int) -> dict[str, list[float]]:
    """At most so many steps of a curve, the first and the last among them."""
    last = len(curve.epsilons) - 1
    step = -(-(last + 1) // limit)
    kept = sorted({*range(0, last + 1, step), last})
    return {"x": [short(curve.epsilons[k]) for k in kept], "y": [short(curve.accuracies[k]) for k in kept]}


def short(value: float) -> float:
    """Six digits: more would not be seen."""
    return float(f"{value:.6g}")


def curves_svg(table: RankTable) -> dict[str, Any]:
    """Paths and ticks of a rank table's curves in the picture's own coordinates, for the template to draw.

    The picture ends where the curves have fallen to 1 %, except those in doubt: one that was never broken has no end.
    """
    trusted = [table.curves[row.model] for row in table.rows if not row.bracketed]
    end = max(curve.falls_to(0.01) for curve in (*trusted, table.frontier)) or 1.0
    return {
        "width": _WIDTH,
        "height": _HEIGHT,
        "axis": f"ε in {SYMBOLS[table.norm]}",
        "paths": [{"model": row.model, "d": _path(table.curves[row.model], end)} for row in table.rows],
        "frontier": _path(table.frontier, end),
        "x_ticks": [{"at": round(_x(tick, end), 1), "text": f"{tick:g}"} for tick in _ticks(end)],
        "y_ticks": [{"at": round(_y(share), 1), "text": f"{share:.0%}"} for share in (0, 0.25, 0.5, 0.75, 1)],
        "left": _LEFT,
        "right": _WIDTH - _RIGHT,
        "bottom": _HEIGHT - _BOTTOM,
        "middle": (_LEFT + _WIDTH - _RIGHT) / 2,
    }


def _path(curve: Curve, end: float) -> str:
    """Steps: along to the next ε, then down to the next accuracy."""
    drawn = points(curve, _POOL_POINTS)
    steps = [(x, y) for x, y in zip(drawn["x"], drawn["y"], strict=True) if 0 < x <= end]
    down = "".join(f"H{_x(x, end):.1f}V{_y(y):.1f}" for x, y in steps)
    return f"M{_x(0, end):.1f} {_y(drawn['y'][0]):.1f}{down}H{_x(end, end):.1f}"


def _x(epsilon: float, end: float) -> float:
    return _LEFT + (_WIDTH - _LEFT - _RIGHT) * epsilon / end


def _y(share: float) -> float:
    return _HEIGHT - _BOTTOM - (_HEIGHT - _TOP - _BOTTOM) * share


def _ticks(end: float) -> list[float]:
    """Four to eight round numbers from 0 to the end."""
    power = 10.0 ** math.floor(math.log10(end))
    step = next(unit * power for unit in (0.2, 0.25, 0.5, 1, 2) if end / (unit * power) <= 7)
    return [float(f"{k * step:.6g}") for k in range(int(end / step + 1e-9) + 1)]
