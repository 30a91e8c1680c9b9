"""What results show of themselves: `advfrontier.views` calls these functions by their names."""

from __future__ import annotations

from collections.abc import Sequence
from functools import singledispatch
from os import PathLike
from typing import TYPE_CHECKING, Any

import numpy as np
from markupsafe import Markup

from advfrontier.errors import FrontierError
from advfrontier.evaluation.evaluation import Evaluation
from advfrontier.evaluation.radii import chosen_radii
from advfrontier.evaluation.samples import sample_table
from advfrontier.evaluation.summary import summarise_all
from advfrontier.evaluation.trace import Traces
from advfrontier.frontier.confidence import curve_margin
from advfrontier.pool import Ensemble, Race
from advfrontier.report.charts import svg_chart
from advfrontier.report.figures import (
    curve_axes,
    draw_marks,
    draw_model,
    line_of,
    need_matplotlib,
    styled,
)
from advfrontier.report.html import as_html, environment, write_report
from advfrontier.report.numbers import percent
from advfrontier.report.render import as_text
from advfrontier.report.summary import summary_tables
from advfrontier.table import Column, Table

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_SHOWN = 20  # runs of a trace that are listed
_PARTS = (0.1, 0.3, 1.0)  # of the queries of a trace, after which its distances are listed


@singledispatch
def tables(result: Any, **options: Any) -> list[Table]:
    """The tables of a result."""
    raise TypeError(f"{type(result).__name__} has no table ({options})")


@tables.register
def _(result: Evaluation, *, radii: str | None = None) -> list[Table]:
    return summary_tables(summarise_all([result], radii=radii, gallery=0))


@tables.register
def _(result: Traces) -> list[Table]:
    best = result.frontier()
    nearest = (result.distances[:, -1] <= best) & (best > 0) & np.isfinite(best)
    at = sorted(
        {int(result.queries[max(0, round(part * result.queries.size) - 1)]) for part in _PARTS}
    )
    columns = (
        Column("run"),
        *(Column(f"median after {queries}", "sizes") for queries in at),
        Column("on the frontier", "integer"),
    )
    medians = [np.median(result.at(queries), axis=1) for queries in at]
    order = sorted(range(len(result.runs)), key=lambda k: -int(nearest[k].sum()))
    rows = [
        (result.runs[k], *(float(each[k]) for each in medians), int(nearest[k].sum()))
        for k in order
    ]
    notes = tuple(f"flag: {flag}" for flag in result.flags)
    return [Table(repr(result).strip("<>"), columns, tuple(rows), notes).head(_SHOWN)]


@tables.register
def _(result: Ensemble) -> list[Table]:
    rows = [(run, queries, queries / result.total) for run, queries in result.queries.items()]
    notes = [f"AOI {percent(result.aoi)} %"] if result.aoi is not None else []
    notes += (
        [f"no allocation of these queries can pass {percent(result.bound)} %"]
        if result.bound is not None
        else []
    )
    columns = Column("run"), Column("queries", "count"), Column("share (%)", "percent")
    return [
        Table(repr(result).strip("<>"), columns, tuple(rows), (*notes, *map(str, result.flags)))
    ]


@tables.register
def _(result: Race) -> list[Table]:
    columns = Column("run"), Column("is raised to", "count")
    title = f"{repr(result).strip('<>')}: each sample leaves out the moves that cannot help there"
    return [Table(title, columns, result.order, result.flags).head(_SHOWN)]


def text(result: Any, **options: Any) -> str:
    """The tables as plain text."""
    return "\n\n".join(map(as_text, tables(result, **options)))


def html(result: Any) -> str:
    """The tables, and of an evaluation the curve, as a notebook shows them; a message where they cannot be read."""
    try:
        shown = [as_html(table) for table in tables(result)]
        if isinstance(result, Evaluation):
            chart = svg_chart(result.norm, {result.model: result.curve()})
            shown.append(environment().get_template("curves.svg.j2").module.picture(chart))  # type: ignore[attr-defined]
    except FrontierError as error:
        return Markup("<p>{}: {}</p>").format(repr(result), str(error))
    return Markup("\n").join(shown)


def plot(evaluation: Evaluation, *, ax: Axes | None = None, radii: str | None = None) -> Axes:
    """The curve of an evaluation in matplotlib's axes, a new figure of pyplot's by default."""
    need_matplotlib()
    if ax is None:
        from matplotlib import pyplot as plt  # noqa: PLC0415 - an optional extra

        with styled():
            _, ax = plt.subplots(figsize=(4.8, 3.2), layout="constrained")
    known = ax.get_legend_handles_labels()[1]  # what is drawn already has its colour
    curve = evaluation.curve()
    draw_model(
        ax, evaluation.model, curve, curve_margin(len(evaluation.distances)), line_of(len(known))
    )
    marks = chosen_radii(evaluation, radii)
    least = max(
        [1.2 * size for _, size in marks] + ([ax.get_xlim()[1]] if known else []), default=0.0
    )
    curve_axes(ax, evaluation.norm, [curve], least=least)
    if not known:
        draw_marks(ax, [(size, label) for label, size in marks], ax.get_xlim()[1])
    ax.legend(fontsize=8, frameon=False)
    return ax


def dataframe(evaluation: Evaluation) -> Any:
    """One row per sample, for pandas."""
    try:
        import pandas as pd  # type: ignore[import-untyped]  # noqa: PLC0415 - an optional extra
    except ImportError as error:
        raise FrontierError(
            "to_dataframe needs pandas, which is not installed: type pip install 'advfrontier[pandas]'"
        ) from error
    table = sample_table(evaluation)
    return pd.DataFrame(table.records(), columns=[column.label for column in table.columns])


def report(
    evaluations: Sequence[Evaluation], path: str | PathLike[str], *, radii: str | None = None
) -> str:
    """Write the report of the first evaluation's model, the others beside it."""
    return write_report(path, summarise_all(evaluations, radii=radii))
