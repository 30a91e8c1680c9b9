"""Finding records: a folder that holds one, or folders below it that do (one per norm, one per model)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

from advfrontier.errors import FrontierError
from advfrontier.evaluation.evaluate import EVALUATION, Evaluation
from advfrontier.evaluation.trace import TRACE
from advfrontier.threat.names import NORMS

if TYPE_CHECKING:
    from collections.abc import Iterable

_DEPTH = 3  # folders below the one named that are searched


def find_places(path: str, *, kind: str) -> list[str]:
    """The records of a kind at or below a folder, sorted, norms in their usual order."""
    if "://" in path:
        return [path]
    root = Path(path)
    if not root.is_dir():
        raise FrontierError(f"no folder {path}: expected one that `advfrontier {_COMMANDS[kind]} --out` has written")
    below = [root, *(folder for depth in range(1, _DEPTH + 1) for folder in root.glob("/".join("*" * depth)))]
    found = [folder for folder in below if _is(folder, kind)]
    if not found:
        raise FrontierError(
            f"{path} holds no record of the kind {kind}: type `advfrontier {_COMMANDS[kind]} … --out {path}`"
        )
    return [str(folder) for folder in sorted(found, key=_order)]


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


_COMMANDS = {EVALUATION: "evaluate", TRACE: "trace"}


def _is(folder: Path, kind: str) -> bool:
    try:
        return bool(json.loads((folder / "record.json").read_bytes()).get("kind") == kind)
    except (OSError, ValueError, AttributeError):
        return False


def _order(folder: Path) -> tuple[str, int]:
    last = NORMS.index(folder.name) if folder.name in NORMS else -1
    return (str(folder.parent), last) if last >= 0 else (str(folder), last)
