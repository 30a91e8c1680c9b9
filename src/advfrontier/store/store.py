"""A record: `record.json`, `clean.safetensors`, and one file per unit of work.

A unit's file is named by run, shard and queries (`units/fmn.target1/00200+100-0270.safetensors`: rows 200 to 299, the
first 270 queries), so what is done can be read off the names alone. Extending a unit writes the longer file and then
removes the shorter; whoever reads takes the longest valid one.
"""

from __future__ import annotations

import io
import json
import re
import time
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from advfrontier.errors import FrontierError
from advfrontier.store.folder import Folder, LocalFolder, open_folder
from advfrontier.store.packing import Damaged, pack, unpack_parts

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping
    from pathlib import Path
    from typing import BinaryIO

    from torch import Tensor

SCHEMA = 2
_UNIT = re.compile(r"units/(?P<run>[^/]+)/(?P<first>\d+)\+(?P<count>\d+)-(?P<queries>\d+)\.safetensors")
_ABANDONED = 3600  # seconds after which a file that was being written aside is taken for what a kill left


@dataclass(frozen=True, order=True)
class UnitName:
    """One run on one shard: `count` rows of the data from `first` on."""

    run: str
    first: int
    count: int

    def file(self, queries: int) -> str:
        """The file's name; a colon is no good in file names everywhere."""
        folder = self.run.replace(":", ".")
        return f"units/{folder}/{self.first:05d}+{self.count:03d}-{queries:04d}.safetensors"

    def __str__(self) -> str:
        return f"{self.run} on samples {self.first}–{self.first + self.count - 1}"


@dataclass(frozen=True)
class StoredUnit:
    """A unit as it was read."""

    queries: int
    tensors: dict[str, Tensor]
    words: dict[str, str]


class Store:
    """The files of one record. Who only reads changes nothing, whatever state he finds it in."""

    def __init__(self, place: str | Path | Folder, *, writing: bool = False) -> None:
        self.folder = place if isinstance(place, Folder) else open_folder(place)
        self.writing = writing
        self.damaged: list[str] = []  # files found damaged, each with the reason; who writes has removed them

    @property
    def place(self) -> str:
        """What opens it again."""
        return self.folder.place

    def record(self) -> dict[str, Any] | None:
        """What `record.json` says, or None if there is none."""
        content = self.folder.read("record.json")
        if content is None:
            return None
        try:
            record = json.loads(content)
            schema = record["schema"]
        except (ValueError, KeyError, TypeError) as error:
            raise FrontierError(
                f"{self.place}/record.json is damaged ({type(error).__name__}: {error}): expected a record; put back a "
                "copy, or remove the folder and start again"
            ) from error
        if schema != SCHEMA:
            raise FrontierError(f"{self.place} holds a record of schema {schema}: this version reads schema {SCHEMA}")
        return dict(record)

    def write_record(self, record: Mapping[str, Any]) -> None:
        """Replace `record.json`."""
        text = json.dumps({"schema": SCHEMA, **record}, indent=2, ensure_ascii=False, allow_nan=False)
        self.folder.write("record.json", text.encode() + b"\n")

    def read(self, name: str, names: Collection[str] | None = None) -> tuple[dict[str, Tensor], dict[str, str]] | None:
        """A tensor file that is no unit, or some of its tensors; None if it is not there or damaged."""
        return self._read(f"{name}.safetensors", names)

    def write(self, name: str, tensors: Mapping[str, Tensor], words: Mapping[str, str] | None = None) -> None:
        """Write a tensor file that is no unit."""
        self.folder.write(f"{name}.safetensors", pack(tensors, words))

    def units(self) -> dict[UnitName, int]:
        """How far every unit has come, from the names of the files alone."""
        longest: dict[UnitName, int] = {}
        for unit, queries in self.unit_files():
            longest[unit] = max(queries, longest.get(unit, 0))
        return longest

    def unit_files(self) -> list[tuple[UnitName, int]]:
        """All of them: also the shorter of two that a kill has left of one unit."""
        found = []
        for name in self.folder.names("units"):
            if parts := _UNIT.fullmatch(name):
                run = parts["run"].replace(".", ":")
                found.append((UnitName(run, int(parts["first"]), int(parts["count"])), int(parts["queries"])))
        return found

    def read_unit(self, unit: UnitName, queries: int, names: Collection[str] | None = None) -> StoredUnit | None:
        """A unit at exactly these queries, or some of its tensors; None if it is not there or damaged.

        Points and states are large and the rest is small: who needs only some tensors should name them.
        """
        found = self._read(unit.file(queries), names)
        return None if found is None else StoredUnit(queries, *found)

    def write_unit(
        self, unit: UnitName, queries: int, tensors: Mapping[str, Tensor], words: Mapping[str, str], *, instead: int = 0
    ) -> None:
        """Write a unit, then remove the shorter file it was extended from."""
        self.folder.write(unit.file(queries), pack(tensors, words))
        if instead and instead != queries:
            self.folder.remove(unit.file(instead))

    def tidy(self) -> None:
        """Remove what kills have left: unit files that a longer one has replaced, and files half written aside."""
        longest = self.units()
        for unit, queries in self.unit_files():
            if queries < longest[unit]:
                self.folder.remove(unit.file(queries))
        if isinstance(self.folder, LocalFolder):
            old = time.time() - _ABANDONED  # others may be writing to the same record just now
            for path in self.folder.path.rglob(".*.*-*"):
                if path.is_file() and path.stat().st_mtime < old:
                    path.unlink(missing_ok=True)

    def _read(self, name: str, names: Collection[str] | None) -> tuple[dict[str, Tensor], dict[str, str]] | None:
        try:
            with self._opened(name) as file:
                return None if file is None else unpack_parts(file, names)
        except Damaged as error:
            self.damaged.append(f"{name}: {error}")
            if self.writing:
                self.folder.remove(name)
            return None

    @contextmanager
    def _opened(self, name: str) -> Iterator[BinaryIO | None]:
        """The file; of one that lies on this machine only what is asked for will be read."""
        if not isinstance(self.folder, LocalFolder):
            content = self.folder.read(name)
            yield None if content is None else io.BytesIO(content)
            return
        try:
            file = (self.folder.path / name).open("rb")
        except FileNotFoundError:
            yield None
            return
        with file:
            yield file
