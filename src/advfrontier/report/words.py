"""What was found, in sentences."""

from __future__ import annotations

from collections.abc import Sequence

from advfrontier.evaluation.summary import NormSummary, RobustAt
from advfrontier.pool import tier_label
from advfrontier.report.numbers import percent, size, whole
from advfrontier.threat.names import SYMBOLS

PAPER = "Adversarial Frontiers: Minimum-Norm Attack Ensembles for Robustness Evaluation"
CITATION = f"""@article{{advfrontier,
  title = {{{{{PAPER}}}}},
  author = {{Scionis, Luca and Melis, Luca and Pintor, Maura and Brau, Fabio and Demontis, Ambra and
            Fumera, Giorgio and Roli, Fabio and Biggio, Battista}}
}}"""


def headline(summaries: Sequence[NormSummary]) -> str:
    """The finding in one sentence: clean accuracy, and what is left of it in each norm at the radius people quote."""
    first = summaries[0]
    start = (
        f"{first.model} classifies {_percent(first.clean.estimate)} of {whole(len(first.samples))} samples correctly"
        + (
            f" (those of {SYMBOLS[first.norm]})"
            if len({len(s.samples) for s in summaries}) > 1
            else ""
        )
    )
    if first.misclassified == len(first.samples):
        return f"{start}: there is nothing to attack."
    left = [(s.norm, quoted(s)) for s in summaries if s.robust and s.broken]
    parts = [
        f"{_percent(at.accuracy.estimate)} {'' if k else 'when each may be changed '}by {at.label} in {SYMBOLS[norm]}"
        for k, (norm, at) in enumerate(left)
    ]
    found = f"{start}, and still {_listed(parts)}" if parts else start
    if parts and all(at.customary for _, at in left):
        found += f", the customary {'radius' if len(left) == 1 else 'radii'}"
    unbroken = [SYMBOLS[s.norm] for s in summaries if not s.broken]
    return f"{found}; no run broke any sample in {_listed(unbroken)}." if unbroken else f"{found}."


def sentence(summaries: Sequence[NormSummary]) -> str:
    """How it was evaluated, ready for a paper: one sentence per set of samples, tier and seed."""
    groups: dict[tuple[str, int, int, int, str], list[NormSummary]] = {}
    for s in summaries:
        version = s.versions.get("advfrontier", "")
        groups.setdefault((s.data, len(s.samples), s.tier, s.seed, version), []).append(s)
    sentences = []
    for (data, samples, tier, seed, version), group in groups.items():
        models = list(dict.fromkeys(s.model for s in group))
        norms = list(dict.fromkeys(SYMBOLS[s.norm] for s in group))
        sentences.append(
            f"{_listed(models)} {'was' if len(models) == 1 else 'were'} evaluated with advfrontier {version} "
            f"(Scionis et al., “{PAPER}”) in {_listed(norms)} on {whole(samples)} samples of {data}, with ensembles "
            f"of minimum-norm attacks that spend {tier_label(tier)} queries per sample{passes_text(group)} (seed "
            f"{seed})."
        )
    return "\n".join(sentences)


def quoted(summary: NormSummary) -> RobustAt:
    """Robust accuracy at the customary radius, or at the last of those asked for."""
    return next((at for at in summary.robust if at.customary), summary.robust[-1])


def details(summaries: Sequence[NormSummary]) -> list[str]:
    """The sentences after the headline: how far half of the samples are from an error, ranks, whether it settled."""
    bound = "Every curve is an upper bound: a stronger attack could only lower it."
    averaged = [f"In {SYMBOLS[s.norm]} {text}." for s in summaries if (text := averaged_text(s))]
    return [
        text
        for text in (_medians(summaries), *averaged, _ranks(summaries), settled(summaries), bound)
        if text
    ]


def averaged_text(summary: NormSummary) -> str:
    """How a random model was attacked, and how sure its mistakes are; nothing of any other."""
    found = summary.averaged
    if found is None:
        return ""
    text = f"every query is the mean of {found.eot} passes"
    if found.median != found.median:  # NaN: nothing was found
        return text
    return (
        f"{text}; of {whole(found.passes)} fresh passes, {percent(found.median)} % misclassify the median adversarial "
        f"image and {percent(found.lowest)} % the least sure one"
    )


def passes_text(summaries: Sequence[NormSummary]) -> str:
    """What a query is, where it is more than a pass."""
    found = sorted({s.averaged.eot if s.averaged else 1 for s in summaries})
    return "" if found == [1] else f", each the mean of {' or '.join(map(str, found))} passes"


def settled(summaries: Sequence[NormSummary]) -> str:
    """Whether more queries would lower the curves much further; nothing where no sample was broken."""
    known = [s for s in summaries if s.convergence.settled is not None]
    falling = [s for s in known if not s.convergence.settled]
    if not known:
        return ""
    if not falling:
        most = _percent(max(s.convergence.last_drop for s in known))
        where = "" if len(summaries) == 1 else " in every norm"
        if len(known) < len(summaries):
            where = f" in {_listed([SYMBOLS[s.norm] for s in known])}"
        most = f"at most {most}" if len(known) > 1 else most
        return f"AUREC has settled{where}: the last quarter of the queries lowered it by {most}."
    parts = _listed([f"{SYMBOLS[s.norm]} ({_percent(s.convergence.last_drop)})" for s in falling])
    return (
        f"AUREC was still falling over the last quarter of the queries in {parts}: more queries would lower "
        f"{'that curve' if len(falling) == 1 else 'those curves'} further."
    )


def flagged(summaries: Sequence[NormSummary]) -> list[tuple[str, list[str]]]:
    """Every flag once, with the norms it was raised in."""
    norms: dict[str, list[str]] = {}
    for summary in summaries:
        for text in (*map(str, summary.flags), *(f"DOI: {note}" for note in summary.notes)):
            norms.setdefault(text, []).append(SYMBOLS[summary.norm])
    return list(norms.items())


def _medians(summaries: Sequence[NormSummary]) -> str:
    known = [s for s in summaries if s.median != float("inf")]
    if not known:
        return "In no norm was half of the samples broken."
    parts = [f"{size(s.median)} in {SYMBOLS[s.norm]}" for s in known]
    return f"Half of the samples are misclassified within a distance of {_listed(parts)}."


def _ranks(summaries: Sequence[NormSummary]) -> str:
    standing = [
        (s.norm, s.standing) for s in summaries if s.standing and s.standing.row.rank is not None
    ]
    if not standing:
        return ""
    first = standing[0][1]
    among = (
        f"reference models of {first.table.data}"
        if first.referenced
        else f"{len(first.table.rows)} models here"
    )
    parts = _listed([f"{where.position} in {SYMBOLS[norm]}" for norm, where in standing])
    doubt = any(where.row.bracketed for _, where in standing)
    brackets = " (in brackets: its distances cannot be trusted)" if doubt else ""
    return f"By DOI among the {among} it ranks {parts}{brackets}."


def _percent(share: float) -> str:
    return f"{percent(share)}\u00a0%"  # never a line break between a number and its sign


def _listed(parts: Sequence[str]) -> str:
    """a, b and c."""
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"
