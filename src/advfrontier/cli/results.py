"""Commands about records: certify, verify, report, compare, rank."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from typing import Annotated

from advfrontier import report
from advfrontier.certified import SUPPORTED
from advfrontier.cli.options import OUT, Export, Json, Model, Norm, Output, Radii, Source, norms
from advfrontier.cli.output import end_with, say, show, show_evaluations, show_summaries
from advfrontier.errors import FrontierError
from advfrontier.evaluation import compare
from advfrontier.evaluation.certify import certify
from advfrontier.evaluation.claims import only_verified, write_verified
from advfrontier.evaluation.compare import find_evaluations
from advfrontier.evaluation.evaluation import Evaluation
from advfrontier.evaluation.gate import not_worse
from advfrontier.evaluation.inputs import as_model
from advfrontier.evaluation.summary import summarise_all
from advfrontier.evaluation.verify import Verification, parse_rerun, verify
from advfrontier.jsonable import jsonable
from advfrontier.record.folder import below, write_file
from advfrontier.threat.names import NORMS

_SOURCE = Source()
_SHOWN = 5  # of what is false in a norm


def certify_command(
    record: str, /, *, model: str | None = None, radii: Radii = None, json: Json = False
) -> None:
    """Prove for every sample of an evaluation how near no adversarial example can be.

    For feed-forward ReLU networks, in L1, L2 and Linf; what is certified is stored in the record, and the report draws
    it below the curve that attacks have found. A norm that is certified already is not certified again.

    Args:
        record: The folder of an evaluation, or one that holds several; those in L0 are left out.
        model: Where the model is: needed where the record does not say, or names something that would run code.
    """
    output = Output(radii, json=json)
    output.check(folder=record)
    found = find_evaluations([record])
    for evaluation in [each for each in found if each.norm in SUPPORTED] or found:
        if evaluation.certified is None:
            certify(evaluation, model=model, progress=True)
    show_evaluations(find_evaluations([record]), record, output)


def verify_command(
    record: str,
    /,
    *,
    model: Model,
    data: Source = _SOURCE,
    rerun: str = "5%",
    seed: int | None = None,
    out: Annotated[str | None, OUT] = None,
    json: Json = False,
) -> None:
    """Check a record that came from someone else: every point, and some units once more.

    The images must be those of the data; every stored point must lie inside the box, at the distance claimed, and be
    misclassified by the model here. Units drawn at random must come out again: bit for bit where versions and rounding
    are the same, else with distances that differ by at most 5 % in the median. Ends with exit code 1 if anything is
    false. The record is only read.

    Args:
        record: The folder of an evaluation, or one that holds several.
        rerun: Units to do again: a share such as 5%, or a number such as 3; 0 for none.
        seed: Of the draw of these units; by default one that nobody could know beforehand.
        out: A list, to which records that hold are added; `advfrontier rank --verified` takes it.
    """
    parse_rerun(rerun)
    evaluations = find_evaluations([record])
    samples, subject = data.load(model), as_model(model)
    results = [
        verify(each, subject, samples, rerun=rerun, seed=seed, progress=True)
        for each in evaluations
    ]
    if json:
        show(facts=jsonable(results), as_json=True)
    else:
        print("\n".join(line for result in results for line in _lines(result)))
    if out is not None:
        added = (
            "verified"
            if any(result.holds for result in results)
            else "nothing is added to what was verified"
        )
        say(f"{added}: {write_verified(out, results)}", as_json=json)
    if not all(result.holds for result in results):
        sys.exit(1)


def _lines(result: Verification) -> Iterator[str]:
    """What was proved of a record, and what is false about it."""
    yield str(result)
    yield from (f"  false: {what}" for what in result.false[:_SHOWN])
    if len(result.false) > _SHOWN:
        yield f"  and {len(result.false) - _SHOWN} more"
    yield from (f"  note: {note}" for note in result.notes)


def report_command(
    *records: str,
    out: str | None = None,
    figures: str | None = None,
    export: Export = None,
    radii: Radii = None,
    json: Json = False,
) -> None:
    """Write the HTML report of one model's records, with other models beside it.

    Several models are ranked among each other, with areas up to one common ε.

    Args:
        records: Folders of evaluations; the first is reported on and exported, the others are set beside it.
        out: The HTML file; by default report.html in the first folder.
        figures: A folder for the figures as PDF and PNG.
    """
    if not records:
        raise FrontierError(
            "nothing to report on: expected the folder of an evaluation, such as runs/mine"
        )
    output = Output(radii, export, json=json)
    output.check()
    own = find_evaluations(records[:1])
    summaries = summarise_all([*own, *find_evaluations(records[1:])], radii=radii)
    show_summaries(summaries, own, records[0], output)
    say(
        f"report: {report.write_report(out or below(records[0], 'report.html'), summaries)}",
        as_json=json,
    )
    if figures is not None:
        for written in report.write_figures(figures, summaries):
            say(f"figure: {written}", as_json=json)


def compare_command(
    first: str,
    second: str,
    /,
    *,
    norm: Norm = "all",
    fail_if_worse: bool = False,
    out: str | None = None,
    radii: Radii = None,
    json: Json = False,
) -> None:
    """Compare two models on whole curves: is one rejected already, or what should be run next?

    Args:
        first: The folder of one model's evaluations.
        second: That of another model, on the same samples.
        fail_if_worse: End with exit code 1 if the first is shown to be worse than the second, at equal queries, in any
            of the norms.
        out: An HTML file with the picture.
    """
    Output(radii).check()
    tables = [compare.of_one_model(folder) for folder in (first, second)]
    shared = [
        each for each in NORMS if each in norms(norm) and all(each in table for table in tables)
    ]
    if not shared:
        found = f"{', '.join(tables[0])} in {first} and {', '.join(tables[1])} in {second}"
        raise FrontierError(
            f"no norm in common: {found}; evaluate one of them in a norm of the other"
            if norm == "all"
            else f"not both in {norm}: {found}; evaluate both with --norm {norm}, or leave it out"
        )
    pairs = [(tables[0][each], tables[1][each]) for each in shared]
    compared = []
    for pair in pairs:
        one, other = summarise_all(pair, radii=radii)
        compared.append((compare.compare(*pair), one, other))
    facts = {one.norm: jsonable(result) for result, one, _ in compared}
    show(*(report.comparison_table(*entry) for entry in compared), facts=facts, as_json=json)
    if out is not None:
        say(f"picture: {report.write_comparison(out, compared)}", as_json=json)
    if fail_if_worse:
        end_with([not_worse(*pair) for pair in pairs])


def rank_command(
    *records: str,
    reference: str | None = None,
    radii: Radii = None,
    csv: str | None = None,
    html: str | None = None,
    highlight: str | None = None,
    verified: str | None = None,
    json: Json = False,
) -> None:
    """Rank models by DOI, in every norm and over all of them.

    Args:
        records: Folders of evaluations, on the same samples; what holds none is left out with a note.
        reference: Rank against a shipped pool as well: fashion-mnist.
        csv: Write the tables to this file.
        html: Write a leaderboard page to this file.
        highlight: Models that stand out on the page, with commas; by default your own, where they stand among reference
            models.
        verified: A list that `advfrontier verify --out` wrote: records that are not on it are left out with a note.
    """
    Output(radii).check()
    evaluations = _to_rank(records, verified)
    for note in (
        dict.fromkeys(note for one in evaluations for note in compare.unlike(one))
        if reference
        else ()
    ):
        print(f"note: {note}", file=sys.stderr)
    pools = None if reference is None else compare.reference_pools(evaluations, name=reference)
    ranking = compare.rank(evaluations, reference=pools, radii=radii)
    show(*report.rank_tables(ranking), facts=ranking.to_dict(), as_json=json)
    if csv is not None:
        path = write_file(
            csv, report.ranking_csv(ranking).encode(), mark=b"norm,model,rank,bracketed"
        )
        say(f"table: {path}", as_json=json)
    if html is not None:
        chosen = (
            None
            if highlight is None
            else [name.strip() for name in highlight.split(",") if name.strip()]
        )
        say(
            f"leaderboard: {report.write_leaderboard(html, ranking, highlight=chosen)}",
            as_json=json,
        )


def _to_rank(records: Sequence[str], verified: str | None) -> list[Evaluation]:
    """The evaluations in these folders, one per model and norm; only those on the list of what was verified, if any."""
    evaluations = []
    for path in records:
        found = find_evaluations([path], needed=False)
        evaluations += found
        if not found:
            print(f"note: no evaluation in {path}", file=sys.stderr)
    if verified is not None:
        evaluations, others = only_verified(evaluations, verified)
        for other in others:
            print(
                f"note: left out, not on {verified}: {other.model} in {other.norm}, {other.place}",
                file=sys.stderr,
            )
        if not evaluations:
            raise FrontierError(
                f"none of these records is on {verified}: verify them with `advfrontier verify`"
            )
    compare.by_model(evaluations)
    return evaluations
