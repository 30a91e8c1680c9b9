"""The HTML report of one model: curves in every norm, where it stands, what it cost, how it looks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from advfrontier.errors import FrontierError
from advfrontier.evaluation.plain import CurveData
from advfrontier.evaluation.ranking import same_model, select_samples
from advfrontier.report import words
from advfrontier.report.numbers import SYMBOLS
from advfrontier.report.page import script_json, write_page
from advfrontier.report.png import data_uri
from advfrontier.report.terminal import NO_RADII
from advfrontier.threat.names import NORMS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from os import PathLike

    from advfrontier.evaluation.summary import GalleryItem, NormSummary
    from advfrontier.frontier.comparison import Comparison
    from advfrontier.frontier.defence import ReferencePool

_OWN_POINTS = 2000  # steps drawn of a curve; more would not be seen
_POOL_POINTS = 250
_SHOWN_WINS = 8


def write_report(
    path: str | PathLike[str],
    summaries: Sequence[NormSummary],
    *,
    others: Sequence[NormSummary] = (),
    references: Mapping[str, ReferencePool] | None = None,
    comparisons: Sequence[Comparison] = (),
) -> str:
    """Write one file that opens offline. `summaries` are of one model, one per norm; `others` are drawn beside it."""
    if not summaries:
        raise FrontierError("nothing to report: expected at least one summary, such as summarise(evaluation, …)")
    own = [s for s in summaries if s.model == summaries[0].model]
    beside = [*(s for s in summaries if s.model != summaries[0].model), *others]
    own, beside = _in_order(own), _in_order(beside)
    _check_unique(own + beside)
    pools = {s.norm: _pool_curves(s, (references or {}).get(s.norm)) for s in own}
    norms = [norm_data(s, [o for o in beside if o.norm == s.norm], pools[s.norm]) for s in own]
    return write_page(
        path,
        "report.html.j2",
        title=f"Robustness of {own[0].model}",
        model=own[0].model,
        first=own[0],
        own=own,
        rows=[*own, *beside],
        beside=list(dict.fromkeys(s.model for s in beside)),
        headline=words.headline(own),
        details=words.details(own),
        flags=words.flagged(own),
        settled=words.settled(own),
        chart_text={s.norm: words.chart_text(s) for s in own},
        queries_text={s.norm: words.queries_text(s) for s in own},
        standings=_standings(own),
        radii=any(s.robust for s in (*own, *beside)),
        no_radii=NO_RADII,
        has_pool=any(pools[s.norm]["pool"] for s in own),
        comparisons=comparisons,
        wins={s.norm: _wins(s) for s in own},
        purposes=list(dict.fromkeys(purpose for s in own for purpose in s.counts)),
        gallery=_gallery(own),
        commands=list(dict.fromkeys(command for s in own for command in s.commands)),
        versions=own[0].versions,
        data=script_json({"model": own[0].model, "norms": norms}),
    )


def norm_data(summary: NormSummary, others: Sequence[NormSummary], pool: Mapping[str, Any]) -> dict[str, Any]:
    """What the charts of one norm are drawn from."""
    curves = [summary.curve, *(other.curve for other in others)]
    far = max([_falls_to(curve, 0.01) for curve in curves] + [1.2 * at.epsilon for at in summary.robust], default=0.0)
    near = min((ε for curve in curves for ε in curve.epsilons[1:2]), default=far)
    return {
        "norm": summary.norm,
        "symbol": SYMBOLS[summary.norm],
        "own": {"name": summary.model, **points(summary.curve, _OWN_POINTS), "margin": summary.margin},
        "others": [{"name": o.model, **points(o.curve, _OWN_POINTS), "margin": o.margin} for o in others],
        **pool,
        "radii": [{"label": at.label, "x": _short(at.epsilon)} for at in summary.robust],
        "far": _short(far or 1.0),
        "near": _short(near or 1e-3),
        "queries": {
            "x": list(summary.convergence.queries),
            "y": [_short(area) for area in summary.convergence.aurec],
            "tiers": list(summary.convergence.tiers),
            "E": _short(summary.E),
        },
    }


def points(curve: CurveData, limit: int) -> dict[str, list[float]]:
    """At most so many steps of a curve, the first and the last among them."""
    last = len(curve.epsilons) - 1
    step = -(-(last + 1) // limit)
    kept = sorted({*range(0, last + 1, step), last})
    return {"x": [_short(curve.epsilons[k]) for k in kept], "y": [_short(curve.accuracies[k]) for k in kept]}


def _short(value: float) -> float:
    return float(f"{value:.6g}")


def _falls_to(curve: CurveData, share: float) -> float:
    """Where the curve has fallen to this share, or its last step."""
    return next((ε for ε, ρ in zip(curve.epsilons, curve.accuracies, strict=True) if ρ <= share), curve.epsilons[-1])


def _in_order(summaries: Sequence[NormSummary]) -> list[NormSummary]:
    return sorted(summaries, key=lambda summary: NORMS.index(summary.norm))


def _check_unique(summaries: Sequence[NormSummary]) -> None:
    seen: set[tuple[str, str]] = set()
    for summary in summaries:
        key = summary.model, summary.norm
        if key in seen:
            raise FrontierError(
                f"two summaries of {summary.model} in {summary.norm}: expected one per model and norm; leave one out"
            )
        seen.add(key)


def _pool_curves(summary: NormSummary, reference: ReferencePool | None) -> dict[str, Any]:
    """The reference models' curves on the samples of a summary; none where they were evaluated on others."""
    nothing: dict[str, Any] = {"pool": [], "frontier": None}
    if reference is None:
        return nothing
    try:
        pool = select_samples(reference, summary.samples)
        frontier = points(CurveData.of(pool.frontier()), _POOL_POINTS)
    except FrontierError:
        return nothing  # the summary says why, in `no_standing`
    return {
        "pool": [
            {"name": model, **points(CurveData.of(d), _POOL_POINTS), "flagged": model in pool.flagged}
            for model, d in pool.distances.items()
            if not same_model(model, summary.model)
        ],
        "frontier": frontier,
    }


def _standings(own: Sequence[NormSummary]) -> dict[str, Any] | None:
    """The rank tables of all norms side by side: a row per model."""
    ranked = [(s.norm, s.standing) for s in own if s.standing]
    if not ranked:
        return None
    rows: dict[str, dict[str, Any]] = {}
    for norm, standing in ranked:
        for row in standing.table:
            entry = rows.setdefault(row.model, {"model": row.model, "own": row.own, "cells": {}})
            entry["cells"][norm] = row
    full = [entry for entry in rows.values() if len(entry["cells"]) == len(ranked)]
    for entry in full:
        entry["mean"] = sum(cell.doi.estimate for cell in entry["cells"].values()) / len(ranked)
    return {
        "norms": [norm for norm, _ in ranked],
        "rows": sorted(rows.values(), key=lambda entry: -entry.get("mean", 0.0)),
        "dataset": ranked[0][1].dataset,
        "queries": ranked[0][1].queries,
        "mean": len(ranked) > 1,
    }


def _wins(summary: NormSummary) -> dict[str, Any]:
    shown = summary.wins[:_SHOWN_WINS]
    rest = summary.wins[_SHOWN_WINS:]
    return {
        "rows": shown,
        "largest": max((win.share for win in summary.wins), default=1.0),
        "rest": len(rest),
        "rest_samples": sum(win.samples for win in rest),
        "rest_share": sum(win.share for win in rest),
    }


def _gallery(own: Sequence[NormSummary]) -> list[dict[str, Any]]:
    """Samples with what each norm did to them."""
    samples: dict[str, dict[str, Any]] = {}
    for summary in own:
        for item in summary.gallery:
            entry = samples.setdefault(
                item.sample,
                {
                    "sample": item.sample,
                    "row": item.row,
                    "label": item.label_name or f"class {item.label}",
                    "original": data_uri(item.original),
                    "reduced": item.reduced,
                    "norms": [],
                },
            )
            entry["norms"].append(_changed(summary.norm, item))
    return list(samples.values())


def _changed(norm: str, item: GalleryItem) -> dict[str, Any]:
    broken = item.magnification > 0
    return {
        "norm": norm,
        "broken": broken,
        "prediction": item.prediction_name or f"class {item.prediction}",
        "distance": item.distance,
        "run": item.run,
        "magnification": item.magnification,
        "adversarial": data_uri(item.adversarial) if broken else None,
        "difference": data_uri(item.difference) if broken else None,
    }
