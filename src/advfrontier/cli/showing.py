"""What every command that ends with evaluations prints and writes."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from advfrontier.cli.options import radii_for
from advfrontier.errors import FrontierError
from advfrontier.evaluation.export import export as write_export
from advfrontier.evaluation.reference import REFERENCES, reference_pool
from advfrontier.evaluation.summary import summarise
from advfrontier.pool import TIERS
from advfrontier.report import print_summaries, write_report
from advfrontier.report.numbers import tier
from advfrontier.store.folder import below, open_folder, write_files

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

    from advfrontier.cli.options import Output
    from advfrontier.evaluation.evaluate import Evaluation
    from advfrontier.evaluation.summary import NormSummary
    from advfrontier.frontier.defence import ReferencePool


def show(evaluations: Sequence[Evaluation], folder: str, output: Output) -> None:
    """Tables in the terminal, or JSON; report and exports in the folder."""
    summaries = [summary_of(evaluation, output.radii) for evaluation in evaluations]
    show_summaries(summaries, as_json=output.json)
    if output.export is not None:
        export_all(evaluations, folder, output.export, radii=output.radii, as_json=output.json)
    if output.report:
        path = write_report(below(folder, "report.html"), summaries, references=references_of(evaluations))
        say(f"report: {path}", as_json=output.json)


def show_summaries(summaries: Sequence[NormSummary], *, as_json: bool) -> None:
    """All figures."""
    if as_json:
        say_json([summary.to_dict() for summary in summaries])
    else:
        print_summaries(summaries)


def export_all(evaluations: Iterable[Evaluation], folder: str, kind: str, *, radii: str | None, as_json: bool) -> None:
    """A table of every evaluation, named after its record: below the folder there may be several models."""
    root, ending = open_folder(folder).place, "json" if kind == "card" else kind

    def write(aside: Path) -> Iterator[Path]:
        for evaluation in evaluations:
            inside = evaluation.store.place.removeprefix(root).strip("/") or evaluation.norm
            shown = radii_for(evaluation.data, evaluation.norm, radii)
            yield write_export(evaluation, kind, aside / f"{inside}.{ending}", radii=shown)

    for path in write_files(folder, write):
        say(f"{'card' if kind == 'card' else 'table'}: {path}", as_json=as_json)


def summary_of(evaluation: Evaluation, radii: str | None) -> NormSummary:
    """All figures of one evaluation, against the embedded pool where its samples are from there."""
    pool, why_not = _reference(evaluation)
    found = summarise(
        evaluation,
        radii=radii_for(evaluation.data, evaluation.norm, radii),
        reference=pool,
        class_names=evaluation.class_names,
    )
    return found if why_not is None else replace(found, no_standing=why_not)


def references_of(evaluations: Iterable[Evaluation]) -> dict[str, ReferencePool]:
    """Norm → the embedded pool at the tier of the first evaluation in it: the one a report is about."""
    first: dict[str, Evaluation] = {}
    for evaluation in evaluations:
        first.setdefault(evaluation.norm, evaluation)
    return {norm: pool for norm, evaluation in first.items() if (pool := _reference(evaluation)[0]) is not None}


def common_pool(evaluations: Sequence[Evaluation], norm: str, *, name: str) -> ReferencePool:
    """A shipped pool at the largest of its tiers that all of these evaluations in a norm went through."""
    tiers = [each for each in TIERS if all(each in evaluation.ensemble.tiers for evaluation in evaluations)]
    pool = reference_pool(norm, tiers[-1] if tiers else TIERS[-1], name=name)
    for evaluation in evaluations:
        if extra := len(set(evaluation.samples) - set(pool.samples)):
            raise FrontierError(
                f"the reference models were run on the first {len(pool.samples)} samples of {name}, and {extra} of the "
                f"{len(evaluation.samples)} of {evaluation.model} are others: evaluate it with --data {name} "
                f"--samples {len(pool.samples)}"
            )
    if not tiers:
        found = ", ".join(f"{e.model} with {tier(e.ensemble.tiers[-1])}" for e in evaluations)
        raise FrontierError(
            f"the reference models were run with {', '.join(map(tier, TIERS))} queries per sample, {found}: expected "
            f"tiers in common; type --tier {tier(TIERS[0])}"
        )
    return pool


def _reference(evaluation: Evaluation) -> tuple[ReferencePool | None, str | None]:
    """The embedded pool at the evaluation's tier; or why it cannot stand in it, if that could be expected of it."""
    try:
        return common_pool([evaluation], evaluation.norm, name=REFERENCES[0]), None
    except FrontierError as error:
        near = set(evaluation.samples) & set(reference_pool(evaluation.norm, TIERS[0]).samples)
        return None, str(error) if near else None


def say(text: str, *, as_json: bool) -> None:
    """A line for people, which must not get into JSON."""
    if not as_json:
        print(text)


def say_json(content: Any) -> None:
    """What other programs read."""
    print(json.dumps(content, indent=2, ensure_ascii=False))
