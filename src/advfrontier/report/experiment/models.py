"""The sections about models: who they are, DOI, ranks against the radius, crossings, early rejection."""

from __future__ import annotations

from typing import TYPE_CHECKING

from advfrontier.report.experiment.cells import NONE, coarse, figure, footnotes, groups, markdown_table
from advfrontier.report.numbers import SYMBOLS, percent, size, tier

if TYPE_CHECKING:
    from collections.abc import Mapping

    from advfrontier.evaluation.experiment import DoiRow, DoiTable, Experiment, Instability, ModelRow

_PAIRS = 10  # crossings written out

_POOL = (
    "Accuracy is on unperturbed samples, in percent. Ranks are by DOI at the largest tier, among the models of one "
    "data set: a model may be first in one norm and last in another."
)
_DOI = (
    "DOI in percent, and the rank at the largest tier. In brackets: a model whose distances at that tier cannot be "
    "trusted, and why. It is no part of that tier's frontier: the others' DOI there is against one without it."
)
_RANKS = (
    "Ranks by robust accuracy, as the largest tier finds it, at ten radii: nine percentiles of the defence frontier "
    "and the reference."
)
_BASELINE_RANKS = (
    "The same as AutoAttack orders the models, which is what the paper shows: at nine percentiles of the radii it was "
    "run at, as far as it goes on every model, and the reference; between a model's own radii its accuracy is read off "
    "straight lines. The last two columns are the largest tier at these radii."
)


def pool(experiment: Experiment) -> list[str]:
    """The models, one table per data set."""
    if not experiment.models:
        return []
    sets = dict.fromkeys(row.facts.data for row in experiment.models)
    named = any(row.facts.authors for row in experiment.models)
    body = [_POOL]
    for data in sets:
        found = [row for row in experiment.models if row.facts.data == data]
        headings = [data, *(["authors"] if named else []), "source", "trained in", "split", "batch", "accuracy"]
        headings += [f"rank in {SYMBOLS[norm]}" for norm in experiment.norms]
        body.append(
            markdown_table(headings, [_pool_row(row, experiment, named=named) for row in found], left=4 + named)
        )
        body += footnotes({row.facts.model: row.facts.notes for row in found})
    return body


def _pool_row(row: ModelRow, experiment: Experiment, *, named: bool) -> list[str]:
    facts = row.facts
    batch = str(facts.batch)
    if facts.baseline_batch != facts.batch:
        batch += f" (AutoAttack: {facts.baseline_batch})"
    return [
        facts.model,
        *([facts.authors or NONE] if named else []),
        f"`{facts.source}`" if facts.source else NONE,
        ", ".join(SYMBOLS[norm] for norm in facts.trained) or NONE,
        facts.split,
        batch,
        coarse(row.clean),
        *(row.ranks.get(norm, NONE) for norm in experiment.norms),
    ]


def doi(experiment: Experiment) -> list[str]:
    """DOI at every tier."""
    body = [_DOI]
    for title, group in groups(experiment):
        found = group.tables.doi
        if found is None:
            body.append(f"{title}: none, see above.")
            continue
        rows = [
            [row.positions[max(row.positions)], row.model, *(_doi_cell(row, t) for t in experiment.budgets)]
            for row in found.rows
        ]
        body.append(markdown_table([title, "model", *(tier(t) for t in experiment.budgets)], rows, left=2))
        body += footnotes({row.model: _told(row, experiment) for row in found.rows})
        body.append(_between_tiers(title, found))
    return body


def _doi_cell(row: DoiRow, budget: int) -> str:
    if budget not in row.dois:
        return NONE
    value = percent(row.dois[budget])
    return f"({value})" if row.bracketed(budget) else value


def _told(row: DoiRow, experiment: Experiment) -> list[str]:
    """Its flags, each with the tiers it holds at unless it holds at all."""
    told = []
    for flag in dict.fromkeys(flag for flags in row.flags.values() for flag in flags):
        tiers = [budget for budget, flags in row.flags.items() if flag in flags]
        everywhere = len(tiers) == len(experiment.budgets)
        told.append(flag if everywhere else f"{flag} (at {', '.join(tier(budget) for budget in tiers)})")
    return told


def _between_tiers(title: str, found: DoiTable) -> str:
    count, steady = len(found.rows), len(found.steady)
    if found.moved is None:
        return f"In {title} {steady} of {count} models can be trusted at every tier: there is nothing to compare."
    order = "every tier gives the same order" if found.same_order else "the order differs between tiers"
    moves = f"a DOI moves by {100 * found.moved:.1f} points at most"
    if steady == count:
        return f"In {title} {order}; {moves}."
    return (
        f"In {title} {steady} of {count} models can be trusted at every tier. With these alone as the pool, {order}; "
        f"{moves}."
    )


def instability(experiment: Experiment, figures: Mapping[str, str]) -> list[str]:
    """How far models move in rank: by the largest tier, and by AutoAttack."""
    own, baseline = [], []
    for title, group in groups(experiment):
        if group.tables.instability is not None:
            own.append([title, *_moves(group.tables.instability)])
        if group.tables.baseline_instability is not None:
            found = group.tables.baseline_instability
            ε = found.baseline.epsilons
            covered = f"{ε[0]:.3g}–{ε[-1]:.3g}"
            beside = (str(found.tier.by_two), str(found.tier.by_five))
            baseline.append([title, *_moves(found.baseline), covered, *beside])
    headings = ["", "models", "move by 2 or more", "by 5 or more", "most", "ranks"]
    body = [_RANKS, *figure(figures, "instability", "ranks against the radius"), markdown_table(headings, own)]
    if baseline:
        last = tier(max(experiment.budgets))
        headings = ["AutoAttack", *headings[1:], "radii", f"{last}: by 2 or more", f"{last}: by 5 or more"]
        body += [_BASELINE_RANKS, markdown_table(headings, baseline)]
    return body


def _moves(found: Instability) -> list[str]:
    most = max(found.moved, key=lambda model: found.moved[model])
    counts = [str(len(found.ranks)), str(found.by_two), str(found.by_five)]
    return [*counts, most if found.moved[most] else NONE, str(found.moved[most])]


def crossings(experiment: Experiment, figures: Mapping[str, str]) -> list[str]:
    """Pairs of models that change places beyond the reference radius."""
    body = figure(figures, "crossings", "pairs of curves that cross")
    for title, group in groups(experiment):
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


def early(experiment: Experiment, figures: Mapping[str, str]) -> list[str]:
    """What the smallest tier rejects."""
    lines = []
    for title, group in groups(experiment):
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
    return ["\n".join(lines), *figure(figures, "early-rejection", "a model rejected by the smallest tier")]


def curves(figures: Mapping[str, str]) -> list[str]:
    """All curves, which only a figure can show."""
    return figure(figures, "curves", "all robustness curves, coloured by DOI, with the defence frontier")
