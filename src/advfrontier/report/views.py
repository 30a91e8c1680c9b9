"""Drawing functions of results, which `advfrontier.views` calls by their names."""

from __future__ import annotations

from collections.abc import Sequence
from functools import singledispatch
from io import BytesIO
from os import PathLike
from typing import TYPE_CHECKING, Any

import numpy as np
from markupsafe import Markup

from advfrontier.errors import FrontierError, printable
from advfrontier.evaluation.card import AttackCard
from advfrontier.evaluation.evaluation import Evaluation
from advfrontier.evaluation.radii import chosen_radii
from advfrontier.evaluation.samples import sample_table
from advfrontier.evaluation.summary import NormSummary, summarise_all
from advfrontier.evaluation.trace import Traces
from advfrontier.frontier.confidence import curve_margin
from advfrontier.pool import Ensemble, Fork, Raise, Refine
from advfrontier.record import write_file
from advfrontier.report.figures import (
    COLUMN,
    curve_axes,
    draw_band,
    draw_marks,
    draw_steps,
    line_of,
    need_matplotlib,
    norm_formula,
    styled,
)
from advfrontier.report.html import as_html, chart_html, write_report
from advfrontier.report.numbers import percent
from advfrontier.report.plots import curve_chart
from advfrontier.report.render import as_text
from advfrontier.report.summary import summary_tables
from advfrontier.table import Column, Table

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_SHOWN = 20  # runs of a trace and steps of an ensemble that are listed
_PARTS = (0.1, 0.3, 1.0)  # of the queries of a trace, after which its distances are listed


@singledispatch
def tables(result: Any, **options: Any) -> list[Table]:
    """Return the tables of a result.

    Args:
        result: An evaluation, traces or an ensemble.
        options: For an evaluation, `radii`, such as `4/255,8/255`.
    """
    raise TypeError(f"{type(result).__name__} has no table ({options})")


@tables.register
def _(result: Evaluation, *, radii: str | None = None) -> list[Table]:
    return summary_tables(_summaries(result, radii))


@tables.register
def _(result: Traces) -> list[Table]:
    best = result.frontier()
    attacked = (best > 0) & np.isfinite(best)
    nearest = (result.distances[:, -1] <= best) & attacked
    wins = nearest.sum(axis=1).tolist()
    budgets = []
    for part in _PARTS:
        checkpoint = max(0, round(part * result.queries.size) - 1)
        budgets.append(int(result.queries[checkpoint]))
    budgets = sorted(set(budgets))
    medians = [np.median(result.at(budget), axis=1).tolist() for budget in budgets]
    rows = []
    for run in sorted(range(len(result.runs)), key=lambda run: -wins[run]):
        rows.append((result.runs[run], *(median[run] for median in medians), wins[run]))
    columns = (
        Column("run"),
        *(Column(f"median after {budget}", "sizes") for budget in budgets),
        Column("on the frontier", "integer"),
    )
    notes = tuple(f"flag: {flag}" for flag in result.flags)
    return [Table(repr(result).strip("<>"), columns, tuple(rows), notes).head(_SHOWN)]


@tables.register
def _(result: Ensemble) -> list[Table]:
    columns = (Column("from", "count"), Column("to", "count"), Column("step", folds=True))
    rows = []
    for span in result.between(0, result.total):
        rows.append((span.begin, min(span.end, result.total), _step_text(span.step)))
    notes = []
    if result.aoi is not None:
        notes.append(f"AOI {percent(result.aoi)} %")
    if result.bound is not None:
        notes.append(f"no allocation of these queries can pass {percent(result.bound)} %")
    notes += result.flags
    return [Table(repr(result).strip("<>"), columns, tuple(rows), tuple(notes)).head(_SHOWN)]


def _step_text(step: Raise | Refine | Fork) -> str:
    """Return what a step of an ensemble does."""
    if isinstance(step, Raise):
        return f"raise {step.run} to {step.queries} queries"
    if isinstance(step, Refine):
        beyond = f"up to {step.reach:g} times beyond" if step.start == "beyond" else "at"
        return f"refine by {step.run}, {step.queries} queries, starting {beyond} the best point"
    gained = "; ".join(_step_text(each) for each in step.fork.gained)
    otherwise = "; ".join(_step_text(each) for each in step.fork.otherwise)
    return f"where the step before gained: {gained}; otherwise: {otherwise}"


def text(result: Any, **options: Any) -> str:
    """Return the tables of a result as plain text; arguments as of `tables`.

    Args:
        result: An evaluation, traces or an ensemble.
        options: For an evaluation, `radii`, such as `4/255,8/255`.
    """
    return "\n\n".join(map(as_text, tables(result, **options)))


def html(result: Any) -> str:
    """Return what a notebook shows: tables, and of an evaluation its curve.

    Args:
        result: An evaluation, traces or an ensemble. If it cannot be read, the text says why.
    """
    try:
        if not isinstance(result, Evaluation):
            return Markup("\n").join(as_html(table) for table in tables(result))
        summaries = _summaries(result, None)
        parts = [as_html(table) for table in summary_tables(summaries)]
        parts.append(chart_html(curve_chart(summaries, [result.model])))
    except FrontierError as error:
        return Markup("<p>{}: {}</p>").format(printable(repr(result)), str(error))
    return Markup("\n").join(parts)


def _summaries(evaluation: Evaluation, radii: str | None) -> list[NormSummary]:
    return summarise_all([evaluation], radii=radii, gallery=0)


def plot(evaluation: Evaluation, *, ax: Axes | None = None, radii: str | None = None) -> Axes:
    """Draw the curve of an evaluation by matplotlib and return the axes.

    Args:
        evaluation: Finished evaluation.
        ax: Axes to draw into; by default a new figure of pyplot.
        radii: Radii at which lines are drawn, such as `4/255,8/255`, instead of the usual ones.
    """
    need_matplotlib()
    if ax is None:
        from matplotlib import pyplot as plt  # noqa: PLC0415 - an optional extra

        with styled():
            _, ax = plt.subplots(figsize=(4.8, 3.2), layout="constrained")
    drawn = ax.get_legend_handles_labels()[1]  # models that have their colours already
    curve, line = evaluation.curve(), line_of(len(drawn))
    draw_band(ax, curve, curve_margin(len(evaluation.distances)), line)
    draw_steps(ax, curve, label=printable(evaluation.model), **line)
    marks = [(size, label) for label, size in chosen_radii(evaluation, radii)]
    far = ax.get_xlim()[1] if drawn else 0.0
    curve_axes(ax, evaluation.norm, [curve], marks)
    ax.set_xlim(0, max(far, ax.get_xlim()[1]))
    if not drawn:
        draw_marks(ax, marks)
    ax.legend(fontsize=8, frameon=False)
    return ax


def dataframe(evaluation: Evaluation) -> Any:
    """Return a pandas DataFrame with one row per sample.

    Args:
        evaluation: Finished evaluation.
    """
    pd = _pandas()
    table = sample_table(evaluation)
    return pd.DataFrame(table.records(), columns=[column.label for column in table.columns])


def plot_traces(traces: Traces, *, ax: Axes | None = None) -> Axes:
    """Draw the mean distance of every run against queries and return the axes.

    Samples that some run never broke are left out, so that the means are of the same samples.

    Args:
        traces: Traces of one model.
        ax: Axes to draw into; by default a new figure of pyplot.
    """
    need_matplotlib()
    if ax is None:
        from matplotlib import pyplot as plt  # noqa: PLC0415 - an optional extra

        with styled():
            _, ax = plt.subplots(figsize=(4.8, 3.2), layout="constrained")
    broken = np.isfinite(traces.distances[:, -1]).all(axis=0) & ~traces.misclassified
    for place, run in enumerate(traces.runs):
        means = traces.distances[place][:, broken].mean(axis=1)
        ax.plot(traces.queries, means, label=printable(run), **line_of(place))
    frontier = traces.frontier()[broken].mean() if broken.any() else np.nan
    ax.axhline(frontier, color="#1b1f24", linewidth=0.8, linestyle="--", label="frontier")
    ax.set_xlabel("queries per sample")
    ax.set_ylabel(f"mean distance in {norm_formula(traces.norm)}", parse_math=True)
    ax.legend(fontsize=7, frameon=False)
    return ax


def draw_card(card: AttackCard, path: str | PathLike[str]) -> str:
    """Write the figure of an attack's card: its distance beyond the frontier against queries.

    Args:
        card: Results of `attack_card`.
        path: Output file, which ends in .pdf or .png: a path or an address.
    """
    need_matplotlib()
    from matplotlib.figure import Figure  # noqa: PLC0415 - an optional extra

    with styled():
        figure = Figure(figsize=(COLUMN, 2.5), layout="constrained")
        axes = figure.subplots()
        relative = card.relative()
        label: str | None = "runs of the pool"
        for run in card.others:
            shown = 100 * relative[run]
            axes.plot(card.traces.queries, shown, color="#b4bbc2", linewidth=0.7, label=label)
            label = None
        own = 100 * relative[card.attack]
        axes.plot(card.traces.queries, own, label=printable(card.attack), **line_of(0))
        axes.set_xlabel("queries per sample")
        symbol = norm_formula(card.traces.norm)
        axes.set_ylabel(f"{symbol} beyond the frontier (%)", parse_math=True)
        last = max(100 * float(values[-1]) for values in relative.values())
        axes.set_ylim(0, max(1.0, 3 * last))
        axes.legend(loc="upper right")
        content = BytesIO()
        kind = str(path).rpartition(".")[2]
        metadata = {"pdf": {"Creator": "advfrontier", "CreationDate": None}}
        other: dict[str, str | None] = {"Software": "advfrontier"}
        figure.savefig(content, format=kind, dpi=300, metadata=metadata.get(kind, other))
    return write_file(path, content.getvalue(), mark=b"advfrontier")


def traces_dataframe(traces: Traces) -> Any:
    """Return a pandas DataFrame with columns run, queries, sample and distance.

    Args:
        traces: Traces of one model.
    """
    pd = _pandas()
    index = pd.MultiIndex.from_product(
        [traces.runs, traces.queries.tolist(), traces.samples], names=["run", "queries", "sample"]
    )
    return pd.DataFrame({"distance": traces.distances.reshape(-1)}, index=index).reset_index()


def traces_report(traces: Traces, path: str | PathLike[str]) -> str:
    """Write a page with the table of traces and their curves; return its path or address.

    Args:
        traces: Traces of one model.
        path: Output file: a path or an address.
    """
    need_matplotlib()
    from matplotlib.figure import Figure  # noqa: PLC0415 - an optional extra

    with styled():
        figure = Figure(figsize=(6, 4), layout="constrained")
        plot_traces(traces, ax=figure.subplots())
        drawn = BytesIO()
        figure.savefig(drawn, format="svg", metadata={"Creator": "advfrontier", "Date": None})
    svg = drawn.getvalue().decode()
    parts = [as_html(table) for table in tables(traces)]
    parts.append(Markup(svg[svg.index("<svg") :]))  # noqa: S704  # drawn here, from numbers
    title = repr(traces).strip("<>")
    head = f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{title}</title>'
    style = "<style>body{font:15px sans-serif;max-width:60rem;margin:2rem auto}</style>"
    page = f"{head}<meta name=generator content=advfrontier>{style}{Markup('').join(parts)}</html>"
    return write_file(path, page.encode(), mark=b"advfrontier")


def _pandas() -> Any:
    try:
        import pandas as pd  # type: ignore[import-untyped]  # noqa: PLC0415 - an optional extra
    except ImportError as error:
        raise FrontierError(
            "to_dataframe needs pandas, which is not installed: type pip install "
            "'advfrontier[pandas]'"
        ) from error
    return pd


def report(
    evaluations: Sequence[Evaluation], path: str | PathLike[str], *, radii: str | None = None
) -> str:
    """Write the report of the first evaluation's model, with other models beside it.

    Args:
        evaluations: Evaluations of the model and of others.
        path: Output file: a path or an address.
        radii: Radii at which robust accuracy is read, such as `4/255,8/255`, instead of the usual
            ones.
    """
    return write_report(path, summarise_all(evaluations, radii=radii))
