"""The list of verified records: a file that tells which evaluations a leaderboard may take for true."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from advfrontier.errors import FrontierError
from advfrontier.evaluation.evaluation import Evaluation
from advfrontier.record import open_folder, write_file
from advfrontier.record.header import packed
from advfrontier.record.identity import digest

if TYPE_CHECKING:
    from advfrontier.evaluation.verify import Verification

_LISTED = ("model", "norm", "place", "samples", "points", "units", "again", "same", "close", "seed")


def figures_digest(evaluation: Evaluation) -> str:
    """Of all that tables and ranks are made of: an evaluation that differs in any of it was not verified."""
    header = evaluation.record.header
    about = [header.model, header.data, header.terms, packed(evaluation.ensemble)]
    words = [*(each.model_dump_json() for each in about), *(f"{flag.kind} {flag.text}" for flag in evaluation.flags)]
    words += [*evaluation.samples, *(winner or "" for winner in evaluation.winners)]
    tables = [run.encode() + table.tobytes() for run, table in sorted(evaluation.trajectories.items())]
    return digest("\0".join(words).encode(), evaluation.distances.tobytes(), *tables)


def write_verified(path: str, verifications: Iterable[Verification]) -> str:
    """Add what holds to a list, which is begun if it is not there yet."""
    entries = _read(path) or {}
    for each in verifications:
        if each.holds:
            entries[each.digest] = {name: getattr(each, name) for name in _LISTED}
    return write_file(path, json.dumps({"verified": entries}, indent=2, ensure_ascii=False).encode() + b"\n")


def only_verified(evaluations: Iterable[Evaluation], path: str) -> tuple[list[Evaluation], list[Evaluation]]:
    """Those whose figures stand in a list, and the others."""
    known = _read(path)
    if known is None:
        raise FrontierError(f"no file {path}: expected one that `advfrontier verify … --out {path}` has written")
    found = [(each, figures_digest(each) in known) for each in evaluations]
    return [each for each, listed in found if listed], [each for each, listed in found if not listed]


def _read(path: str) -> dict[str, Any] | None:
    """The entries of a list; None if there is no such file."""
    folder, slash, name = path.replace("\\", "/").rpartition("/")
    content = open_folder(folder or slash or ".").read(name)
    if content is None:
        return None
    try:
        entries = json.loads(content)["verified"]
    except (ValueError, RecursionError, KeyError, TypeError):
        entries = None
    if not isinstance(entries, dict):
        raise FrontierError(f"{path} is no list of verified records: expected what `advfrontier verify --out` wrote")
    return entries
