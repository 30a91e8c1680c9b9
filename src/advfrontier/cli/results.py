"""Commands about records: certify, verify, report, compare, rank."""

# ruff: noqa: PLC0415  # torch and the report are imported when a command runs, not for --help

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Annotated, Literal

from advfrontier.cli.options import (
    OUT,
    DomainFile,
    Export,
    Json,
    Model,
    Norm,
    Output,
    Radii,
    Source,
    Success,
    Trusted,
    load_domain,
    norms,
    trusted_attacks,
)
from advfrontier.errors import FrontierError, ReadOnlyError, printable

if TYPE_CHECKING:
    from advfrontier.evaluation.evaluation import Evaluation
    from advfrontier.evaluation.verify import Verification

_SOURCE = Source()
_SUCCESS = Success()
_SHOWN = 5  # of the false claims in a norm


def certify_command(
    record: str, /, *, model: str | None = None, radii: Radii = None, json: Json = False
) -> None:
    """Compute certified lower bounds on the distances of an evaluation.

    For feed-forward ReLU networks, in L1, L2 and Linf. The bounds are stored in the record, and the
    report draws them below the curve that attacks have found. A norm with bounds is skipped.

    Args:
        record: Folder of an evaluation, or of several; those in L0 are skipped.
        model: Source of the model. Needed if the record names none, or one that runs code.
    """
    from advfrontier.certified import SUPPORTED
    from advfrontier.cli.output import show_evaluations
    from advfrontier.evaluation.certify import certify
    from advfrontier.evaluation.compare import find_evaluations

    output = Output(radii, json=json)
    output.check(folder=record)
    evaluations = find_evaluations([record])
    supported = [evaluation for evaluation in evaluations if evaluation.norm in SUPPORTED]
    for evaluation in supported or evaluations:  # without any, `certify` says which norms it takes
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
    attack: Trusted = (),
    success: Success = _SUCCESS,
    domain: DomainFile = None,
    out: Annotated[str | None, OUT] = None,
    json: Json = False,
) -> None:
    """Verify a record from someone else: check every point, and repeat some units.

    The images must be those of the data. Every stored point must lie inside the box, at the
    distance claimed, and be misclassified by the model here. Units drawn at random are repeated:
    they must agree bit for bit where versions and rounding are the same, else within 5 % in the
    median. The exit code is 1 if any claim is false. The record is only read.

    Args:
        record: Folder of an evaluation, or of several.
        rerun: Units to repeat: a share such as 5%, or a number such as 3; 0 for none.
        seed: Random seed of the choice of units (default: one that nobody can know beforehand).
        out: List of verified records to add to, for `advfrontier rank --verified` (default: none).
    """
    from advfrontier.cli.output import say, show
    from advfrontier.evaluation.claims import write_verified
    from advfrontier.evaluation.compare import find_evaluations
    from advfrontier.evaluation.inputs import as_model
    from advfrontier.evaluation.verify import parse_rerun, verify
    from advfrontier.jsonable import jsonable

    parse_rerun(rerun)
    evaluations = find_evaluations([record])
    given = load_domain(domain)
    unit = given is None and all(each.space is None for each in evaluations)
    samples, subject = data.load(model, unit=unit), as_model(model)
    results = []
    with data.explained():
        for evaluation in evaluations:
            result = verify(
                evaluation,
                subject,
                samples,
                rerun=rerun,
                seed=seed,
                solvers=trusted_attacks(attack, evaluation.norm) or None,
                progress=True,
                criterion=success.criterion(),
                domain=given,
            )
            results.append(result)
    if json:
        show(facts=jsonable(results), as_json=True)
    else:
        if data.notice:
            print(printable(data.notice))
        for result in results:
            for line in _lines(result):
                print(printable(line))
    if out is not None:
        path = write_verified(out, results)
        added = any(result.holds for result in results)
        say(f"verified: {path}" if added else f"no record was added to {path}", as_json=json)
    if not all(result.holds for result in results):
        sys.exit(1)


def _lines(result: Verification) -> Iterator[str]:
    """Yield what was verified of a record, and which claims are false."""
    yield str(result)
    for claim in result.false[:_SHOWN]:
        yield f"  false: {claim}"
    if len(result.false) > _SHOWN:
        yield f"  and {len(result.false) - _SHOWN} more"
    for note in result.notes:
        yield f"  note: {note}"


def report_command(
    *records: str,
    out: str | None = None,
    figures: str | None = None,
    export: Export = None,
    radii: Radii = None,
    reference: str | None = None,
    json: Json = False,
) -> None:
    """Write the HTML report of one model's records, beside other models.

    Several models are ranked among each other, with areas up to one common ε.

    Args:
        records: Folders of evaluations. The report is of the first; the others are compared with
            it. Exports are written for all, into the first folder.
        out: HTML file (default: report.html in the first folder).
        figures: Output folder of the figures as PDF and PNG (default: none).
        reference: File written by `advfrontier reference make`, whose models the report ranks with
            (default: none).
    """
    from advfrontier import report
    from advfrontier.cli.output import say, show_summaries
    from advfrontier.evaluation.compare import find_evaluations
    from advfrontier.evaluation.reference import ReferenceSet
    from advfrontier.evaluation.summary import summarise_all
    from advfrontier.record import below

    if not records:
        raise FrontierError(
            "nothing to report on: expected the folder of an evaluation, such as runs/mine"
        )
    output = Output(radii, export, json=json)
    output.check()
    own = find_evaluations(records[:1])
    others = find_evaluations(records[1:])
    pools = None
    if reference is not None:
        chosen_set = ReferenceSet.load(reference)
        pools = chosen_set.pools([*own, *others])
        for note in chosen_set.notes([*own, *others]):
            print(f"note: {printable(note)}", file=sys.stderr)
    summaries = summarise_all([*own, *others], radii=radii, reference=pools)
    show_summaries(summaries, [*own, *others], records[0], output)
    try:
        page = report.write_report(out or below(records[0], "report.html"), summaries)
    except ReadOnlyError as error:
        raise FrontierError(f"{error}; --out FILE.html writes the report elsewhere") from error
    say(f"report: {page}", as_json=json)
    if figures is not None:
        for path in report.write_figures(figures, summaries):
            say(f"figure: {path}", as_json=json)


def paper_command(
    *records: str,
    out: Annotated[str, OUT] = "paper",
    radii: Radii = None,
    columns: str | None = None,
    width: float = 397.0,
    font: str = "serif",
    data_name: str | None = None,
    baselines: str = "baselines",
    json: Json = False,
) -> None:
    """Write a table, figures, a sentence, BibTeX and CSV files for a paper.

    Args:
        records: Folders of evaluations, of one model or several.
        out: Output folder; paper.tex in it shows everything.
        columns: Columns of the table: clean, robust, autoattack, median, aurec, doi (default:
            clean,robust,autoattack).
        width: Width of the table in points.
        font: Letters of the figures: serif or sans.
        data_name: Name of the data in captions (default: as it was typed).
        baselines: Folder of AutoAttack's records, searched beside the folders of the evaluations.
    """
    from advfrontier.cli.output import say, show
    from advfrontier.evaluation.baseline import stored_baselines
    from advfrontier.evaluation.compare import find_evaluations
    from advfrontier.evaluation.summary import summarise_all
    from advfrontier.report.paper import parse_columns, write_paper

    if not records:
        raise FrontierError(
            "nothing to write: expected the folder of an evaluation, such as runs/mine"
        )
    Output(radii).check()
    kinds = parse_columns(columns)
    evaluations = find_evaluations(records)
    written = write_paper(
        out,
        summarise_all(evaluations, radii=radii, gallery=0),
        baselines=stored_baselines(evaluations, [baselines, *records]),
        columns=kinds,
        width=width,
        font=font,
        data_name=data_name,
    )
    if json:
        show(facts=written, as_json=True)
    for path in written:
        say(f"paper: {path}", as_json=json)


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
    """Compare two models on whole curves: reject one, or print what to run next.

    Args:
        first: Folder of the evaluations of one model.
        second: Folder of the evaluations of another model, on the same samples.
        fail_if_worse: End with exit code 1 if the first model is significantly worse than the
            second at equal queries, in any of the norms.
        out: HTML file of the picture (default: none).
    """
    from advfrontier import report
    from advfrontier.cli.output import end_with, say, show
    from advfrontier.evaluation.compare import compare, of_one_model
    from advfrontier.evaluation.gate import not_worse
    from advfrontier.evaluation.summary import summarise_all
    from advfrontier.jsonable import jsonable

    Output(radii).check()
    ours, theirs = of_one_model(first), of_one_model(second)
    shared = [each for each in norms(norm) if each in ours and each in theirs]
    if not shared:
        found = f"{', '.join(ours)} in {first} and {', '.join(theirs)} in {second}"
        raise FrontierError(
            f"no norm in common: {found}; evaluate one of them in a norm of the other"
            if norm == "all"
            else f"not both in {norm}: {found}; evaluate both with --norm {norm}, or leave it out"
        )
    pairs = [(ours[each], theirs[each]) for each in shared]
    compared = []
    for pair in pairs:
        one, other = summarise_all(pair, radii=radii)
        compared.append((compare(*pair), one, other))
    facts = {one.norm: jsonable(result) for result, one, _ in compared}
    tables = [report.comparison_table(*entry) for entry in compared]
    show(*tables, facts=facts, as_json=json)
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
        records: Folders of evaluations on the same samples. Folders without any are skipped with a
            note.
        reference: Reference models to rank with: fashion-mnist, or a file written by
            `advfrontier reference make` (default: none).
        csv: CSV file of the tables (default: none).
        html: HTML file of a leaderboard (default: none).
        highlight: Models to highlight on the leaderboard, with commas (default: yours among
            reference models).
        verified: List written by `advfrontier verify --out`. Records that are not on it are skipped
            with a note (default: no record is skipped).
    """
    from advfrontier import report
    from advfrontier.cli.output import say, show
    from advfrontier.evaluation.compare import REFERENCES, ensemble_notes, rank, reference_pools
    from advfrontier.evaluation.reference import ReferenceSet
    from advfrontier.record import write_file

    Output(radii).check()
    evaluations = _to_rank(records, verified)
    pools = None
    if reference is not None:
        notes: dict[str, None] = {}
        if reference in REFERENCES:
            for evaluation in evaluations:
                notes |= dict.fromkeys(ensemble_notes(evaluation))
            pools = reference_pools(evaluations, name=reference)
        else:
            chosen_set = ReferenceSet.load(reference)
            pools = chosen_set.pools(evaluations)
            notes |= dict.fromkeys(chosen_set.notes(evaluations))
        for note in notes:
            print(f"note: {printable(note)}", file=sys.stderr)
    ranking = rank(evaluations, reference=pools, radii=radii)
    show(*report.rank_tables(ranking), facts=ranking.to_dict(), as_json=json)
    if csv is not None:
        content = report.ranking_csv(ranking).encode()
        path = write_file(csv, content, mark=b"norm,model,rank,bracketed")
        say(f"table: {path}", as_json=json)
    if html is not None:
        chosen = None
        if highlight is not None:
            chosen = [name.strip() for name in highlight.split(",") if name.strip()]
        page = report.write_leaderboard(html, ranking, highlight=chosen)
        say(f"leaderboard: {page}", as_json=json)


def reference_command(
    action: Literal["make", "show"],
    /,
    *paths: str,
    out: Annotated[str | None, OUT] = None,
    data_name: str | None = None,
    json: Json = False,
) -> None:
    """Make a reference set of evaluated models, or show what one holds.

    `advfrontier rank --reference FILE` and `advfrontier report --reference FILE` rank models with
    it. The file holds distances, labels and ids of samples, and no images.

    Args:
        action: make or show.
        paths: For make, folders of evaluations on the same samples; for show, a reference set.
        out: File of the reference set, such as cifar10.ref.
        data_name: Name of the data set (default: as in the first evaluation).
    """
    from advfrontier.cli.output import say, show
    from advfrontier.evaluation.compare import find_evaluations
    from advfrontier.evaluation.reference import ReferenceSet, make_reference

    if not paths:
        raise FrontierError(f"reference {action} was given no path: expected at least one")
    if action == "show":
        for path in paths:
            found = ReferenceSet.load(path)
            show(found.table(), facts=found.model_dump(mode="json"), as_json=json)
        return
    if out is None:
        raise FrontierError("--out is missing: expected a file, such as --out cifar10.ref")
    made = make_reference(find_evaluations(paths), data=data_name)
    path = made.save(out)
    show(made.table(), facts=made.model_dump(mode="json"), as_json=json)
    say(f"reference set: {path}", as_json=json)


def _to_rank(records: Sequence[str], verified: str | None) -> list[Evaluation]:
    """Return the evaluations in these folders; with a list of verified records, those on it."""
    from advfrontier.evaluation.claims import only_verified
    from advfrontier.evaluation.compare import by_model, find_evaluations

    evaluations: list[Evaluation] = []
    for path in records:
        found = find_evaluations([path], needed=False)
        evaluations += found
        if not found:
            print(f"note: no evaluation in {printable(path)}", file=sys.stderr)
    if verified is not None:
        evaluations, others = only_verified(evaluations, verified)
        for other in others:
            text = f"left out, not on {verified}: {other.model} in {other.norm}, {other.place}"
            print(f"note: {printable(text)}", file=sys.stderr)
        if not evaluations:
            raise FrontierError(
                f"none of these records is on {verified}: verify them with `advfrontier verify`"
            )
    by_model(evaluations)
    return evaluations
