"""Charts for the screen: lines in a square of 1000 × 1000 units that a page stretches to its size.

Python draws all lines, marks and ticks; `templates/chart.html.j2` puts them into a page, and
`templates/chart.js` reads values off, zooms and switches lines on and off. Figures for print are
drawn by `figures`.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from advfrontier.evaluation.summary import NormSummary
from advfrontier.frontier.curve import Curve
from advfrontier.frontier.ranking import RankTable
from advfrontier.pool import tier_label
from advfrontier.report.figures import far_end, line_number
from advfrontier.report.numbers import norm_text, percent, size, whole
from advfrontier.report.render import clean

SIDE = 1000.0  # units of a chart's width and of its height
_STEPS, _FEWER_STEPS = 1000, 250  # most steps drawn of a model; of its band and of other models
_TICKS = 6  # at most
_NARROW, _LOW = 280.0, 230.0  # pixels of a chart on a phone, for which labels are placed
_LETTERS, _LETTER, _LINE = 16, 7.0, 16.0  # of a label: most letters; pixels of a letter, of a line
_LABEL_HEIGHTS = [k / 40 for k in range(36, 2, -1)]  # accuracies beside which a name may stand

Form = Literal["size", "share", "gap", "count"]


@dataclass(frozen=True)
class Axis:
    """Values along one side of a chart.

    Args:
        form: How values are read: a size, a share, a difference of shares or a count.
        low: Value at the start.
        high: Value at the end, above `low`.
        log: Whether the axis is logarithmic; `low` is then above 0.
    """

    form: Form
    low: float
    high: float
    log: bool = False

    def place(self, value: float) -> float:
        """Return where a value lies, in units from the start.

        Args:
            value: Value in the unit of the axis.
        """
        if self.log:
            return SIDE * math.log(value / self.low) / math.log(self.high / self.low)
        return SIDE * (value - self.low) / (self.high - self.low)

    @property
    def ticks(self) -> list[tuple[float, str]]:
        """Return round values along the axis: their places in units and their texts."""
        values = _powers(self.low, self.high) if self.log else _round_values(self.low, self.high)
        return [(round(self.place(value), 2), self._text(value)) for value in values]

    def _text(self, value: float) -> str:
        if self.form == "count":
            return tier_label(int(value))
        if self.form == "size":
            return f"{value:g}"
        sign = "+" if self.form == "gap" and value > 0 else ""
        return f"{sign}{100 * value:g} %"


def _round_values(low: float, high: float) -> list[float]:
    """Return at most `_TICKS` + 1 multiples of a round step between two values."""
    power = 10.0 ** math.floor(math.log10(high - low))
    for unit in (0.2, 0.25, 0.5, 1.0, 2.0):
        step = unit * power
        if (high - low) / step <= _TICKS:
            break
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [float(f"{k * step:.6g}") for k in range(first, last + 1)]


def _powers(low: float, high: float) -> list[float]:
    """Return the powers of ten between two values."""
    first, last = math.ceil(math.log10(low) - 1e-9), math.floor(math.log10(high) + 1e-9)
    return [10.0**k for k in range(first, last + 1)]


@dataclass(frozen=True)
class Line:
    """One path of a chart.

    Args:
        kind: Kind of line, which decides its style: `model`, `band`, `certified`, `pool`,
            `frontier`, `lead` or `dots`.
        path: Commands of an SVG path in units: M, H, V, L, h and Z.
        series: Names of the switches that hide it.
        name: Name under which its values are read off; empty if they are not.
        look: Classes of its colour and dashes.
    """

    kind: str
    path: str
    series: str
    name: str = ""
    look: str = ""


@dataclass(frozen=True)
class Mark:
    """Dotted line across a chart with its label on top.

    Args:
        x: Place in units.
        text: Label.
        raised: Whether the label stands one line higher, because it would hide the one before.
    """

    x: float
    text: str
    raised: bool


@dataclass(frozen=True)
class Label:
    """Name of a model beside its curve.

    Args:
        x: Place of its left end, in units.
        y: Place of its middle, in units from the top.
        text: Name, perhaps shortened.
        series: Names of the switches that hide it.
        look: Class of its colour.
    """

    x: float
    y: float
    text: str
    series: str
    look: str


@dataclass(frozen=True)
class Chart:
    """Everything that a page draws of one chart.

    Args:
        norm: Name of the norm of the horizontal axis.
        title: Axis title below the chart.
        text: Description for readers who do not see it.
        x: Values from left to right.
        y: Values from bottom to top.
        lines: Paths, those drawn last on top.
        marks: Dotted lines.
        labels: Names beside curves.
        near: Where a logarithmic horizontal axis would start; 0 if the chart has no such switch.
    """

    norm: str
    title: str
    text: str
    x: Axis
    y: Axis
    lines: list[Line] = field(default_factory=list)
    marks: list[Mark] = field(default_factory=list)
    labels: list[Label] = field(default_factory=list)
    near: float = 0.0


def look(number: int, *, doubt: bool = False) -> str:
    """Return the classes of the lines of a model.

    Args:
        number: Index of the model among those of the page, from 0.
        doubt: Whether its distances cannot be trusted; the line is then dotted.
    """
    colour, dash = line_number(number)
    return f"k{colour} {'doubt' if doubt else f'd{dash}'}"


def curve_chart(summaries: Sequence[NormSummary], names: Sequence[str]) -> Chart:
    """Return robust accuracy against ε: models in their bands, reference models, their frontier.

    Args:
        summaries: Models in one norm; the first is drawn on top.
        names: All models of the page; the index of a model among them decides its colour and
            dashes.
    """
    first = summaries[0]
    curves = [summary.curve for summary in summaries]
    marks = [(at.epsilon, at.label) for at in first.robust]
    x, y = Axis("size", 0.0, far_end(curves, marks)), Axis("share", 0.0, 1.0)
    lines = _reference_lines(first, x, y)
    for summary in reversed(summaries):
        number = names.index(summary.model)
        style, series = look(number), f"m{number}"
        band = _band(summary.curve, summary.margin, x, y)
        drawn = _steps(summary.curve, x, y, _STEPS)
        lines.append(Line("band", band, f"{series} bands", look=style))
        lines.append(Line("model", drawn, series, summary.model, style))
        if summary.certified is not None:
            drawn = _steps(summary.certified.curve, x, y, _STEPS)
            name = f"{summary.model}, certified"
            lines.append(Line("certified", drawn, f"{series} certified", name, style))
    return Chart(
        norm=first.norm,
        title=f"ε in {norm_text(first.norm)}",
        text=" ".join(_curve_text(summary) for summary in summaries),
        x=x,
        y=y,
        lines=lines,
        marks=_marks(marks, x),
        near=_near(curves, x),
    )


def _near(curves: Iterable[Curve], x: Axis) -> float:
    """Return where a logarithmic axis starts: below the first step of all curves."""
    near = x.high / 10
    for curve in curves:
        if curve.epsilons.size > 1:
            near = min(near, float(curve.epsilons[1]))
    return 0.9 * near


def _reference_lines(summary: NormSummary, x: Axis, y: Axis) -> list[Line]:
    """Return the curves of the models a summary is ranked among, and their frontier."""
    if summary.standing is None:
        return []
    table = summary.standing.table
    lines = []
    for row in table.rows:
        if not row.given:
            drawn = _steps(table.curves[row.model], x, y, _FEWER_STEPS)
            name = f"{row.model} (flagged)" if row.bracketed else row.model
            lines.append(Line("pool", drawn, "pool", name, "doubt" if row.bracketed else ""))
    frontier = _steps(table.frontier, x, y, _FEWER_STEPS)
    return [*lines, Line("frontier", frontier, "frontier", "defence frontier")]


def _curve_text(summary: NormSummary) -> str:
    parts = [f"{percent(summary.clean.estimate)} % at 0"]
    parts += [f"{percent(at.accuracy.estimate)} % at {at.label}" for at in summary.robust]
    median = summary.median
    half = "is never reached" if math.isinf(median) else f"is at ε = {size(median)}"
    return (
        f"Robust accuracy of {summary.model} against ε in {norm_text(summary.norm)}: "
        f"{', '.join(parts)}; the median distance {half}."
    )


def queries_chart(summaries: Sequence[NormSummary], names: Sequence[str]) -> Chart | None:
    """Return AUREC against queries, with a mark at each usual budget; None if there is no AUREC.

    Args:
        summaries: Models in one norm; the first is drawn on top.
        names: All models of the page; the index of a model among them decides its colour and
            dashes.
    """
    drawn = [summary for summary in summaries if summary.by_queries.queries]
    if not drawn:
        return None
    tracks = [summary.by_queries for summary in drawn]
    least = min(track.queries[0] for track in tracks)
    longest = max(tracks, key=lambda track: track.queries[-1])
    highest = max(max(track.aurec) for track in tracks)
    x = Axis("count", least, max(1.3 * longest.queries[-1], 10 * least), log=True)
    y = Axis("size", 0.0, 1.05 * highest)
    lines, texts = [], []
    for summary in reversed(drawn):
        track = summary.by_queries
        number = names.index(summary.model)
        style, series = look(number), f"m{number}"
        points = _points(track.queries, track.aurec, x, y)
        dots = _points(track.tiers, track.at_tiers(), x, y)
        lines.append(Line("model", f"M{'L'.join(points)}", series, summary.model, style))
        lines.append(Line("dots", "".join(f"M{dot}h0" for dot in dots), series, look=style))
        texts.append(
            f"AUREC of {summary.model} in {norm_text(summary.norm)} falls from "
            f"{size(track.aurec[0])} after {whole(track.queries[0])} queries to "
            f"{size(track.aurec[-1])} after {whole(track.queries[-1])}."
        )
    return Chart(
        norm=drawn[0].norm,
        title="queries per sample",
        text=" ".join(reversed(texts)),
        x=x,
        y=y,
        lines=lines,
        marks=_marks([(tier, tier_label(tier)) for tier in longest.tiers], x),
    )


def difference_chart(first: NormSummary, second: NormSummary) -> Chart:
    """Return the first curve less the second; where a model leads, the area has its colour.

    Args:
        first: The model that leads above the line.
        second: The model that leads below it, in the same norm.
    """
    epsilons, gaps = first.curve.less(second.curve)
    curves = (first.curve, second.curve)
    most = 1.1 * max(0.02, float(np.abs(gaps).max()))
    x, y = Axis("size", 0.0, far_end(curves)), Axis("gap", -most, most)
    end = f"V{SIDE / 2:g}H0Z"
    above = _step_path(epsilons, np.maximum(gaps, 0), x, y)
    below = _step_path(epsilons, np.minimum(gaps, 0), x, y)
    gap = _step_path(epsilons, gaps, x, y)
    lines = [
        Line("lead", f"{above}{end}", "lead", look="k0"),
        Line("lead", f"{below}{end}", "lead", look="k1"),
        Line("gap", gap, "gap", f"{first.model} less {second.model}"),
    ]
    symbol = norm_text(first.norm)
    return Chart(
        norm=first.norm,
        title=f"ε in {symbol}",
        text=f"Robust accuracy of {first.model} less that of {second.model} against ε in {symbol}.",
        x=x,
        y=y,
        lines=lines,
        near=_near(curves, x),
    )


def board_chart(table: RankTable, names: Sequence[str]) -> Chart:
    """Return the curves of all models of a rank table, each with its name beside it.

    The chart ends where the curves have fallen to 1 %, except those of models in doubt: the curve
    of a model that was never broken has no end.

    Args:
        table: Models in one norm.
        names: All models of the page; the index of a model among them decides its colour and
            dashes.
    """
    ending = [table.frontier]
    for row in table.rows:
        if not row.bracketed:
            ending.append(table.curves[row.model])
    x, y = Axis("size", 0.0, far_end(ending)), Axis("share", 0.0, 1.0)
    frontier = _steps(table.frontier, x, y, _FEWER_STEPS)
    lines = [Line("frontier", frontier, "frontier", "defence frontier")]
    for row in reversed(table.rows):
        number = names.index(row.model)
        drawn = _steps(table.curves[row.model], x, y, _FEWER_STEPS)
        style = look(number, doubt=row.bracketed)
        lines.append(Line("model", drawn, f"m{number}", row.model, style))
    return Chart(
        norm=table.norm,
        title=f"ε in {norm_text(table.norm)}",
        text=f"Robust accuracy against ε in {norm_text(table.norm)}, a curve per model.",
        x=x,
        y=y,
        lines=lines,
        labels=_labels(table.curves, x, names),
    )


def _labels(curves: Mapping[str, Curve], x: Axis, names: Sequence[str]) -> list[Label]:
    """Return a name beside each curve, where it meets no other name and the fewest other curves.

    Curves for which there is no room have no label. Boxes are measured on a phone, where letters
    are largest beside the chart.
    """
    taken: list[tuple[float, float, float, float]] = []
    labels = []
    for model, curve in curves.items():
        shown = clean(model)
        text = shown if len(shown) <= _LETTERS else f"{shown[: _LETTERS - 1]}…"
        width, height = SIDE * _LETTER * len(text) / _NARROW, SIDE * _LINE / _LOW
        best = None
        for share in _LABEL_HEIGHTS:
            low, high = share - height / 2 / SIDE, share + height / 2 / SIDE
            left = x.place(curve.falls_to(low)) + SIDE * 4 / _NARROW
            box = (left, SIDE * (1 - high), left + width, SIDE * (1 - low))
            if curve.accuracies[0] <= share or box[2] > SIDE or _meets(box, taken):
                continue
            crossed = 0
            for other in curves.values():
                crossed += x.place(other.falls_to(low)) >= left and (
                    x.place(other.falls_to(high)) <= left + width
                )
            rating = (crossed, abs(share - 0.4))
            if best is None or rating < best[0]:
                best = (rating, box)
        if best is not None:
            box = best[1]
            taken.append(box)
            number = names.index(model)
            middle = (box[1] + box[3]) / 2
            style = f"k{line_number(number)[0]}"
            labels.append(Label(round(box[0], 1), round(middle, 1), text, f"m{number}", style))
    return labels


def _meets(
    box: tuple[float, float, float, float],
    others: Collection[tuple[float, float, float, float]],
) -> bool:
    """Tell whether a box (left, top, right, bottom) overlaps any other."""
    for other in others:
        beside = box[2] < other[0] or other[2] < box[0]
        apart = box[3] < other[1] or other[3] < box[1]
        if not beside and not apart:
            return True
    return False


def _marks(items: Iterable[tuple[float, str]], x: Axis) -> list[Mark]:
    """Return marks at values; a label that would hide the one before is raised."""
    marks: list[Mark] = []
    end, raised = -SIDE, False
    for value, text in items:
        place = x.place(value)
        half = SIDE * (3.5 * len(text) + 3) / _NARROW
        raised = place - half < end and not raised
        end = place + half
        marks.append(Mark(round(place, 2), text, raised))
    return marks


# Paths


def _steps(curve: Curve, x: Axis, y: Axis, limit: int) -> str:
    """Return the path of a curve with at most about `limit` steps."""
    kept = _thinned(curve, limit)
    return _step_path(curve.epsilons[kept], curve.accuracies[kept], x, y)


def _thinned(curve: Curve, limit: int) -> list[int]:
    """Return the indices of at most `limit` + 1 steps of a curve, with the first and last."""
    count = len(curve.epsilons)
    return sorted({*range(0, count, math.ceil(count / limit)), count - 1})


def _step_path(epsilons: NDArray[np.float64], values: NDArray[np.float64], x: Axis, y: Axis) -> str:
    """Return a path along steps: right to the next ε, then to its value, at last to the end."""
    parts: list[str] = []
    for epsilon, value in zip(epsilons.tolist(), values.tolist(), strict=True):
        if epsilon > x.high:
            break
        height = SIDE - y.place(value)
        start = f"H{_units(x.place(epsilon))}V" if parts else "M0 "
        parts.append(f"{start}{_units(height)}")
    return f"{''.join(parts)}H{SIDE:g}"


def _band(curve: Curve, margin: float, x: Axis, y: Axis) -> str:
    """Return the outline of the band around a curve."""
    kept = _thinned(curve, _FEWER_STEPS)
    epsilons, accuracies = curve.epsilons[kept], curve.accuracies[kept]
    inside = epsilons <= x.high
    epsilons, accuracies = epsilons[inside], accuracies[inside]
    upper = _step_path(epsilons, np.minimum(accuracies + margin, 1), x, y)
    lower = np.maximum(accuracies - margin, 0)
    back = []
    for epsilon, accuracy in zip(epsilons[::-1].tolist(), lower[::-1].tolist(), strict=True):
        back.append(f"V{_units(SIDE - y.place(accuracy))}H{_units(x.place(epsilon))}")
    return f"{upper}{''.join(back)}Z"


def _points(values: Sequence[float], heights: Sequence[float], x: Axis, y: Axis) -> list[str]:
    """Return the places of points as a path has them."""
    points = []
    for value, height in zip(values, heights, strict=True):
        points.append(f"{_units(x.place(value))} {_units(SIDE - y.place(height))}")
    return points


def _units(value: float) -> str:
    """Return a place with two decimals: finer than any screen, and enough to read four digits."""
    return f"{value:.2f}".rstrip("0").rstrip(".")
