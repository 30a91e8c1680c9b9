"""Finding records: a folder that holds one, or folders below it that do (one per norm, one per model)."""

from __future__ import annotations

import json
from collections.abc import Sequence

from advfrontier.errors import FrontierError
from advfrontier.record.folder import below, open_folder
from advfrontier.record.header import FILE, RecordKind
from advfrontier.record.record import COMMANDS, Record
from advfrontier.threat.names import NORMS

_DEPTH = 3  # folders below the one named that are searched


def find_records(path: str, *, kind: RecordKind, needed: bool = True) -> list[Record]:
    """The records of a kind at or below a folder, sorted, norms in their usual order. Raises if some are needed."""
    folder = open_folder(path)
    names = folder.names(depth=_DEPTH)
    inside = (tuple(name.split("/")[:-1]) for name in names if name == FILE or name.endswith(f"/{FILE}"))
    ours = [parts for parts in inside if _is_ours(folder.read("/".join((*parts, FILE))))]
    records = [record for parts in sorted(ours, key=_order) if (record := Record.find(below(path, *parts))) is not None]
    found = [record for record in records if record.header.kind == kind]
    if not found and needed:
        lacks = f"{path} holds no record of the kind {kind}" if names else f"no folder {path}, or nothing in it"
        raise FrontierError(f"{lacks}: type `advfrontier {COMMANDS[kind]} … --out {path}`")
    return found


def _is_ours(content: bytes | None) -> bool:
    """Whether a file of this name is a record's: a damaged one counts, so that its reader says what is wrong."""
    try:
        return "schema" in json.loads(content or b"{}")
    except (ValueError, TypeError, RecursionError):
        return True


def _order(inside: Sequence[str]) -> tuple[tuple[str, ...], int]:
    last = NORMS.index(inside[-1]) if inside and inside[-1] in NORMS else -1
    return (tuple(inside[:-1]), last) if last >= 0 else (tuple(inside), last)
