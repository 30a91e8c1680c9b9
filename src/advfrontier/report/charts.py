"""Curves as pages draw them: points for plotly, and small SVG pictures that need no plotting library."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from advfrontier.evaluation.summary import NormSummary
from advfrontier.frontier.curve import Curve
from advfrontier.report.figures import COLOURS, PAGE_DASHES, line_number
from advfrontier.threat.names import SYMBOLS

_OWN_POINTS, _POOL_POINTS = 2000, 250  # steps drawn of a curve; more would not be seen
_WIDTH, _HEIGHT = 520, 380  # of an SVG picture, and what its axes take on each side
_LEFT, _RIGHT, _TOP, _BOTTOM = 48, 12, 12, 44
_LETTERS, _LETTER, _LINE = (
    16,
    10.5,
    18.0,
)  # of a name beside a curve: at most so many, their width and their height


def norm_data(
    summary: NormSummary, others: Sequence[NormSummary], *, names: Sequence[str] | None = None
) -> dict[str, Any]:
    """What the charts of one norm are drawn from. A model's place in `names` decides its colour in every norm."""
    curves = [summary.curve, *(other.curve for other in others)]
    places = list(names) if names is not None else [other.model for other in others]
    far = max(
        [curve.falls_to(0.01) for curve in curves] + [1.2 * at.epsilon for at in summary.robust],
        default=0.0,
    )
    near = min((float(ε) for curve in curves for ε in curve.epsilons[1:2]), default=far)
    found, pool = summary.convergence, summary.standing.table if summary.standing else None
    return {
        "norm": summary.norm,
        "symbol": SYMBOLS[summary.norm],
        "own": _model(summary),
        "others": [
            {**_model(other), "line": line_number(1 + places.index(other.model))}
            for other in others
        ],
        "pool": [
            {
                "name": row.model,
                **points(pool.curves[row.model], _POOL_POINTS),
                "flagged": row.bracketed,
            }
            for row in (pool.rows if pool else ())
            if pool and not row.given
        ],
        "frontier": points(pool.frontier, _POOL_POINTS) if pool else None,
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
    drawn = points(summary.curve, _OWN_POINTS)
    return {"name": summary.model, **drawn, "margin": summary.margin, "certified": certified}


def points(curve: Curve, limit: int) -> dict[str, list[float]]:
    """At most so many steps of a curve, the first and the last among them."""
    count = len(curve.epsilons)
    kept = sorted({*range(0, count, math.ceil(count / limit)), count - 1})
    return {
        "x": [short(curve.epsilons[k]) for k in kept],
        "y": [short(curve.accuracies[k]) for k in kept],
    }


def short(value: float) -> float:
    """Six digits: more would not be seen."""
    return float(f"{value:.6g}")


def line(k: int, *, doubt: bool = False) -> dict[str, str]:
    """How a page draws the k-th model: the style sheet knows it by `look`, a notebook by the other two."""
    colour, dash = line_number(k)
    look = f"k{colour} d{dash}{' doubt' if doubt else ''}"
    return {
        "look": look,
        "colour": COLOURS[colour],
        "dashes": "1 3" if doubt else PAGE_DASHES[dash],
    }


def svg_chart(
    norm: str,
    curves: Mapping[str, Curve],
    *,
    frontier: Curve | None = None,
    doubted: Collection[str] = (),
    names: Sequence[str] = (),
) -> dict[str, Any]:
    """Paths, ticks and labels of curves in the picture's own coordinates, for `curves.svg.j2` to draw.

    The picture ends where the curves have fallen to 1 %, except those in doubt: one that was never broken has no end.
    A model's place in `names`, or among the curves, decides its colour and dashes.
    """
    order = list(dict.fromkeys((*names, *curves)))
    trusted = [curve for model, curve in curves.items() if model not in doubted]
    ending = [*trusted, *([frontier] if frontier else [])] or list(curves.values())
    end = max(curve.falls_to(0.01) for curve in ending) or 1.0
    labels = _labels(curves, end)
    return {
        "width": _WIDTH,
        "height": _HEIGHT,
        "axis": f"ε in {SYMBOLS[norm]}",
        "paths": [
            {"model": model, "d": _path(curve, end), "label": labels.get(model)}
            | line(order.index(model), doubt=model in doubted)
            for model, curve in curves.items()
        ],
        "frontier": _path(frontier, end) if frontier else None,
        "x_ticks": [{"at": round(_x(tick, end), 1), "text": f"{tick:g}"} for tick in _ticks(end)],
        "y_ticks": [
            {"at": round(_y(share), 1), "text": f"{share:.0%}"} for share in (0, 0.25, 0.5, 0.75, 1)
        ],
        "left": _LEFT,
        "right": _WIDTH - _RIGHT,
        "bottom": _HEIGHT - _BOTTOM,
        "middle": (_LEFT + _WIDTH - _RIGHT) / 2,
    }


def _labels(curves: Mapping[str, Curve], end: float) -> dict[str, dict[str, Any]]:
    """A name beside each curve where it runs into no other name and the fewest other curves; none where all is full.

    Room is kept for the letters of a phone, which are the largest.
    """
    taken: list[tuple[float, float, float, float]] = []
    labels = {}
    heights = [k / 40 for k in range(36, 2, -1)]
    for model, curve in curves.items():
        text = model if len(model) <= _LETTERS else f"{model[: _LETTERS - 1]}…"
        wide = _LETTER * len(text)
        found = []
        for share in heights:
            x, y = _x(curve.falls_to(share), end) + 4, _y(share)
            box = (x, y - _LINE / 2, x + wide, y + _LINE / 2)
            free = all(
                box[2] < t[0] or t[2] < box[0] or box[3] < t[1] or t[3] < box[1] for t in taken
            )
            if free and curve.accuracies[0] > share and box[2] <= _WIDTH - 2:
                crossed = sum(
                    x - 4 <= _x(other.falls_to(share), end) <= box[2] for other in curves.values()
                )
                found.append((crossed, abs(share - 0.4), box))
        if found:
            box = min(found)[-1]
            taken.append(box)
            labels[model] = {
                "x": round(box[0], 1),
                "y": round(box[1] + 0.78 * _LINE, 1),
                "text": text,
            }
    return labels


def _path(curve: Curve, end: float) -> str:
    """Steps: along to the next ε, then down to the next accuracy; on to the end of the picture unless that is 0."""
    drawn = points(curve, _POOL_POINTS)
    steps = [
        (x, y) for x, y in zip(drawn["x"], drawn["y"], strict=True) if 0 < x <= short(end)
    ]  # x is short too
    down = "".join(f"H{_x(x, end):.1f}V{_y(y):.1f}" for x, y in steps)
    last = steps[-1][1] if steps else drawn["y"][0]
    return (
        f"M{_x(0, end):.1f} {_y(drawn['y'][0]):.1f}{down}{f'H{_x(end, end):.1f}' if last else ''}"
    )


def _x(epsilon: float, end: float) -> float:
    return _LEFT + (_WIDTH - _LEFT - _RIGHT) * epsilon / end


def _y(share: float) -> float:
    return _HEIGHT - _BOTTOM - (_HEIGHT - _TOP - _BOTTOM) * share


def _ticks(end: float) -> list[float]:
    """Four to eight round numbers from 0 to the end."""
    power = 10.0 ** math.floor(math.log10(end))
    step = next(unit * power for unit in (0.2, 0.25, 0.5, 1, 2) if end / (unit * power) <= 7)
    return [float(f"{k * step:.6g}") for k in range(int(end / step + 1e-9) + 1)]
