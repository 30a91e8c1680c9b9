"""The HTML report of one model: curves in every norm, where it stands, what it cost, how it looks."""

from __future__ import annotations

from collections.abc import Sequence
from os import PathLike
from typing import Any

from advfrontier.errors import FrontierError
from advfrontier.evaluation.gallery import GalleryItem
from advfrontier.evaluation.summary import NormSummary, most_wins
from advfrontier.frontier.ranking import mean_rows
from advfrontier.report.charts import norm_data
from advfrontier.report.page import script_json, write_page
from advfrontier.report.summary import NO_RADII, in_order

_SHOWN_WINS = 8


def write_report(path: str | PathLike[str], summaries: Sequence[NormSummary]) -> str:
    """Write one file that opens offline: the first model in all of its norms, the other models drawn beside it."""
    if not summaries:
        raise FrontierError("nothing to report: expected at least one summary, such as summarise(evaluation, …)")
    model = summaries[0].model
    own = in_order(s for s in summaries if s.model == model)
    beside = in_order(s for s in summaries if s.model != model)
    _check_unique(own + beside)
    names = list(dict.fromkeys(s.model for s in beside))
    norms = [norm_data(s, [o for o in beside if o.norm == s.norm], names=names) for s in own]
    return write_page(
        path,
        "report.html.j2",
        title=f"Robustness of {model}",
        model=model,
        first=own[0],
        own=own,
        rows=in_order([*own, *beside]),
        beside=names,
        standings=_standings(own),
        radii=any(s.robust for s in (*own, *beside)),
        no_radii=NO_RADII,
        certified=any(s.certified for s in (*own, *beside)),
        wins={s.norm: most_wins(s, _SHOWN_WINS) for s in own},
        purposes=list(dict.fromkeys(purpose for s in own for purpose in s.counts)),
        gallery=_gallery(own),
        commands=list(dict.fromkeys(command for s in own for command in s.commands)),
        data=script_json({"model": model, "norms": norms}),
    )


def _check_unique(summaries: Sequence[NormSummary]) -> None:
    named = [(summary.model, summary.norm) for summary in summaries]
    for model, norm in named:
        if named.count((model, norm)) > 1:
            raise FrontierError(f"two summaries of {model} in {norm}: expected one per model and norm; leave one out")


def _standings(own: Sequence[NormSummary]) -> dict[str, Any] | None:
    """The rank tables of all norms side by side: a row per model."""
    standing = [s.standing for s in own if s.standing]
    tables = [each.table for each in standing]
    if not tables:
        return None
    cells = {table.norm: {row.model: row for row in table.rows} for table in tables}
    return {
        "norms": list(cells),
        "rows": [(row, {norm: rows[row.model] for norm, rows in cells.items() if row.model in rows})
                 for row in mean_rows(tables)],
        "dataset": tables[0].data,
        "queries": tables[0].queries,
        "referenced": any(each.referenced for each in standing),
    }  # fmt: skip


def _gallery(own: Sequence[NormSummary]) -> list[dict[str, GalleryItem]]:
    """Sample by sample what each norm did to it."""
    samples: dict[str, dict[str, GalleryItem]] = {}
    for summary in own:
        for item in summary.gallery:
            samples.setdefault(item.sample, {})[summary.norm] = item
    return list(samples.values())
