"""What commands print: tables and lines for people, or JSON and nothing else for programs."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from advfrontier.evaluation.export import export_all
from advfrontier.evaluation.summary import summarise_all
from advfrontier.record.folder import below
from advfrontier.report import print_tables, summary_tables, write_report

if TYPE_CHECKING:
    from collections.abc import Sequence

    from advfrontier.cli.options import Output
    from advfrontier.evaluation.evaluation import Evaluation
    from advfrontier.evaluation.summary import NormSummary


def show_evaluations(evaluations: Sequence[Evaluation], folder: str, output: Output) -> None:
    """What every command that ends with evaluations prints, and writes into their folder."""
    summaries = summarise_all(evaluations, radii=output.radii)
    show_summaries(summaries, as_json=output.json)
    show_exports(evaluations, folder, output.export, radii=output.radii, as_json=output.json)
    if output.report:
        say(f"report: {write_report(below(folder, 'report.html'), summaries)}", as_json=output.json)


def show_summaries(summaries: Sequence[NormSummary], *, as_json: bool) -> None:
    """All figures."""
    if as_json:
        say_json([summary.to_dict() for summary in summaries])
    else:
        print_tables(*summary_tables(summaries))


def show_exports(
    evaluations: Sequence[Evaluation], folder: str, kind: str | None, *, radii: str | None, as_json: bool
) -> None:
    """Write the tables asked for, and say where they are."""
    for path in export_all(evaluations, folder, kind, radii=radii) if kind is not None else ():
        say(f"{'card' if kind == 'card' else 'table'}: {path}", as_json=as_json)


def say(text: str, *, as_json: bool) -> None:
    """A line for people, which must not get into JSON."""
    if not as_json:
        print(text)


def say_json(content: Any) -> None:
    """What other programs read."""
    print(json.dumps(content, indent=2, ensure_ascii=False))
