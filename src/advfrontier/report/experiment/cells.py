"""Cells, tables and titles of the Markdown page."""

from __future__ import annotations

from typing import TYPE_CHECKING

from advfrontier.report.numbers import SYMBOLS, percent, whole

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from advfrontier.evaluation.experiment import Case, Defences, Experiment, NormExperiment, Spread
    from advfrontier.frontier.baseline import BaselineAOI

NONE = "–"


def markdown_table(headings: Sequence[str], rows: Sequence[Sequence[str]], *, left: int = 1) -> str:
    """A table, its first columns to the left and the others to the right."""
    lines = [headings, [":--" if k < left else "--:" for k in range(len(headings))], *rows]
    return "\n".join(f"| {' | '.join(cell.replace('|', '/') for cell in line)} |" for line in lines)


def footnotes(notes: Mapping[str, Sequence[str]]) -> list[str]:
    """What is to be known about some rows, as a list below their table; nothing if there is nothing."""
    lines = [f"- {name}: {'; '.join(told)}" for name, told in notes.items() if told]
    return ["\n".join(lines)] if lines else []


def figure(figures: Mapping[str, str], name: str, text: str) -> list[str]:
    """A figure, if it was drawn."""
    return [f"![{text}]({figures[name]})"] if name in figures else []


def named_cases(found: tuple[Case, Case]) -> list[tuple[str, Case]]:
    """Best and worst, or the only one."""
    best, worst = found
    return [("only", best)] if best == worst else [("best", best), ("worst", worst)]


def groups(experiment: Experiment) -> Iterator[tuple[str, Defences]]:
    """The models of each data set in each norm, with a title that names the data set only where there are several."""
    for norm, part in experiment.norms.items():
        for data, group in part.defences.items():
            yield title_of(norm, data, part), group


def title_of(norm: str, data: str, part: NormExperiment) -> str:
    """`ℓ2`, or `ℓ2, cifar10` where there are several data sets."""
    return SYMBOLS[norm] if len(part.defences) == 1 else f"{SYMBOLS[norm]}, {data}"


def fine(share: float | None) -> str:
    """In percent, two decimals."""
    return NONE if share is None else f"{100 * share:.2f}"


def coarse(share: float | None) -> str:
    """In percent, one decimal."""
    return NONE if share is None else percent(share)


def queries(count: float | None) -> str:
    """A number of queries."""
    return NONE if count is None else whole(count)


def spread(found: Spread | None) -> str:
    """Mean and deviation."""
    return NONE if found is None else f"{fine(found.mean)} ± {fine(found.deviation)}"


def points(found: Spread) -> str:
    """Mean and deviation of a difference."""
    return f"{100 * found.mean:+.1f} ± {100 * found.deviation:.1f}"


def bracket(found: BaselineAOI | None) -> str:
    """The value and what the known points prove."""
    return NONE if found is None else f"{fine(found.value)} [{fine(found.low)}–{fine(found.high)}]"


def at_least(value: float | None, least: float | None) -> str:
    """Bold if it is."""
    reached = value is not None and least is not None and value >= least
    return f"**{fine(value)}**" if reached else fine(value)


def at_most(value: float, most: float | None) -> str:
    """Bold if it is."""
    return f"**{percent(value)}**" if most is not None and value <= most + 1e-9 else percent(value)
