"""What every command that ends with evaluations prints and writes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

from advfrontier.cli.options import radii_for
from advfrontier.errors import FrontierError
from advfrontier.evaluation.export import check_format
from advfrontier.evaluation.export import export as write_export
from advfrontier.evaluation.radii import parse_radii
from advfrontier.evaluation.reference import reference_pool
from advfrontier.evaluation.summary import summarise
from advfrontier.report import print_summaries, write_report

if TYPE_CHECKING:
    from collections.abc import Sequence

    from advfrontier.evaluation.evaluate import Evaluation
    from advfrontier.evaluation.summary import NormSummary
    from advfrontier.frontier.defence import ReferencePool


def show(
    evaluations: Sequence[Evaluation],
    *,
    folder: str,
    radii: str | None,
    export: str | None,
    report: bool,
    as_json: bool,
) -> None:
    """Tables in the terminal, or JSON; report and export in the folder."""
    summaries = [summary_of(evaluation, radii) for evaluation in evaluations]
    if as_json:
        print(json.dumps([summary.to_dict() for summary in summaries], indent=2, ensure_ascii=False))
    else:
        print_summaries(summaries)
    if export is not None:
        for evaluation in evaluations:
            ending = {"card": "json"}.get(export, export)
            target = Path(folder) / f"{evaluation.norm}.{ending}"
            write_export(evaluation, export, target, radii=radii_for(evaluation.data, evaluation.norm, radii))
            say(f"table: {target}", as_json=as_json)
    if report:
        references = {e.norm: pool for e in evaluations if (pool := reference_for(e)) is not None}
        path = write_report(Path(folder) / "report.html", summaries, references=references)
        say(f"report: {path}", as_json=as_json)


def check(*, radii: str | None, export: str | None) -> None:
    """Refuse what could not be shown in the end before anything is computed."""
    parse_radii(radii or "")
    check_format(export)


def summary_of(evaluation: Evaluation, radii: str | None) -> NormSummary:
    """All figures of one evaluation, against the embedded pool where its samples are from there."""
    return summarise(
        evaluation,
        radii=radii_for(evaluation.data, evaluation.norm, radii),
        reference=reference_for(evaluation),
        class_names=evaluation.class_names,
    )


def reference_for(evaluation: Evaluation) -> ReferencePool | None:
    """The embedded pool at the evaluation's tier, if it can stand in it."""
    try:
        pool = reference_pool(evaluation.norm, evaluation.ensemble.tiers[-1])
    except FrontierError:
        return None
    return pool if set(evaluation.samples) <= set(pool.samples) else None


def say(text: str, *, as_json: bool) -> None:
    """A line for people, which must not get into JSON."""
    if not as_json:
        print(text)
