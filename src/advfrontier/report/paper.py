"""Everything a paper needs of some records: a table, figures, a sentence and BibTeX, with CSV.

The table has models as rows. It is as wide as asked for: where it would be wider, letters become
smaller, then intervals go into the caption, then names are cut.
"""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from os import PathLike
from typing import Literal

from advfrontier.attacks.autoattack import KnownPoints
from advfrontier.errors import FrontierError, printable
from advfrontier.evaluation.summary import NormSummary
from advfrontier.flags import doubts
from advfrontier.frontier.confidence import Interval
from advfrontier.pool import tier_label
from advfrontier.record import below, write_file
from advfrontier.report.figures import (
    FONTS,
    need_matplotlib,
    norm_formula,
    write_paper_figures,
)
from advfrontier.report.numbers import known, size
from advfrontier.report.render import latex_text
from advfrontier.report.summary import in_order
from advfrontier.report.words import CITATION, listed, models_of, sentence

Baselines = Mapping[tuple[str, str], KnownPoints]  # model and norm to AutoAttack's points
Kind = Literal["clean", "robust", "autoattack", "median", "aurec", "doi"]

COLUMNS: tuple[Kind, ...] = ("clean", "robust", "autoattack", "median", "aurec", "doi")
TEXT_WIDTH = 397.0  # points: the text of NeurIPS and ICML's supplement
_MARK = "advfrontier"
_SIZES = (("small", 9.0), ("footnotesize", 8.0), ("scriptsize", 7.0))  # letters, in points
_GAP = 3.0  # points on both sides of a column
_LETTER = 0.62  # width of a letter over its size: more than the average
_SHORTEST = 10  # letters of a name that is cut


@dataclass(frozen=True)
class Cell:
    """One figure of the table.

    Args:
        value: Value of the figure; NaN where it is unknown.
        text: Printed text of the figure.
        half: Half the 95 % interval as text; empty if there is none.
    """

    value: float
    text: str
    half: str = ""


@dataclass(frozen=True)
class PaperColumn:
    """One column.

    Args:
        norm: Name of the norm; empty for clean accuracy.
        label: Heading, as LaTeX has it.
        name: Heading in the CSV file.
        cells: Model to figure; models without one are left out.
    """

    norm: str
    label: str
    name: str
    cells: Mapping[str, Cell]

    def best(self) -> str:
        """Return the text of the largest figure, which is printed in bold; empty for one row."""
        values = [cell for cell in self.cells.values() if not math.isnan(cell.value)]
        if len(values) < 2:
            return ""
        return max(values, key=lambda cell: cell.value).text


def parse_columns(text: str | None) -> tuple[Kind, ...]:
    """Return the kinds of columns named; raise if one is unknown.

    Args:
        text: Kinds with commas between them; None for clean accuracy, robust accuracy and
            AutoAttack's.
    """
    if text is None:
        return ("clean", "robust", "autoattack")
    names = [part.strip() for part in text.split(",") if part.strip()]
    chosen: list[Kind] = [kind for kind in COLUMNS if kind in names]
    unknown = [name for name in names if name not in COLUMNS]
    if unknown or not chosen:
        raise FrontierError(f"--columns {text}: expected some of {', '.join(COLUMNS)}, with commas")
    return tuple(chosen)


def write_paper(
    folder: str | PathLike[str],
    summaries: Sequence[NormSummary],
    *,
    baselines: Baselines | None = None,
    columns: Sequence[Kind] = ("clean", "robust", "autoattack"),
    width: float = TEXT_WIDTH,
    font: str = "serif",
    data_name: str | None = None,
) -> list[str]:
    """Write the folder of a paper; return its files.

    `paper.tex` is a document that shows all of it. `table.tex` needs booktabs, `sentence.tex` cites
    `advfrontier.bib`. Figures are 3.25, 5.5 and 6.75 inches wide, and every curve has a CSV file.

    Args:
        folder: Output folder: a path or an address.
        summaries: Evaluations of one model or several.
        baselines: AutoAttack's points, by model and norm.
        columns: Kinds of columns, as `parse_columns` returns them.
        width: Width of the table in points.
        font: `serif` or `sans`, of the figures.
        data_name: Name of the data in caption and sentence; by default as it was typed.
    """
    need_matplotlib()
    if font not in FONTS:
        raise FrontierError(f"--font {font}: expected one of {', '.join(FONTS)}")
    if not summaries:
        raise FrontierError("nothing to write: expected at least one evaluation")
    ordered = in_order(summaries)
    if data_name is not None:
        ordered = [replace(summary, data=data_name) for summary in ordered]
    _check_once(ordered)
    models = models_of(summaries)  # as they were named, whatever norms they have
    known_points = dict(baselines or {})
    found = table_columns(ordered, known_points, columns)
    texts = {
        "table.tex": table_tex(ordered, found, width, models),
        "table.csv": table_csv(found, models),
        "sentence.tex": sentence_tex(ordered),
        "advfrontier.bib": f"% written by advfrontier\n{CITATION}\n",
    }
    for norm in dict.fromkeys(summary.norm for summary in ordered):
        group = [summary for summary in ordered if summary.norm == norm]
        texts[f"curve-{norm}.csv"] = curves_csv(group, known_points)
    written = []
    for name, text in texts.items():
        mark = b"model," if name.endswith(".csv") else _MARK.encode()
        written.append(write_file(below(folder, name), text.encode(), mark=mark))
    figures = write_paper_figures(folder, ordered, known_points, font=font)
    document = document_tex(figures)
    written.append(write_file(below(folder, "paper.tex"), document.encode(), mark=_MARK.encode()))
    return [*written, *figures]


def _check_once(summaries: Sequence[NormSummary]) -> None:
    """Raise if a model is there twice in a norm: one of them would be hidden."""
    seen: set[tuple[str, str]] = set()
    for summary in summaries:
        key = (summary.model, summary.norm)
        if key in seen:
            raise FrontierError(
                f"two records are of {printable(summary.model)} in {summary.norm}: name one of "
                "them, or give the models different names (evaluate --name)"
            )
        seen.add(key)


# The table


def table_columns(
    summaries: Sequence[NormSummary], baselines: Baselines, kinds: Sequence[Kind]
) -> list[PaperColumn]:
    """Return the columns of the table, from left to right.

    Args:
        summaries: Evaluations, in the order of the rows.
        baselines: AutoAttack's points, by model and norm.
        kinds: Kinds of columns, as `parse_columns` returns them.
    """
    columns = []
    if "clean" in kinds:
        cells = {summary.model: _share(summary.clean) for summary in reversed(summaries)}
        columns.append(PaperColumn("", "clean", "clean accuracy", cells))
    for norm in dict.fromkeys(summary.norm for summary in summaries):
        group = [summary for summary in summaries if summary.norm == norm]
        columns += _norm_columns(norm, group, baselines, kinds)
    return columns


def _norm_columns(
    norm: str, group: Sequence[NormSummary], baselines: Baselines, kinds: Sequence[Kind]
) -> Iterator[PaperColumn]:
    radii: dict[float, str] = {}
    for summary in group:
        for at in summary.robust:
            radii.setdefault(at.epsilon, at.label)
    for epsilon, label in sorted(radii.items()):
        heading, name = latex_text(label), f"{norm} {label}"
        if "robust" in kinds:
            yield PaperColumn(norm, heading, name, _robust_cells(group, epsilon))
        if "autoattack" in kinds:
            cells = _baseline_cells(group, baselines, epsilon)
            if cells:
                yield PaperColumn(norm, rf"{heading}\,AA", f"{name} AutoAttack", cells)
    others: dict[Kind, tuple[str, Callable[[NormSummary], Cell]]] = {
        "median": (
            "median",
            lambda one: Cell(one.median, size(one.median).replace("∞", r"$\infty$")),
        ),
        "aurec": ("AUREC", _aurec),
        "doi": ("DOI", _doi),
    }
    for kind, (heading, cell) in others.items():
        if kind in kinds:
            cells = {summary.model: cell(summary) for summary in group}
            yield PaperColumn(norm, heading, f"{norm} {heading}", cells)


def _robust_cells(group: Sequence[NormSummary], epsilon: float) -> dict[str, Cell]:
    cells = {}
    for summary in group:
        for at in summary.robust:
            if at.epsilon == epsilon:
                cells[summary.model] = _share(at.accuracy)
    return cells


def _baseline_cells(
    group: Sequence[NormSummary], baselines: Baselines, epsilon: float
) -> dict[str, Cell]:
    cells = {}
    for summary in group:
        points = baselines.get((summary.model, summary.norm))
        found = None if points is None else points.at(epsilon)
        if found is not None:
            cells[summary.model] = Cell(found[0], f"{100 * found[0]:.1f}")
    return cells


def _share(interval: Interval) -> Cell:
    """Return an accuracy in percent with half its interval in whole points, or one decimal."""
    half = 50 * (interval.high - interval.low)
    shown = f"{half:.0f}" if half >= 1 else f"{half:.1f}"
    return Cell(interval.estimate, f"{100 * interval.estimate:.1f}", shown)


def _aurec(summary: NormSummary) -> Cell:
    if not known(summary.aurec.estimate):
        return Cell(math.nan, "--")
    return Cell(summary.aurec.estimate, size(summary.aurec.estimate))


def _doi(summary: NormSummary) -> Cell:
    value = None if summary.standing is None else summary.standing.row.doi.estimate
    return Cell(value, f"{value:.3f}") if known(value) else Cell(math.nan, "--")


def table_tex(
    summaries: Sequence[NormSummary],
    columns: Sequence[PaperColumn],
    width: float,
    models: Sequence[str],
) -> str:
    """Return the table with its caption; it needs booktabs.

    Args:
        summaries: Summaries that the caption describes.
        columns: Columns, as `table_columns` returns them.
        width: Width in points that the table has to fit.
        models: Names of the models, one per row.
    """
    intervals, letters, longest = _layout(models, columns, width)
    rows = []
    for model in models:
        cells = [latex_text(_cut(model, longest))]
        for column in columns:
            cells.append(_cell_tex(column, model, intervals=intervals))
        rows.append(" & ".join(cells) + r" \\")
    cut = [
        f"% {_cut(model, longest)} = {printable(model)}" for model in models if len(model) > longest
    ]
    lines = [
        "% written by advfrontier; needs \\usepackage{booktabs}",
        *cut,
        r"\begin{table}[t]",
        r"\centering",
        rf"\caption{{{_caption(summaries, columns, intervals=intervals)}}}",
        r"\label{tab:robustness}",
        rf"\{letters}\setlength{{\tabcolsep}}{{{_GAP:g}pt}}%",
        rf"\begin{{tabular}}{{l{'r' * len(columns)}}}",
        r"\toprule",
        *_headings(columns),
        r"\midrule",
        *rows,
        r"\bottomrule",
        r"\end{tabular}",
        r"\end{table}",
    ]
    return "\n".join(lines) + "\n"


def _layout(
    models: Sequence[str], columns: Sequence[PaperColumn], width: float
) -> tuple[bool, str, int]:
    """Return whether intervals are printed, the size of letters, and the longest name."""
    for intervals in (True, False):
        for letters, points in _SIZES[: 2 if intervals else 3]:
            figures = _GAP * 2 * (len(columns) + 1)
            for column in columns:
                widest = max(_letters(cell, intervals=intervals) for cell in column.cells.values())
                widest = max(widest, len(column.label.replace(r"\,", "").replace("$", "")))
                figures += _LETTER * points * widest
            left = width - figures
            longest = max(len(model) for model in models)
            if _LETTER * points * longest <= left:
                return intervals, letters, longest
            if not intervals and letters == _SIZES[-1][0]:
                fits = int(left / (_LETTER * points))
                if fits >= min(_SHORTEST, longest):
                    return intervals, letters, fits
    raise FrontierError(
        f"a table of {len(columns)} columns does not fit {width:g} points: expected fewer radii "
        "(--radii), fewer --columns, or a larger --width"
    )


def _letters(cell: Cell, *, intervals: bool) -> float:
    """Return the width of a cell in letters; those of intervals are smaller."""
    half = 0.75 * (len(cell.half) + 2.2) if intervals and cell.half else 0.0
    return len(cell.text.replace(r"$\infty$", "m")) + half


def _cut(name: str, longest: int) -> str:
    shown = printable(name)
    return shown if len(shown) <= longest else f"{shown[: longest - 1]}…"


def _cell_tex(column: PaperColumn, model: str, *, intervals: bool) -> str:
    cell = column.cells.get(model)
    if cell is None:
        return "--"
    text = rf"\textbf{{{cell.text}}}" if cell.text == column.best() else cell.text
    if not intervals or not cell.half:
        return text
    return rf"{text}{{\tiny\,$\pm$\,{cell.half}}}"


def _headings(columns: Sequence[PaperColumn]) -> list[str]:
    """Return the two lines of headings: norms, and what stands below each."""
    spans: list[tuple[str, int]] = []
    for column in columns:
        if spans and spans[-1][0] == column.norm:
            spans[-1] = (column.norm, spans[-1][1] + 1)
        else:
            spans.append((column.norm, 1))
    upper, rules, place = [""], [], 2
    for norm, count in spans:
        upper.append(rf"\multicolumn{{{count}}}{{c}}{{{_formula(norm) if norm else ''}}}")
        if norm:
            rules.append(rf"\cmidrule(lr){{{place}-{place + count - 1}}}")
        place += count
    lower = ["model", *(column.label for column in columns)]
    return [" & ".join(upper) + r" \\", "".join(rules), " & ".join(lower) + r" \\"]


def _formula(norm: str) -> str:
    formula = norm_formula(norm)
    return formula if formula.startswith("$") else latex_text(formula)


def _caption(
    summaries: Sequence[NormSummary],
    columns: Sequence[PaperColumn],
    *,
    intervals: bool,
) -> str:
    """Return what the table shows, on which data, with which settings."""
    counts = sorted({len(summary.samples) for summary in summaries})
    samples = " or ".join(f"{count:,}" for count in counts)
    radii = any(column.cells and column.norm for column in columns)
    parts = [
        "Robust accuracy (\\%) at perturbation sizes $\\varepsilon$" if radii else "Accuracy (\\%)"
    ]
    parts[0] += f" on {samples} images of {latex_text(_data(summaries))}."
    tiers = sorted({tier_label(summary.tier) for summary in summaries})
    ensembles = sorted({printable(summary.ensemble) for summary in summaries})
    named = "" if ensembles == tiers else f" (ensemble {latex_text(listed(ensembles))})"
    version = summaries[0].versions.get("advfrontier", "")
    seeds = listed(sorted({str(summary.seed) for summary in summaries}))
    parts.append(
        f"Ensembles of minimum-norm attacks with {listed(tiers)} queries per image{named}, "
        f"advfrontier {latex_text(version)}~\\cite{{advfrontier}}, seed {seeds}."
    )
    halves: list[str] = []
    for column in columns:
        halves.extend(cell.half for cell in column.cells.values() if cell.half)
    if intervals and halves:
        parts.append("$\\pm$: half of the 95\\,\\% confidence interval over the choice of images.")
    elif halves:
        most = max(halves, key=float)
        parts.append(f"95\\,\\% confidence intervals are at most $\\pm${most} points.")
    if any(column.label.endswith("AA") for column in columns):
        parts.append("AA: AutoAttack.")
    if any(column.best() for column in columns):
        parts.append("Best in bold.")
    flags = [summary for summary in summaries if doubts(summary.flags)]
    if flags:
        doubted = listed([latex_text(model) for model in models_of(flags)])
        parts.append(f"Distances of {doubted} may be too large (see the report's warnings).")
    return " ".join(parts)


def _data(summaries: Sequence[NormSummary]) -> str:
    names = dict.fromkeys(summary.data for summary in summaries)
    return listed([printable(name) for name in names])


# Text and numbers


def table_csv(columns: Sequence[PaperColumn], models: Sequence[str]) -> str:
    """Return the table's figures as CSV: shares from 0 to 1, and half the intervals in percent.

    Args:
        columns: Columns, as `table_columns` returns them.
        models: Names of the models, one per row.
    """
    target = io.StringIO()
    writer = csv.writer(target, lineterminator="\n")
    header = ["model"]
    for column in columns:
        header.append(column.name)
        if any(cell.half for cell in column.cells.values()):
            header.append(f"{column.name} ± %")
    writer.writerow(header)
    for model in models:
        row = [printable(model)]
        for column in columns:
            cell = column.cells.get(model)
            row.append("" if cell is None or math.isnan(cell.value) else repr(float(cell.value)))
            if any(each.half for each in column.cells.values()):
                row.append("" if cell is None else cell.half)
        writer.writerow(row)
    return target.getvalue()


def curves_csv(summaries: Sequence[NormSummary], baselines: Baselines) -> str:
    """Return the curves of a norm: model, source, ε, robust accuracy and its 95 % band.

    Args:
        summaries: Models in one norm.
        baselines: AutoAttack's points, by model and norm.
    """
    target = io.StringIO()
    writer = csv.writer(target, lineterminator="\n")
    writer.writerow(["model", "source", "epsilon", "robust_accuracy", "low", "high"])
    for summary in summaries:
        name = printable(summary.model)
        steps = zip(summary.curve.epsilons.tolist(), summary.curve.accuracies.tolist(), strict=True)
        for epsilon, accuracy in steps:
            low, high = max(0.0, accuracy - summary.margin), min(1.0, accuracy + summary.margin)
            writer.writerow([name, _MARK, epsilon, accuracy, low, high])
        points = baselines.get((summary.model, summary.norm))
        if points is not None:
            for epsilon, accuracy in zip(points.radii, points.accuracies, strict=True):
                writer.writerow([name, "AutoAttack", epsilon, accuracy, "", ""])
    return target.getvalue()


def sentence_tex(summaries: Sequence[NormSummary]) -> str:
    """Return how the models were evaluated, as LaTeX.

    Args:
        summaries: Summaries of any models and norms.
    """
    text = latex_text(sentence(summaries)).replace("“", "``")
    cited = text.replace("”)", r"''~\cite{advfrontier})")
    return f"% written by advfrontier\n{cited}\n"


def document_tex(figures: Sequence[str]) -> str:
    """Return a document that shows the table, the sentence and every figure.

    Args:
        figures: Names of the figures' files.
    """
    lines = [
        "% written by advfrontier: pdflatex paper; bibtex paper; pdflatex paper",
        r"\documentclass{article}",
        r"\usepackage[utf8]{inputenc}",
        r"\usepackage{booktabs,graphicx}",
        r"\begin{document}",
        r"\input{sentence}",
        r"\input{table}",
    ]
    for path in figures:
        name = path.rpartition("/")[2]
        if name.endswith(".pdf"):
            lines.append(
                rf"\begin{{figure}}[p]\centering\includegraphics{{{name[:-4]}}}\end{{figure}}"
            )
    lines += [r"\bibliographystyle{plain}", r"\bibliography{advfrontier}", r"\end{document}"]
    return "\n".join(lines) + "\n"


__all__ = [
    "COLUMNS",
    "TEXT_WIDTH",
    "Baselines",
    "parse_columns",
    "write_paper",
]
