"""Findings as sentences."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from advfrontier.evaluation.further import Further
from advfrontier.evaluation.summary import NormSummary, RobustAt
from advfrontier.frontier.confidence import Interval
from advfrontier.pool import tier_label
from advfrontier.report.numbers import distance, norm_text, percent, whole

PAPER = "Adversarial Frontiers: Minimum-Norm Attack Ensembles for Robustness Evaluation"
CITATION = f"""@misc{{advfrontier,
  title = {{{{{PAPER}}}}},
  author = {{Scionis, Luca and Melis, Luca and Pintor, Maura and Brau, Fabio and Demontis, Ambra and
            Fumera, Giorgio and Roli, Fabio and Biggio, Battista}},
  year = {{2026}},
  howpublished = {{adversarial-frontier.github.io}}
}}"""


def headline(summaries: Sequence[NormSummary]) -> str:
    """Return the finding in one sentence: clean accuracy and robust accuracy per norm.

    Args:
        summaries: One model, one entry per norm.
    """
    first = summaries[0]
    samples = len(first.samples)
    start = (
        f"{first.model} classifies {_percent(first.clean.estimate)} of {whole(samples)} samples "
        "correctly"
    )
    if len({len(summary.samples) for summary in summaries}) > 1:
        start += f" (the samples of {norm_text(first.norm)})"
    if first.misclassified == samples:
        return f"{start}: there is nothing to attack."
    parts: list[str] = []
    radii: list[RobustAt] = []
    unbroken: list[str] = []
    for summary in summaries:
        symbol = norm_text(summary.norm)
        if not summary.broken:
            unbroken.append(symbol)
        elif summary.robust:
            at = quoted(summary)
            radii.append(at)
            when = "" if parts else "when each may be changed "
            parts.append(f"{_percent(at.accuracy.estimate)} {when}by {at.label} in {symbol}")
    text = f"{start}, and still {listed(parts)}" if parts else start
    if parts and all(at.customary for at in radii):
        text += f", the customary {'radius' if len(parts) == 1 else 'radii'}"
    if unbroken:
        text += f"; no run broke any sample in {listed(unbroken)}"
    return f"{text}."


def quoted(summary: NormSummary) -> RobustAt:
    """Return robust accuracy at the customary radius, or at the last one that was asked for.

    Args:
        summary: Summary of one evaluation.
    """
    for at in summary.robust:
        if at.customary:
            return at
    return summary.robust[-1]


def details(summaries: Sequence[NormSummary]) -> list[str]:
    """Return the sentences after the headline, the last of them on how to read the curves.

    Args:
        summaries: One model, one entry per norm.
    """
    sentences = [_medians(summaries)]
    for summary in summaries:
        averaged = averaged_text(summary)
        if averaged:
            sentences.append(f"In {norm_text(summary.norm)} {averaged}.")
    ranks = _ranks(summaries)
    if ranks:
        sentences.append(ranks)
    return [
        *sentences,
        *_further_sentences(summaries),
        "Every curve is an upper bound: a stronger attack could only lower it.",
    ]


def averaged_text(summary: NormSummary) -> str:
    """Return how a random model was attacked and how sure its mistakes are.

    Args:
        summary: An evaluation. The text is empty unless its queries were averaged (EOT).
    """
    averaged = summary.averaged
    if averaged is None:
        return ""
    text = f"every query is the mean of {averaged.eot} passes"
    if averaged.median != averaged.median:  # NaN: no adversarial image was found
        return text
    return (
        f"{text}; of {whole(averaged.passes)} fresh passes, {percent(averaged.median)} % "
        f"misclassify the median adversarial image and {percent(averaged.lowest)} % the least "
        "sure one"
    )


def further_text(summary: NormSummary) -> str:
    """Return what further queries are expected to change, with the source of the expectation.

    Args:
        summary: An evaluation. The text is empty where nothing was broken, and where nothing is
            known about further queries and 1000 queries or more were spent.
    """
    if not summary.broken:
        return ""
    start = _first_look(summary)
    if summary.further is None:
        return f"{start}how much further queries lower them is not known" if start else ""
    return f"{start}{_expectation(summary.further, _lowered(summary.further))}"


def _further_sentences(summaries: Sequence[NormSummary]) -> list[str]:
    """Return what further queries change; norms whose expectations have one source share them."""
    groups: dict[tuple[object, ...], list[tuple[str, Further]]] = {}
    sentences = []
    for summary in summaries:
        norm, further = norm_text(summary.norm), summary.further
        if further is not None and summary.broken:
            source = (further.queries, further.models, further.data)
            groups.setdefault((_first_look(summary), *source), []).append((norm, further))
        elif further_text(summary):
            sentences.append(f"In {norm}, {further_text(summary)}.")
    for (start, *_), members in groups.items():
        lowered = "; ".join(f"{_lowered(further)} in {norm}" for norm, further in members)
        text = f"{start}{_expectation(members[0][1], lowered)}"
        sentences.append(f"{text[0].upper()}{text[1:]}.")
    return sentences


def _first_look(summary: NormSummary) -> str:
    """Return the beginning of a sentence on distances that are first estimates, or nothing."""
    if not summary.first_look:
        return ""
    return f"distances after {whole(summary.tier)} queries are first estimates: "


def _lowered(further: Further) -> str:
    """Return by how much further queries are expected to lower AUREC and the mean distance."""
    area, mean = _share_interval(further.aurec), _share_interval(further.distance)
    if area == mean:
        return f"AUREC and the mean distance by {area}"
    return f"AUREC by {area} and the mean distance by {mean}"


def _expectation(further: Further, lowered: str) -> str:
    """Return an expectation with its source."""
    return (
        f"queries up to {tier_label(further.queries)} are expected to lower {lowered} "
        f"(median and 90 % interval of {further.models} embedded models on {further.data})"
    )


def _share_interval(share: Interval) -> str:
    """Return a share as `1.2 % (0.3–2.5 %)`."""
    median, low, high = map(_few_digits, (share.estimate, share.low, share.high))
    return f"{median} % ({low}–{high} %)"


def _few_digits(share: float) -> str:
    """Return a share in percent; the smaller it is, the more decimals it has, two at most."""
    value = 100 * share
    decimals = 0 if value >= 10 else 1 if value >= 1 else 2
    return f"{value:.{decimals}f}"


def passes_text(summaries: Sequence[NormSummary]) -> str:
    """Return how many passes a query is the mean of; empty where each query is one pass.

    Args:
        summaries: Summaries of any models and norms.
    """
    passes = sorted({summary.averaged.eot if summary.averaged else 1 for summary in summaries})
    if passes == [1]:
        return ""
    return f", each the mean of {' or '.join(map(str, passes))} passes"


def threat_text(summaries: Sequence[NormSummary]) -> str:
    """Return the criterion and the domain; empty for misclassification in [0, 1].

    Args:
        summaries: Summaries of any models and norms.
    """
    successes = {summary.success for summary in summaries if summary.success is not None}
    domains = {summary.domain for summary in summaries if summary.domain is not None}
    text = f", success: {' or '.join(sorted(successes))}" if successes else ""
    return f"{text}, in {' or '.join(sorted(domains))}" if domains else text


def flagged(summaries: Sequence[NormSummary]) -> list[tuple[str, list[str]]]:
    """Return every flag once, with the symbols of the norms it was raised in.

    Args:
        summaries: Summaries of any models and norms.
    """
    norms: dict[str, list[str]] = {}
    for summary in summaries:
        symbol = norm_text(summary.norm)
        for flag in summary.flags:
            norms.setdefault(str(flag), []).append(symbol)
        for note in summary.notes:
            norms.setdefault(f"DOI: {note}", []).append(symbol)
    return list(norms.items())


def sentence(summaries: Sequence[NormSummary]) -> str:
    """Return how models were evaluated, ready for a paper.

    Args:
        summaries: Any models and norms; there is a sentence per set of samples, budget and seed.
    """
    groups: dict[tuple[str, int, int, int, str], list[NormSummary]] = {}
    for summary in summaries:
        version = summary.versions.get("advfrontier", "")
        samples = len(summary.samples)
        key = (summary.data, samples, summary.tier, summary.seed, version)
        groups.setdefault(key, []).append(summary)
    sentences = []
    for (data, samples, tier, seed, version), group in groups.items():
        models = models_of(group)
        norms = list(dict.fromkeys(norm_text(summary.norm) for summary in group))
        sentences.append(
            f"{listed(models)} {'was' if len(models) == 1 else 'were'} evaluated with advfrontier "
            f"{version} (Scionis et al., “{PAPER}”) in {listed(norms)} on {whole(samples)} samples "
            f"of {data}, with ensembles of minimum-norm attacks that spend {tier_label(tier)} "
            f"queries per sample{passes_text(group)} (seed {seed}{threat_text(group)})."
        )
    return "\n".join(sentences)


def models_of(summaries: Iterable[NormSummary]) -> list[str]:
    """Return the names of the models, each once, in the order of their first summary.

    Args:
        summaries: Summaries of any models and norms.
    """
    return list(dict.fromkeys(summary.model for summary in summaries))


def listed(parts: Sequence[str]) -> str:
    """Return `a, b and c`.

    Args:
        parts: Texts, one at least.
    """
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"


def _medians(summaries: Sequence[NormSummary]) -> str:
    parts = []
    for summary in summaries:
        if summary.median != float("inf"):
            parts.append(f"{distance(summary.median, summary.norm)} in {norm_text(summary.norm)}")
    if not parts:
        return "In no norm was half of the samples broken."
    return f"Half of the samples are misclassified within a distance of {listed(parts)}."


def _ranks(summaries: Sequence[NormSummary]) -> str:
    parts: list[str] = []
    doubted, among = False, ""
    for summary in summaries:
        standing = summary.standing
        if standing is None or standing.row.rank is None:
            continue
        if not parts:
            reference = f"reference models of {standing.table.data}"
            among = reference if standing.referenced else f"{len(standing.table.rows)} models here"
        parts.append(f"{standing.position} in {norm_text(summary.norm)}")
        doubted = doubted or standing.row.bracketed
    if not parts:
        return ""
    brackets = " (in brackets: its distances cannot be trusted)" if doubted else ""
    return f"By DOI among the {among} it ranks {listed(parts)}{brackets}."


def _percent(share: float) -> str:
    return f"{percent(share)} %"
