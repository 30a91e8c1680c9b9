"""Commands that read records: report, compare, rank."""

from __future__ import annotations

import json as json_text
from dataclasses import replace
from pathlib import Path

from advfrontier.cli.app import app
from advfrontier.cli.showing import check, reference_for, say, show, summary_of
from advfrontier.errors import FrontierError
from advfrontier.evaluation.comparing import compare
from advfrontier.evaluation.plain import plain
from advfrontier.evaluation.ranking import rank
from advfrontier.evaluation.records import by_model, find_evaluations
from advfrontier.evaluation.reference import reference_pool
from advfrontier.report import (
    print_comparison,
    print_ranking,
    ranking_csv,
    write_comparison,
    write_figures,
    write_leaderboard,
    write_report,
)
from advfrontier.threat.names import NORMS


@app.command(name="report")
def report_command(
    *records: str,
    out: str | None = None,
    figures: str | None = None,
    export: str | None = None,
    radii: str | None = None,
    json: bool = False,
) -> None:
    """Write the HTML report of one model's records, with other models beside it.

    Parameters
    ----------
    records
        Folders of evaluations; the first is reported on, the others are drawn beside it.
    out
        The HTML file; by default report.html in the first folder.
    figures
        A folder for the figures as PDF and PNG.
    export
        Write a table as well: csv, parquet, npz, or card.
    radii
        Where robust accuracy is read, such as 4/255,8/255.
    json
        Print figures as JSON and nothing else.
    """
    if not records:
        raise FrontierError("nothing to report on: expected the folder of an evaluation, such as runs/mine")
    check(radii=radii, export=export)
    own = find_evaluations(records[:1])
    show(own, folder=records[0], radii=radii, export=export, report=False, as_json=json)
    summaries = [summary_of(evaluation, radii) for evaluation in own]
    others = [summary_of(evaluation, radii) for evaluation in find_evaluations(records[1:])]
    references = {e.norm: pool for e in own if (pool := reference_for(e)) is not None}
    path = write_report(Path(out or f"{records[0]}/report.html"), summaries, others=others, references=references)
    say(f"report: {path}", as_json=json)
    if figures is not None:
        for written in write_figures(Path(figures), summaries, others=others, references=references):
            say(f"figure: {written}", as_json=json)


@app.command(name="compare")
def compare_command(
    first: str, second: str, /, *, out: str | None = None, radii: str | None = None, json: bool = False
) -> None:
    """Compare two models on whole curves: is one rejected already, or what should be run next?

    Parameters
    ----------
    first, second
        Folders of evaluations on the same samples.
    out
        An HTML file with the picture.
    radii
        Where robust accuracy is read, such as 4/255,8/255.
    json
        Print figures as JSON and nothing else.
    """
    tables = [{evaluation.norm: evaluation for evaluation in find_evaluations([folder])} for folder in (first, second)]
    shared = [norm for norm in NORMS if all(norm in table for table in tables)]
    if not shared:
        found = " and ".join(
            f"{', '.join(table)} in {folder}" for table, folder in zip(tables, (first, second), strict=True)
        )
        raise FrontierError(f"no norm in common: {found}; evaluate one of them in a norm of the other")
    compared = []
    for norm in shared:
        pair = tables[0][norm], tables[1][norm]
        result = compare(*pair)
        # Named as the comparison names them: by folder where both records are of one model.
        both = [replace(summary_of(e, radii), model=name) for e, name in zip(pair, result.names, strict=True)]
        compared.append((result, both[0], both[1]))
    if json:
        print(json_text.dumps({one.norm: plain(result) for result, one, _ in compared}, indent=2, ensure_ascii=False))
    else:
        for result, *both in compared:
            print_comparison(result, both, norm=both[0].norm)
    if out is not None:
        say(f"picture: {write_comparison(Path(out), compared)}", as_json=json)


@app.command(name="rank")
def rank_command(
    *records: str, reference: str | None = None, csv: str | None = None, html: str | None = None, json: bool = False
) -> None:
    """Rank models by DOI, in every norm and over all of them.

    Parameters
    ----------
    records
        Folders of evaluations, on the same samples.
    reference
        Rank against a shipped pool as well: fashion-mnist.
    csv
        Write the tables to this file.
    html
        Write a leaderboard page to this file.
    json
        Print figures as JSON and nothing else.
    """
    evaluations = find_evaluations(records)
    by_model(evaluations)
    pools = None
    if reference is not None:
        pools = {}
        for norm in {e.norm for e in evaluations} or NORMS:
            tier = min((e.ensemble.tiers[-1] for e in evaluations if e.norm == norm), default=12000)
            pools[norm] = reference_pool(norm, tier, name=reference)
    ranking = rank(evaluations, reference=pools)
    if json:
        print(json_text.dumps(ranking.to_dict(), indent=2, ensure_ascii=False))
    else:
        print_ranking(ranking)
    if csv is not None:
        Path(csv).write_text(ranking_csv(ranking), encoding="utf-8")
        say(f"table: {csv}", as_json=json)
    if html is not None:
        say(f"leaderboard: {write_leaderboard(Path(html), ranking)}", as_json=json)
