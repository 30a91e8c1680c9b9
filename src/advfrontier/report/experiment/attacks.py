"""The sections about attacks: ensembles, AOI, growth, and the comparison with AutoAttack."""

from __future__ import annotations

from typing import TYPE_CHECKING

from advfrontier.report.experiment.cells import (
    NONE,
    at_least,
    at_most,
    bracket,
    coarse,
    figure,
    fine,
    footnotes,
    markdown_table,
    named_cases,
    points,
    queries,
    spread,
)
from advfrontier.report.numbers import SYMBOLS, tier, whole

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from advfrontier.evaluation.experiment import AoiSummary, Experiment, NormExperiment, RobustTable

_ENSEMBLES = (
    "Queries of base runs, and of all restarts or targets of an attack together. AOI and bound are means over the "
    "training models: no allocation with that budget can pass the bound."
)
_AOI = "AOI in percent against the frontier of the whole pool."
_AOI_BASELINE = (
    " AutoAttack is known at a few radii: its AOI is read off straight lines between them, as in the paper, and in "
    "brackets is what the points prove. Such lines alone shift an AOI by a point or two, so the columns *by lines* "
    "read the tiers off the same lines at the same radii, like for like, and the frontier itself, whose AOI is 100 "
    "otherwise. **Bold**: at least AutoAttack's."
)
_ROBUST = "Robust accuracy in percent."
_ROBUST_BASELINE = " AutoAttack's queries are per sample, on average. **Bold**: at least as strong as AutoAttack."
_TOTALS = {
    "aoi": "AOI at least AutoAttack's",
    "straight": "the same by lines",
    "robust": "at least as strong at the reference radius",
}


def ensembles(experiment: Experiment) -> list[str]:
    """What every tier consists of and reaches."""
    body = [_ENSEMBLES]
    for norm, part in experiment.norms.items():
        tables = part.attacks
        tiers = [entry.tier for entry in tables.tiers]
        paper = list(tables.ensembles[0].paper) if tables.ensembles else []
        rows = [
            [
                f"— {row.group}" if row.group else row.attack,
                *(str(row.queries[t]) if row.queries[t] else NONE for t in tiers),
                *(str(row.paper[t]) if row.paper[t] else NONE for t in paper),
            ]
            for row in tables.ensembles
        ]
        blank = [""] * len(paper)
        rows += [
            ["**total**", *(whole(entry.total) for entry in tables.tiers), *blank],
            ["AOI, training models", *(fine(entry.aoi) for entry in tables.tiers), *blank],
            ["bound", *(fine(entry.bound) for entry in tables.tiers), *blank],
            ["AOI, held-out models", *(fine(entry.held_out) for entry in tables.tiers), *blank],
        ]
        headings = [SYMBOLS[norm], *(tier(t) for t in tiers), *(f"paper {tier(t)}" for t in paper)]
        body.append(markdown_table(headings, rows))
    return body


def aoi(experiment: Experiment) -> list[str]:
    """AOI of every model and tier, with the flags below each table, and over all norms."""
    body = [_AOI + (_AOI_BASELINE if experiment.cases else "")]
    for norm, part in experiment.norms.items():
        body += _aoi_of(norm, part)
    return [*body, *_totals(experiment, "aoi", "straight")]


def _aoi_of(norm: str, part: NormExperiment) -> list[str]:
    tables = part.attacks
    compared = any(row.baseline for row in tables.aoi)
    tiers, paper = list(tables.aoi[0].tiers), list(tables.ensembles[0].paper) if tables.ensembles else []
    lines = tiers if compared else []
    rows = []
    for row in tables.aoi:
        least = row.baseline.value if row.baseline else None
        rows.append(
            [
                row.model,
                row.split,
                *([bracket(row.baseline)] if compared else []),
                *(at_least(row.tiers[t], least) for t in tiers),
                *(at_least(row.paper[t], least) for t in paper),
                *(at_least(row.straight.get(t), least) for t in lines),
                *([fine(row.ceiling)] if compared else []),
            ]
        )
    for summary in tables.aoi_summaries:
        rows += _aoi_summary(summary, tiers, paper, compared=compared)
    headings = [SYMBOLS[norm], "split", *(["AutoAttack"] if compared else []), *(tier(t) for t in tiers)]
    headings += [*(f"paper {tier(t)}" for t in paper), *(f"{tier(t)} by lines" for t in lines)]
    headings += ["frontier by lines"] if compared else []
    return [markdown_table(headings, rows, left=2), *footnotes({row.model: row.flags for row in tables.aoi})]


def _aoi_summary(summary: AoiSummary, tiers: Sequence[int], paper: Sequence[int], *, compared: bool) -> list[list[str]]:
    rows = [
        [
            "*mean*",
            summary.split,
            *([spread(summary.baseline)] if compared else []),
            *(spread(summary.tiers[t]) for t in tiers),
            *(spread(summary.paper[t]) for t in paper),
            *([*(spread(summary.straight.get(t)) for t in tiers), ""] if compared else []),
        ]
    ]
    if summary.compared:
        exact = [f"{summary.matched[t]}/{summary.compared}" for t in tiers]
        straight = [f"{summary.matched_straight[t]}/{summary.compared}" for t in tiers]
        rows.append(["*at least AutoAttack*", summary.split, "", *exact, *([""] * len(paper)), *straight, ""])
    return rows


def _totals(experiment: Experiment, *kinds: str) -> list[str]:
    """Counts over all pairs of a model and a norm."""
    rows = [
        [_TOTALS[found.what], found.split, *(f"{found.matched[t]}/{found.compared}" for t in experiment.budgets)]
        for found in experiment.totals
        if found.what in kinds
    ]
    headings = ["models in all norms", "split", *(tier(t) for t in experiment.budgets)]
    return [markdown_table(headings, rows, left=2)] if rows else []


def growth(experiment: Experiment, figures: Mapping[str, str]) -> list[str]:
    """Mean AOI against the budget."""
    rows = []
    for norm, part in experiment.norms.items():
        found = part.attacks.growth
        for split, values in found.splits.items():
            at = dict(zip(found.queries, values, strict=True))
            rows.append([SYMBOLS[norm], split, *(fine(at[t]) for t in experiment.budgets)])
        if found.gap:
            rows.append([SYMBOLS[norm], "difference", *(fine(found.gap[t]) for t in experiment.budgets)])
    table = markdown_table(["norm", "mean AOI of", *(tier(t) for t in experiment.budgets)], rows, left=2)
    return [*figure(figures, "growth", "mean AOI against queries"), table]


def cases(experiment: Experiment, figures: Mapping[str, str]) -> list[str]:
    """Where the largest tier gains most against AutoAttack, and least."""
    if experiment.cases is None:
        return ["There is no baseline to compare with."]
    last = tier(max(experiment.budgets))
    text = [
        f"{word.capitalize()}: {case.model} ({case.split}) in {SYMBOLS[case.norm]}. {last}'s AOI less AutoAttack's is "
        f"{100 * case.gain:+.2f} points, both by straight lines ({100 * case.exact:+.2f} by all distances of {last})."
        for word, case in named_cases(experiment.cases)
    ]
    return ["\n".join(f"- {line}" for line in text), *figure(figures, "cases", "best and worst case")]


def robust(experiment: Experiment) -> list[str]:
    """Robust accuracy at the reference radii, and over all norms."""
    tables = {norm: part.attacks.robust for norm, part in experiment.norms.items()}
    body = [_robust_of(norm, found, experiment.budgets) for norm, found in tables.items() if found is not None]
    if not body:
        return ["No data set has a reference radius."]
    return [_ROBUST + (_ROBUST_BASELINE if experiment.cases else ""), *body, *_totals(experiment, "robust")]


def _robust_of(norm: str, found: RobustTable, budgets: Sequence[int]) -> str:
    compared = any(row.baseline is not None for row in found.rows)
    rows = []
    for place in dict.fromkeys(row.place for row in found.rows):
        rows += [
            [
                row.model,
                row.split,
                f"{row.epsilon:g}",
                *([coarse(row.baseline), queries(row.baseline_queries)] if compared else []),
                *(at_most(row.tiers[t], row.baseline) for t in budgets),
            ]
            for row in found.rows
            if row.place == place
        ]
        for summary in (each for each in found.summaries if each.place == place):
            about = [summary.split, ", ".join(f"{epsilon:g}" for epsilon in summary.epsilons), "", ""]
            matched = (f"{summary.matched[t]}/{summary.compared}" for t in budgets)
            rows.append(["*at least as strong*", *about, *matched])
            rows.append(["*points below AutoAttack*", *about, *(points(summary.gain[t]) for t in budgets)])
    headings = [SYMBOLS[norm], "split", "ε", *(["AutoAttack", "its queries"] if compared else [])]
    return markdown_table([*headings, *(tier(t) for t in budgets)], rows, left=2)
