"""Output of commands: tables and lines for people, or JSON alone for programs."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from typing import Any

from advfrontier.cli.options import Output
from advfrontier.errors import ReadOnlyError, printable
from advfrontier.evaluation.evaluation import Evaluation
from advfrontier.evaluation.gate import Ruling
from advfrontier.evaluation.radii import remember_radii
from advfrontier.evaluation.summary import NormSummary, summarise_all
from advfrontier.jsonable import json_text
from advfrontier.record.folder import below
from advfrontier.report import print_tables, summary_tables, write_report
from advfrontier.report.export import export_all, parse_formats
from advfrontier.table import Table

# Keys of a summary with a value per sample or per point of a curve: JSON has them at its end.
LONG = ("by_queries", "certified", "curve", "distances", "samples")


def show_evaluations(
    evaluations: Sequence[Evaluation], folder: str, output: Output, *, notice: str = ""
) -> None:
    """Print the summary of evaluations and write the files that go with it.

    Args:
        evaluations: The evaluations, one per norm and model.
        folder: Folder of the report and the exports.
        output: Options of the user: formats, radii, requirements, JSON.
        notice: A line above the summary.
    """
    for evaluation in evaluations:
        remember_radii(evaluation, output.radii)
    summaries = summarise_all(evaluations, radii=output.radii)
    if notice:
        say(notice, as_json=output.json)
    show_summaries(summaries, evaluations, folder, output)
    if output.report:
        _write_beside(folder, summaries, output)
    rulings = []
    for demand in output.demands([evaluation.norm for evaluation in evaluations]):
        for evaluation in evaluations:
            if evaluation.norm == demand.norm:
                rulings.append(demand.rule(evaluation))
    end_with(rulings)


def _write_beside(folder: str, summaries: Sequence[NormSummary], output: Output) -> None:
    """Write the report into the folder of the records, unless that must not be written."""
    try:
        report = write_report(below(folder, "report.html"), summaries)
    except ReadOnlyError as error:
        command = shlex.join(["advfrontier", "report", folder, "--out", "report.html"])
        text = f"note: no report: {error}; `{command}` writes it here"
        print(printable(text), file=sys.stderr)
    else:
        say(f"report: {report}", as_json=output.json)


def show_summaries(
    summaries: Sequence[NormSummary], evaluations: Sequence[Evaluation], folder: str, output: Output
) -> None:
    """Print summaries, and write the exports of their evaluations into a folder.

    Args:
        summaries: Summaries to print, one per model and norm.
        evaluations: Evaluations whose exports are written.
        folder: Output folder: a path or an address.
        output: Options of the user: formats, radii, JSON.
    """
    facts = [figures_first(summary.to_dict()) for summary in summaries]
    show(*summary_tables(summaries), facts=facts, as_json=output.json)
    formats = parse_formats(output.export)
    for what, path in export_all(evaluations, summaries, folder, formats, radii=output.radii):
        say(f"{what}: {path}", as_json=output.json)


def figures_first(facts: dict[str, Any]) -> dict[str, Any]:
    """Return the entries of a summary with long lists at the end, ids of samples last.

    Args:
        facts: Summary as plain values.
    """
    short = {key: value for key, value in facts.items() if key not in LONG}
    for key in LONG:
        if key in facts:
            short[key] = facts[key]
    return short


def show(*tables: Table, facts: Any, as_json: bool) -> None:
    """Print tables for people, or the facts for other programs.

    Args:
        tables: Tables for a person, from top to bottom.
        facts: The same results for a program; `jsonable` turns them into JSON.
        as_json: Print the facts instead of the tables.
    """
    if as_json:
        print(json_text(facts))
    else:
        print_tables(*tables)


def say(text: str, *, as_json: bool) -> None:
    """Print a line for people, which must not get into JSON.

    Args:
        text: One line.
        as_json: Whether the output is JSON; the line is left out then.
    """
    if not as_json:
        print(printable(text))


def end_with(rulings: Sequence[Ruling]) -> None:
    """Print whether each demand holds, and end with exit code 1 if one does not.

    Args:
        rulings: Whether each demand is met, and why.
    """
    for ruling in rulings:
        print(printable(ruling), file=sys.stderr)
    if not all(ruling.holds for ruling in rulings):
        sys.exit(1)
