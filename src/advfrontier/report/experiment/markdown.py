"""The results as one Markdown page, in the order of the paper."""

from __future__ import annotations

from typing import TYPE_CHECKING

from advfrontier.evaluation.experiment import SPLITS
from advfrontier.report.numbers import SYMBOLS, percent, size, tier, whole

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from advfrontier.evaluation.experiment import Defences, Experiment, NormExperiment, Spread
    from advfrontier.frontier.baseline import BaselineAOI

_PAIRS = 10  # crossings written out
_NONE = "–"

_ENSEMBLES = (
    "Queries of base runs, and of all restarts or targets of an attack together. AOI and bound are means over the "
    "training models: no allocation with that budget can pass the bound."
)
_AOI = "AOI in percent against the frontier of the whole pool."
_AOI_BASELINE = (
    " AutoAttack's is read off straight lines between the radii it was run at; in brackets is what those points prove. "
    "**Bold**: at least AutoAttack's."
)
_ROBUST = "Robust accuracy in percent."
_ROBUST_BASELINE = " AutoAttack's queries are per sample, on average. **Bold**: at least as strong as AutoAttack."
_RANKS = (
    "Ranks by robust accuracy, as the largest tier finds it, at ten radii: nine percentiles of the defence frontier "
    "and the reference."
)


def results_markdown(experiment: Experiment, *, figures: Mapping[str, str] | None = None) -> str:
    """The page. `figures` are files by name; None says that they could not be drawn."""
    shown = figures or {}
    parts = [f"# Results of {experiment.name}", _opening(experiment, drawn=figures is not None)]
    for heading, body in (
        ("Ensembles", _ensembles(experiment)),
        ("Attack optimality (AOI)", _aoi(experiment)),
        ("AOI against the query budget", _growth(experiment, shown)),
        ("Best and worst case against AutoAttack", _cases(experiment, shown)),
        ("Robust accuracy at the reference radius", _robust(experiment)),
        ("Curves that cross beyond the reference radius", _crossings(experiment, shown)),
        ("Ranks depend on the radius", _instability(experiment, shown)),
        ("Models by DOI", _doi(experiment)),
        ("Robustness curves and the defence frontier", _curves(shown)),
        ("Rejecting a model early", _early(experiment, shown)),
    ):
        if body:
            parts += [f"## {heading}", *body]
    return "\n\n".join(parts) + "\n"


def _opening(experiment: Experiment, *, drawn: bool) -> str:
    lines = []
    for norm, part in experiment.norms.items():
        counts = {split: sum(s.split == split for s in part.subjects) for split in SPLITS}
        samples = ", ".join(f"{len(group.subjects[0].samples)} of {data}" for data, group in part.defences.items())
        models = f"{counts['train']} training and {counts['held-out']} held-out models"
        lines.append(f"- {SYMBOLS[norm]}: {models}, samples: {samples}")
        lines += [f"  - {note}" for note in part.notes]
        lines += [f"  - {data}: {note}" for data, group in part.defences.items() for note in group.tables.notes]
    if not drawn:
        lines.append("- no figures: matplotlib is not installed; type `pip install 'advfrontier[figures]'`")
    if experiment.failures:
        lines.append(f"- {len(experiment.failures)} parts failed and are missing below:")
        lines += [f"  - {failure}" for failure in experiment.failures]
    return "\n".join(lines)


def _ensembles(experiment: Experiment) -> list[str]:
    body = [_ENSEMBLES]
    for norm, part in experiment.norms.items():
        tables = part.attacks
        tiers = [entry.tier for entry in tables.tiers]
        paper = list(tables.ensembles[0].paper) if tables.ensembles else []
        rows = [
            [
                f"— {row.group}" if row.group else row.attack,
                *(str(row.queries[t]) if row.queries[t] else _NONE for t in tiers),
                *(str(row.paper[t]) if row.paper[t] else _NONE for t in paper),
            ]
            for row in tables.ensembles
        ]
        blank = [""] * len(paper)
        rows += [
            ["**total**", *(whole(entry.total) for entry in tables.tiers), *blank],
            ["AOI, training models", *(_percent(entry.aoi) for entry in tables.tiers), *blank],
            ["bound", *(_percent(entry.bound) for entry in tables.tiers), *blank],
            ["AOI, held-out models", *(_percent(entry.held_out) for entry in tables.tiers), *blank],
        ]
        headings = [SYMBOLS[norm], *(tier(t) for t in tiers), *(f"paper {tier(t)}" for t in paper)]
        body.append(markdown_table(headings, rows))
    return body


def _aoi(experiment: Experiment) -> list[str]:
    body = [_AOI + (_AOI_BASELINE if experiment.cases else "")]
    for norm, part in experiment.norms.items():
        tables = part.attacks
        with_baseline = any(row.baseline for row in tables.aoi)
        tiers, paper = list(tables.aoi[0].tiers), list(tables.ensembles[0].paper) if tables.ensembles else []
        rows = []
        for row in tables.aoi:
            known = row.baseline
            least = None if known is None else known.value
            rows.append(
                [
                    row.model,
                    row.split,
                    *([_bracket(known) if known else _NONE] if with_baseline else []),
                    *(_at_least(row.tiers[t], least) for t in tiers),
                    *(_at_least(row.paper[t], least) for t in paper),
                ]
            )
        for summary in tables.aoi_summaries:
            rows.append(
                [
                    "*mean*",
                    summary.split,
                    *([_spread(summary.baseline) if summary.baseline else _NONE] if with_baseline else []),
                    *(_spread(summary.tiers[t]) for t in tiers),
                    *(_spread(summary.paper[t]) for t in paper),
                ]
            )
            if summary.compared:
                matched = [f"{summary.matched[t]}/{summary.compared}" for t in tiers]
                rows.append(["*at least AutoAttack*", summary.split, "", *matched, *([""] * len(paper))])
        headings = [SYMBOLS[norm], "split", *(["AutoAttack"] if with_baseline else []), *(tier(t) for t in tiers)]
        body.append(markdown_table([*headings, *(f"paper {tier(t)}" for t in paper)], rows, left=2))
    return body


def _growth(experiment: Experiment, figures: Mapping[str, str]) -> list[str]:
    rows = []
    for norm, part in experiment.norms.items():
        found = part.attacks.growth
        for split, values in found.splits.items():
            at = dict(zip(found.queries, values, strict=True))
            rows.append([SYMBOLS[norm], split, *(_percent(at[t]) for t in experiment.budgets)])
        if found.gap:
            rows.append([SYMBOLS[norm], "difference", *(_percent(found.gap[t]) for t in experiment.budgets)])
    table = markdown_table(["norm", "mean AOI of", *(tier(t) for t in experiment.budgets)], rows, left=2)
    return [*_figure(figures, "growth", "mean AOI against queries"), table]


def _cases(experiment: Experiment, figures: Mapping[str, str]) -> list[str]:
    if experiment.cases is None:
        return ["There is no baseline to compare with."]
    last = tier(max(experiment.budgets))
    text = [
        f"{word}: {case.model} ({case.split}) in {SYMBOLS[case.norm]}. The AOI of {last} less AutoAttack's is "
        f"{100 * case.gain:+.2f} points."
        for word, case in zip(("Best", "Worst"), experiment.cases, strict=True)
    ]
    return ["\n".join(f"- {line}" for line in text), *_figure(figures, "cases", "best and worst case")]


def _robust(experiment: Experiment) -> list[str]:
    body = []
    for norm, part in experiment.norms.items():
        found = part.attacks.robust
        if found is None:
            continue
        with_baseline = any(row.baseline is not None for row in found.rows)
        rows = [
            [
                row.model,
                row.split,
                f"{row.epsilon:g}",
                *([_share(row.baseline), _queries(row.baseline_queries)] if with_baseline else []),
                *(_at_most(row.tiers[t], row.baseline) for t in experiment.budgets),
            ]
            for row in found.rows
        ]
        for split, compared in found.compared.items():
            if compared:
                matched = [f"{found.matched[split][t]}/{compared}" for t in experiment.budgets]
                gains = [_points(found.gain[split][t]) for t in experiment.budgets]
                rows += [["*at least as strong*", split, "", "", "", *matched]]
                rows += [["*points below AutoAttack*", split, "", "", "", *gains]]
        headings = [SYMBOLS[norm], "split", "ε", *(["AutoAttack", "its queries"] if with_baseline else [])]
        body.append(markdown_table([*headings, *(tier(t) for t in experiment.budgets)], rows, left=2))
    if not body:
        return ["No data set has a reference radius."]
    return [_ROBUST + (_ROBUST_BASELINE if experiment.cases else ""), *body]


def _doi(experiment: Experiment) -> list[str]:
    body = []
    for title, group in _groups(experiment):
        found = group.tables.doi
        if found is None:
            body.append(f"{title}: none, see above.")
            continue
        flagged = any(row.flags for row in found.rows)
        rows = [
            [
                row.positions[max(row.positions)],
                row.model,
                *(percent(row.dois[t]) for t in experiment.budgets),
                *(["; ".join(row.flags)] if flagged else []),
            ]
            for row in found.rows
        ]
        order = "every tier gives the same order" if found.same_order else "the order differs between tiers"
        headings = [title, "model", *(tier(t) for t in experiment.budgets), *(["flags"] if flagged else [])]
        body.append(markdown_table(headings, rows, left=2))
        body.append(f"In {title} {order}; a DOI moves by {100 * found.moved:.1f} points at most.")
    return ["DOI in percent at every tier. In brackets: models whose distances cannot be trusted, and why.", *body]


def _instability(experiment: Experiment, figures: Mapping[str, str]) -> list[str]:
    rows = []
    for title, group in _groups(experiment):
        found = group.tables.instability
        if found is not None:
            most = max(found.moved, key=lambda model: found.moved[model])
            counts = (len(found.ranks), found.by_two, found.by_five)
            rows.append([title, *(str(count) for count in counts), most, str(found.moved[most])])
    headings = ["", "models", "move by 2 or more", "by 5 or more", "most", "ranks"]
    return [_RANKS, *_figure(figures, "instability", "ranks against the radius"), markdown_table(headings, rows)]


def _crossings(experiment: Experiment, figures: Mapping[str, str]) -> list[str]:
    body = _figure(figures, "crossings", "pairs of curves that cross")
    for title, group in _groups(experiment):
        found = group.tables.crossings
        if found is None:
            continue
        text = f"{title}: {len(found.reversals)} of {found.pairs} pairs change places beyond ε = {found.reference:g}"
        if found.reversals:
            text += (
                f", {found.beyond_margin} of them by more than the {percent(found.margin)} points by which other "
                "samples may shift a curve"
            )
        body.append(f"{text}.")
        rows = [
            [entry.leader, entry.overtaken_by, size(entry.epsilon), percent(entry.lead)]
            for entry in found.reversals[:_PAIRS]
        ]
        if rows:
            headings = ["ahead at the reference", "overtaken by", "from ε on", "lead in points"]
            body.append(markdown_table(headings, rows, left=2))
    return body


def _early(experiment: Experiment, figures: Mapping[str, str]) -> list[str]:
    lines = []
    for title, group in _groups(experiment):
        found = group.tables.early_rejection
        if found is None:
            lines.append(f"- {title}: the smallest tier rejects no model against another.")
            continue
        first, last = tier(found.tier), tier(found.largest)
        lines.append(
            f"- {title}: {found.candidate} at {first} lies below {found.reference} at {last} everywhere (AUREC "
            f"{size(found.aurec[1])} against {size(found.aurec[0])}): rejected. Of the {found.pairs} pairs in which "
            f"one curve lies below the other at {last}, {found.decided} are decided by {first} for the lower one."
        )
    return ["\n".join(lines), *_figure(figures, "early-rejection", "a model rejected by the smallest tier")]


def _curves(figures: Mapping[str, str]) -> list[str]:
    return _figure(figures, "curves", "all robustness curves, coloured by DOI, with the defence frontier")


def _groups(experiment: Experiment) -> Iterator[tuple[str, Defences]]:
    """The models of each data set in each norm, with a title that names the data set only where there are several."""
    for norm, part in experiment.norms.items():
        for data, group in part.defences.items():
            yield title_of(norm, data, part), group


def title_of(norm: str, data: str, part: NormExperiment) -> str:
    """`ℓ2`, or `ℓ2, cifar10` where there are several data sets."""
    return SYMBOLS[norm] if len(part.defences) == 1 else f"{SYMBOLS[norm]}, {data}"


def markdown_table(headings: Sequence[str], rows: Sequence[Sequence[str]], *, left: int = 1) -> str:
    """A table, its first columns to the left and the others to the right."""
    lines = [headings, [":--" if k < left else "--:" for k in range(len(headings))], *rows]
    return "\n".join(f"| {' | '.join(cell.replace('|', '/') for cell in line)} |" for line in lines)


def _figure(figures: Mapping[str, str], name: str, text: str) -> list[str]:
    return [f"![{text}]({figures[name]})"] if name in figures else []


def _percent(share: float | None) -> str:
    return _NONE if share is None else f"{100 * share:.2f}"


def _share(share: float | None) -> str:
    return _NONE if share is None else percent(share)


def _queries(count: float | None) -> str:
    return _NONE if count is None else whole(count)


def _spread(found: Spread) -> str:
    return f"{_percent(found.mean)} ± {_percent(found.deviation)}"


def _points(found: Spread) -> str:
    return f"{100 * found.mean:+.1f} ± {100 * found.deviation:.1f}"


def _bracket(found: BaselineAOI) -> str:
    return f"{_percent(found.value)} [{_percent(found.low)}–{_percent(found.high)}]"


def _at_least(value: float, least: float | None) -> str:
    return f"**{_percent(value)}**" if least is not None and value >= least else _percent(value)


def _at_most(value: float, most: float | None) -> str:
    return f"**{percent(value)}**" if most is not None and value <= most + 1e-9 else percent(value)
