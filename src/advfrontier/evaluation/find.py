"""Finding evaluations in folders, by model and norm."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from advfrontier.errors import FrontierError
from advfrontier.evaluation.evaluation import Evaluation
from advfrontier.record import find_records


def find_evaluations(paths: Iterable[str], *, skipped: Callable[[str], object] | None = None) -> list[Evaluation]:
    """Open every evaluation at or below these folders. Raises where there is none, or tells `skipped` of it."""
    found = []
    for path in paths:
        records = find_records(path, kind="evaluation", needed=skipped is None)
        if skipped is not None and not records:
            skipped(path)
        found += [Evaluation(record) for record in records]
    return found


def by_model(evaluations: Iterable[Evaluation]) -> dict[str, dict[str, Evaluation]]:
    """Model → norm → evaluation."""
    table: dict[str, dict[str, Evaluation]] = {}
    for evaluation in evaluations:
        norms = table.setdefault(evaluation.model, {})
        if evaluation.norm in norms:
            raise FrontierError(
                f"two records of {evaluation.model} in {evaluation.norm}: {norms[evaluation.norm].place} and "
                f"{evaluation.place}; leave one of them out, or evaluate it under another --name in another --out"
            )
        norms[evaluation.norm] = evaluation
    return table


def of_one_model(folder: str) -> dict[str, Evaluation]:
    """Norm → evaluation of the one model that has records at or below a folder."""
    table = by_model(find_evaluations([folder]))
    if len(table) > 1:
        places = "; ".join(
            f"{model} in {', '.join(evaluation.place for evaluation in norms.values())}"
            for model, norms in table.items()
        )
        raise FrontierError(f"{folder} holds records of {len(table)} models ({places}): expected the folder of one")
    return next(iter(table.values()))
