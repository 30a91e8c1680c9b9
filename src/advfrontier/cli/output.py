"""What commands print: tables and lines for people, or JSON and nothing else for programs."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from typing import Any

from advfrontier.cli.options import Output
from advfrontier.evaluation.evaluation import Evaluation
from advfrontier.evaluation.gate import Ruling
from advfrontier.evaluation.radii import remember_radii
from advfrontier.evaluation.summary import NormSummary, summarise_all
from advfrontier.record.folder import below
from advfrontier.report import print_tables, summary_tables, write_report
from advfrontier.report.export import export_all, parse_formats
from advfrontier.table import Table


def show_evaluations(evaluations: Sequence[Evaluation], folder: str, output: Output) -> None:
    """What every command that ends with evaluations prints, and writes into their folder."""
    for evaluation in evaluations:
        remember_radii(evaluation, output.radii)
    summaries = summarise_all(evaluations, radii=output.radii)
    show_summaries(summaries, evaluations, folder, output)
    if output.report:
        say(f"report: {write_report(below(folder, 'report.html'), summaries)}", as_json=output.json)
    demands = output.demands([evaluation.norm for evaluation in evaluations])
    end_with(
        [
            demand.rule(each)
            for demand in demands
            for each in evaluations
            if each.norm == demand.norm
        ]
    )


def show_summaries(
    summaries: Sequence[NormSummary], evaluations: Sequence[Evaluation], folder: str, output: Output
) -> None:
    """All figures, and the exports that were asked for, of these evaluations into their folder."""
    show(
        *summary_tables(summaries),
        facts=[summary.to_dict() for summary in summaries],
        as_json=output.json,
    )
    for what, path in export_all(
        evaluations, summaries, folder, parse_formats(output.export), radii=output.radii
    ):
        say(f"{what}: {path}", as_json=output.json)


def show(*tables: Table, facts: Any, as_json: bool) -> None:
    """Tables for people, or the facts for other programs."""
    if as_json:
        print(json.dumps(facts, indent=2, ensure_ascii=False))
    else:
        print_tables(*tables)


def say(text: str, *, as_json: bool) -> None:
    """A line for people, which must not get into JSON."""
    if not as_json:
        print(text)


def end_with(rulings: Sequence[Ruling]) -> None:
    """Say whether each demand holds, beside the results, and end with exit code 1 if one does not."""
    for ruling in rulings:
        print(ruling, file=sys.stderr)
    if not all(ruling.holds for ruling in rulings):
        sys.exit(1)
