"""Tidying a record that is worked on: only files of the names that this program writes are ever removed."""

from __future__ import annotations

import re
import time

from advfrontier.record.images import FOLDER as IMAGES
from advfrontier.record.images import image_file
from advfrontier.record.record import Record
from advfrontier.record.tensors import Damaged, unpack
from advfrontier.record.units import FOLDER as UNITS
from advfrontier.record.units import StoredUnit, UnitName

_ABANDONED = 3600  # seconds after which a file that was being written is taken for what a kill left
_IMAGE_FILE = re.compile(rf"{IMAGES}/\d+\+\d+\.safetensors")


def tidy(record: Record) -> None:
    """Remove units that a longer one has replaced, files of shards that have grown, and what kills have left."""
    longest, layout = record.units(), set(record.shards)
    grown = [(unit, queries) for unit, queries in record.unit_files() if unit.shard not in layout]
    if grown:  # their passes were spent: write that down before they go
        spent = {unit.file(queries): _spent(record, unit, queries) for unit, queries in grown}
        record.change(lambda header: {"replaced": header.replaced | spent})
    for unit, queries in record.unit_files():
        if unit.shard not in layout or queries < longest[unit]:
            record.folder.remove(unit.file(queries))
    wanted = {image_file(first, count) for first, count in layout}
    for name in record.folder.names(IMAGES):
        if name not in wanted and _IMAGE_FILE.fullmatch(name):
            record.folder.remove(name)
    runs = {f"{UNITS}/{unit.run.replace(':', '.')}" for unit in longest}
    for under in ("", IMAGES, *runs):  # others may be writing to the same record just now
        record.folder.remove_abandoned(under, time.time() - _ABANDONED)


def _spent(record: Record, unit: UnitName, queries: int) -> dict[str, int]:
    """What a unit of another layout cost; nothing is known of one that is damaged."""
    file = record.folder.open(unit.file(queries))
    if file is None:
        return {}
    with file:
        try:
            return dict(StoredUnit(queries, *unpack(file, ())).spent)
        except (Damaged, KeyError, ValueError):
            return {}
