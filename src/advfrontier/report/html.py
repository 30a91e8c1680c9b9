"""The HTML report of one model: curves in every norm, where it stands, what it cost, how it looks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from advfrontier.errors import FrontierError
from advfrontier.evaluation.summary import most_wins
from advfrontier.frontier.ranking import mean_rows
from advfrontier.report import words
from advfrontier.report.page import script_json, write_page
from advfrontier.report.png import data_uri
from advfrontier.report.summary import NO_RADII
from advfrontier.threat.names import NORMS, SYMBOLS

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from os import PathLike

    from advfrontier.evaluation.gallery import GalleryItem
    from advfrontier.evaluation.summary import NormSummary
    from advfrontier.frontier.curve import Curve

_OWN_POINTS = 2000  # steps drawn of a curve; more would not be seen
_POOL_POINTS = 250
_SHOWN_WINS = 8


def write_report(
    path: str | PathLike[str], summaries: Sequence[NormSummary], *, others: Sequence[NormSummary] = ()
) -> str:
    """Write one file that opens offline. `summaries` are of one model, one per norm; `others` are drawn beside it."""
    if not summaries:
        raise FrontierError("nothing to report: expected at least one summary, such as summarise(evaluation, …)")
    own = in_order(s for s in summaries if s.model == summaries[0].model)
    beside = in_order([*(s for s in summaries if s.model != summaries[0].model), *others])
    _check_unique(own + beside)
    names = list(dict.fromkeys(s.model for s in beside))
    norms = [norm_data(s, [o for o in beside if o.norm == s.norm], names=names) for s in own]
    return write_page(
        path,
        "report.html.j2",
        title=f"Robustness of {own[0].model}",
        model=own[0].model,
        first=own[0],
        own=own,
        rows=[*own, *beside],
        beside=names,
        headline=words.headline(own),
        details=words.details(own),
        flags=words.flagged(own),
        settled=words.settled(own),
        chart_text={s.norm: words.chart_text(s) for s in own},
        queries_text={s.norm: words.queries_text(s) for s in own},
        standings=_standings(own),
        radii=any(s.robust for s in (*own, *beside)),
        no_radii=NO_RADII,
        has_pool=any(s.standing for s in own),
        wins={s.norm: most_wins(s, _SHOWN_WINS) for s in own},
        purposes=list(dict.fromkeys(purpose for s in own for purpose in s.counts)),
        gallery=_gallery(own),
        commands=list(dict.fromkeys(command for s in own for command in s.commands)),
        versions=own[0].versions,
        data=script_json({"model": own[0].model, "norms": norms}),
    )


def in_order(summaries: Iterable[NormSummary]) -> list[NormSummary]:
    """Norms in their usual order."""
    return sorted(summaries, key=lambda summary: NORMS.index(summary.norm))


def norm_data(
    summary: NormSummary, others: Sequence[NormSummary], *, names: Sequence[str] | None = None
) -> dict[str, Any]:
    """What the charts of one norm are drawn from. A model's place in `names` decides its colour in every norm."""
    curves = [summary.curve, *(other.curve for other in others)]
    places = list(names) if names is not None else [other.model for other in others]
    far = max([curve.falls_to(0.01) for curve in curves] + [1.2 * at.epsilon for at in summary.robust], default=0.0)
    near = min((float(ε) for curve in curves for ε in curve.epsilons[1:2]), default=far)
    found = summary.convergence
    return {
        "norm": summary.norm,
        "symbol": SYMBOLS[summary.norm],
        "own": _model(summary),
        "others": [{**_model(other), "place": places.index(other.model)} for other in others],
        **_pool(summary),
        "radii": [{"label": at.label, "x": short(at.epsilon)} for at in summary.robust],
        "far": short(far or 1.0),
        "near": short(near or 1e-3),
        "queries": {
            "x": list(found.queries),
            "y": [short(area) for area in found.aurec],
            "tiers": list(found.tiers),
            "E": short(summary.E),
        },
    }


def points(curve: Curve, limit: int) -> dict[str, list[float]]:
    """At most so many steps of a curve, the first and the last among them."""
    last = len(curve.epsilons) - 1
    step = -(-(last + 1) // limit)
    kept = sorted({*range(0, last + 1, step), last})
    return {"x": [short(curve.epsilons[k]) for k in kept], "y": [short(curve.accuracies[k]) for k in kept]}


def short(value: float) -> float:
    """Six digits: more would not be seen."""
    return float(f"{value:.6g}")


def _model(summary: NormSummary) -> dict[str, Any]:
    return {"name": summary.model, **points(summary.curve, _OWN_POINTS), "margin": summary.margin}


def _pool(summary: NormSummary) -> dict[str, Any]:
    """The reference models' curves, where the model stands among them."""
    if summary.standing is None:
        return {"pool": [], "frontier": None}
    table = summary.standing.table
    return {
        "pool": [
            {"name": row.model, **points(table.curves[row.model], _POOL_POINTS), "flagged": row.bracketed}
            for row in table.rows
            if not row.given
        ],
        "frontier": points(table.frontier, _POOL_POINTS),
    }


def _check_unique(summaries: Sequence[NormSummary]) -> None:
    seen: set[tuple[str, str]] = set()
    for summary in summaries:
        key = summary.model, summary.norm
        if key in seen:
            raise FrontierError(
                f"two summaries of {summary.model} in {summary.norm}: expected one per model and norm; leave one out"
            )
        seen.add(key)


def _standings(own: Sequence[NormSummary]) -> dict[str, Any] | None:
    """The rank tables of all norms side by side: a row per model."""
    tables = [s.standing.table for s in own if s.standing]
    if not tables:
        return None
    cells = {table.norm: {row.model: row for row in table.rows} for table in tables}
    return {
        "norms": list(cells),
        "rows": [(row, {norm: rows[row.model] for norm, rows in cells.items() if row.model in rows})
                 for row in mean_rows(tables)],
        "dataset": tables[0].data,
        "queries": tables[0].queries,
    }  # fmt: skip


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
