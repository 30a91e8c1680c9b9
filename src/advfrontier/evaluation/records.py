"""Finding records: a folder that holds one, or folders below it that do (one per norm, one per model)."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from advfrontier.errors import FrontierError
from advfrontier.evaluation.evaluate import EVALUATION, Evaluation
from advfrontier.evaluation.trace import TRACE
from advfrontier.store.folder import below, open_folder
from advfrontier.threat.names import NORMS

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

_DEPTH = 3  # folders below the one named that are searched
_FILE = "record.json"


def find_places(path: str, *, kind: str) -> list[str]:
    """The records of a kind at or below a folder, sorted, norms in their usual order."""
    folder = open_folder(path)
    names = folder.names(depth=_DEPTH)
    if not names:
        raise FrontierError(
            f"no folder {path}, or nothing in it: expected one that `advfrontier {_COMMANDS[kind]} --out` has written"
        )
    records = (tuple(name.split("/")[:-1]) for name in names if name == _FILE or name.endswith(f"/{_FILE}"))
    found = [inside for inside in records if _is(folder.read("/".join((*inside, _FILE))), kind)]
    if not found:
        raise FrontierError(
            f"{path} holds no record of the kind {kind}: type `advfrontier {_COMMANDS[kind]} … --out {path}`"
        )
    return [below(path, *inside) for inside in sorted(found, key=_order)]


def find_evaluations(paths: Iterable[str]) -> list[Evaluation]:
    """Open every evaluation at or below these folders."""
    return [Evaluation.load(place) for path in paths for place in find_places(path, kind=EVALUATION)]


def by_model(evaluations: Iterable[Evaluation]) -> dict[str, dict[str, Evaluation]]:
    """Model → norm → evaluation."""
    table: dict[str, dict[str, Evaluation]] = {}
    for evaluation in evaluations:
        norms = table.setdefault(evaluation.model, {})
        if evaluation.norm in norms:
            raise FrontierError(
                f"two records of {evaluation.model} in {evaluation.norm}: {norms[evaluation.norm].store.place} and "
                f"{evaluation.store.place}; give one of them another name with `advfrontier evaluate --name`"
            )
        norms[evaluation.norm] = evaluation
    return table


def of_one_model(folder: str) -> dict[str, Evaluation]:
    """Norm → evaluation of the one model that has records at or below a folder."""
    table = by_model(find_evaluations([folder]))
    if len(table) > 1:
        places = "; ".join(
            f"{model} in {', '.join(evaluation.store.place for evaluation in norms.values())}"
            for model, norms in table.items()
        )
        raise FrontierError(f"{folder} holds records of {len(table)} models ({places}): expected the folder of one")
    return next(iter(table.values()))


_COMMANDS = {EVALUATION: "evaluate", TRACE: "trace"}


def _is(content: bytes | None, kind: str) -> bool:
    try:
        return bool(json.loads(content or b"").get("kind") == kind)
    except (ValueError, AttributeError):
        return False


def _order(inside: Sequence[str]) -> tuple[tuple[str, ...], int]:
    last = NORMS.index(inside[-1]) if inside and inside[-1] in NORMS else -1
    return (tuple(inside[:-1]), last) if last >= 0 else (tuple(inside), last)
