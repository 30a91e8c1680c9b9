"""A record: `record.json`, `clean.safetensors`, the images, and one file per unit of work.

Who only reads a record changes nothing, whatever state it is in. Who works on it deletes nothing but files of the names
it writes.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import fields
from functools import cached_property, partial
from os import PathLike
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from advfrontier.engine import CleanPass
from advfrontier.engine.data import Samples
from advfrontier.errors import FrontierError
from advfrontier.flags import Flag, Kind
from advfrontier.pool import Run
from advfrontier.record.folder import FILE, Folder, below, check_empty, norm_folder, open_folder
from advfrontier.record.header import Header, RecordKind
from advfrontier.record.identity import code_digest, data_digest, mark, rounds_alike, versions
from advfrontier.record.images import IMAGES, VerifiedImages, read_stored
from advfrontier.record.tensors import Damaged, pack, unpack
from advfrontier.record.units import UNITS, StoredUnit, UnitName, shards_of
from advfrontier.threat.names import NORMS

_CLEAN, _CERTIFIED = "clean.safetensors", "certified.safetensors"
_DEPTH = 3  # folders below the one named that are searched for records
_COMMANDS = {"evaluation": "evaluate", "trace": "trace", "baseline": "baseline"}


class Record:
    """The files of one record, and its header as it was last read or written."""

    def __init__(self, folder: Folder, header: Header) -> None:
        self.folder, self.header = folder, header
        self.place = folder.place  # what opens it again
        self.temporary = False  # whether its folder goes when nobody uses it any more
        self.damaged: dict[str, str] = {}  # files found damaged or foreign, each with the reason

    # Opening

    @classmethod
    def find(cls, place: str | PathLike[str]) -> Record | None:
        """The record in a folder, if there is one."""
        folder = open_folder(place)
        content = folder.read(FILE)
        return None if content is None else cls(folder, Header.from_bytes(content, folder.place))

    @classmethod
    def open(cls, place: str | PathLike[str], kind: RecordKind) -> Record:
        """The record of a kind in a folder, or in the folder of the only norm there. Raises if there is none."""
        here = cls.find(place)
        records = (
            [here]
            if here
            else [inside for norm in NORMS if (inside := cls.find(below(place, norm)))]
        )
        if len(records) > 1:
            named = ", ".join(record.header.terms.norm for record in records)
            raise FrontierError(
                f"{place} holds several norms ({named}): open one, such as {records[0].place}"
            )
        if not records or records[0].header.kind != kind:
            found = f"a record of the kind {records[0].header.kind}" if records else "nothing"
            raise FrontierError(
                f"{place} holds no {kind}: found {found}, expected a folder that `advfrontier {_COMMANDS[kind]} --out` "
                "has written"
            )
        return records[0]

    @classmethod
    def begin(cls, place: str | PathLike[str], header: Header) -> Record:
        """Start a record in a folder that does not exist yet, or is empty."""
        record = cls(check_empty(place), header)
        record._write(header)
        return record

    # The header

    def change(self, changes: Callable[[Header], Mapping[str, Any]]) -> None:
        """Write what the function makes of the header as it is now: others may work on the record too."""
        content = self.folder.read(FILE)
        if content is None:
            raise FrontierError(
                f"{self.place}/{FILE} is gone: expected the record that was opened; put it back"
            )
        if content != self.header.to_bytes():
            self.header = Header.from_bytes(content, self.place)
        changed = self.header.model_copy(update=dict(changes(self.header)))
        if changed != self.header:
            self._write(changed)

    def _write(self, header: Header) -> None:
        self.folder.write(FILE, header.to_bytes())
        self.header = header

    def check_code(self) -> None:
        """Before more is computed: note other versions that round, and refuse to mix the distances of two codes."""
        header, here = self.header, versions()
        if header.code != code_digest():
            raise FrontierError(
                f"{self.place} was computed by other code: advfrontier {header.versions.advfrontier} with the mark "
                f"{header.code[:8]}; here is {here.advfrontier} with {code_digest()[:8]}. Distances of both do not "
                "belong in one record: choose a new folder, or install that version to go on; what the record holds "
                "can still be read"
            )
        if not any(rounds_alike(here, known) for known in (header.versions, *header.later)):
            self.change(lambda header: {"later": (*header.later, here)})

    # The clean pass

    @cached_property
    def clean(self) -> CleanPass:
        """The clean pass. Raises if it is missing or damaged."""
        found = self.read_clean()
        if found is None:
            raise FrontierError(
                f"{self.place} lacks its clean pass{self.why(_CLEAN)}; {self.header.how_to_go_on}"
            )
        return found

    def read_clean(self) -> CleanPass | None:
        """The clean pass, if it has been done and belongs to this record."""
        found = self.read_file(_CLEAN, self._mark("clean"))
        if found is None:
            return None
        tensors, _ = found
        try:
            clean = CleanPass(ids=tensors.pop("ids").numpy().view("uint64"), **tensors)
        except (
            KeyError,
            TypeError,
            ValueError,
        ):  # tensors of another version of this file, or of a forged one
            return None
        return clean if data_digest(clean.ids, clean.labels) == self.header.data.digest else None

    def write_clean(self, clean: CleanPass) -> None:
        """Store the clean pass of all samples: those of the header, or more after them."""
        data = {"samples": len(clean.labels), "digest": data_digest(clean.ids, clean.labels)}
        # What was finished was so on fewer samples: said in one step with their number, for a kill may come any moment.
        more = {} if data["digest"] == self.header.data.digest else {"finished": None}
        self.change(lambda header: {"data": header.data.model_copy(update=data), **more})
        tensors = {
            field.name: getattr(clean, field.name) for field in fields(clean) if field.name != "ids"
        }
        tensors["ids"] = torch.from_numpy(clean.ids.view("int64").copy())
        self.write_file(_CLEAN, tensors, {}, self._mark("clean"))
        self.__dict__["clean"] = clean

    def replace_flag(self, kind: Kind, flag: Flag | None) -> None:
        """Put a flag in the place of those of its kind, or remove these."""
        added = () if flag is None else (flag,)
        self.change(
            lambda header: {"flags": (*(old for old in header.flags if old.kind != kind), *added)}
        )

    def add_counts(self, counts: Mapping[str, int]) -> None:
        """Count passes through the model that belong to no unit."""
        self.change(
            lambda old: {
                "counts": old.counts | {k: old.counts.get(k, 0) + n for k, n in counts.items()}
            }
        )

    # Certified radii

    def read_certified(self) -> NDArray[np.float64] | None:
        """Per sample the radius that provably holds no misclassified point; None if nobody has computed it."""
        found = self.read_file(_CERTIFIED, self._mark("certified"))
        radii = None if found is None else found[0].get("radii")
        return (
            None
            if radii is None or radii.shape != self.clean.labels.shape
            else radii.double().numpy()
        )

    def write_certified(self, radii: NDArray[np.float64]) -> None:
        """Store certified radii, one per sample."""
        self.write_file(_CERTIFIED, {"radii": torch.from_numpy(radii)}, {}, self._mark("certified"))

    def _mark(self, what: str) -> str:
        """Of a file that tells of all samples."""
        return mark(self.header, what, self.header.data.digest)

    def samples(self) -> Samples:
        """The samples, read from the images beside the record."""
        terms, data = self.header.terms, self.header.data
        read = partial(read_stored, self.place, terms.shard, len(self.clean.labels))
        images = VerifiedImages(read, self.clean.ids, terms.shard, f"{self.place}/{IMAGES}")
        return Samples(data.name, self.clean.labels, images, data.class_names or None)

    def images(self, samples: Samples) -> VerifiedImages:
        """Reads the images of samples, and refuses others than those of the record."""
        return VerifiedImages(samples.read, self.clean.ids, self.header.terms.shard, samples.name)

    # Units

    @property
    def shards(self) -> list[tuple[int, int]]:
        """First row and number of rows of each shard."""
        return shards_of(len(self.clean.labels), self.header.terms.shard)

    def layout(self, runs: Iterable[str]) -> Iterator[tuple[UnitName, Tensor]]:
        """The units of these runs that have anything to attack, and the rows they attack."""
        for run in runs:
            for shard in self.shards:
                if len(rows := self.clean.attacked(*shard)):
                    yield UnitName(run, *shard), rows

    def unit_files(self) -> list[tuple[UnitName, int]]:
        """All of them: also the shorter of two that a kill has left of one unit."""
        return [
            found
            for name in self.folder.names(UNITS)
            if (found := UnitName.of_file(name)) is not None
        ]

    def units(self) -> dict[UnitName, int]:
        """How far every unit has come, from the names of the files alone."""
        return dict(sorted(self.unit_files()))  # the longest of a unit comes last

    def finished(self, wanted: Mapping[str, int]) -> tuple[int, int]:
        """How many units of these queries per run are done, and how many there are."""
        done = self.units()
        found = [done.get(unit, 0) >= wanted[unit.run] for unit, _ in self.layout(wanted)]
        return sum(found), len(found)

    def unit_mark(self, unit: UnitName, solver: str) -> str:
        """The mark of a unit of this record: the samples of its shard, and its solver in words, decide it too."""
        rows = slice(unit.first, unit.first + unit.count)
        return mark(
            self.header,
            unit.run,
            solver,
            data_digest(self.clean.ids[rows], self.clean.labels[rows]),
        )

    def read_unit(
        self, unit: UnitName, queries: int, names: Collection[str] | None = None
    ) -> StoredUnit | None:
        """A unit at exactly these queries, or some of its tensors; None if it is missing, damaged or foreign.

        Points and states are large and the rest is small: who needs only some tensors should name them.
        """
        solver = self.header.solvers.get(Run.parse(unit.run).attack, "")
        found = self.read_file(unit.file(queries), self.unit_mark(unit, solver), names)
        return None if found is None else StoredUnit(queries, *found)

    def read_units(
        self,
        wanted: Mapping[str, int],
        names: Collection[str],
        *,
        heal: Callable[[UnitName, int], None] | None = None,
        only: Callable[[UnitName, Tensor], bool] | None = None,
    ) -> Iterator[tuple[UnitName, Tensor, StoredUnit]]:
        """Every unit of these runs, or only some, with the rows it attacked and the tensors named.

        One that is missing, damaged or of another record is computed again where `heal` can.
        """
        done = self.units()
        for unit, rows in self.layout(wanted):
            if only is not None and not only(unit, rows):
                continue
            queries = max(wanted[unit.run], done.get(unit, 0))
            stored = self.read_unit(unit, queries, names)
            if (
                stored is None and (further := self.units().get(unit, 0)) > queries
            ):  # extended at this moment
                queries = further
                stored = self.read_unit(unit, queries, names)
            if stored is None and heal is not None:
                heal(unit, queries)
                stored = self.read_unit(unit, queries, names)
            if stored is None:
                why = self.why(unit.file(queries))
                cure = (
                    "; remove that file" if why else ""
                )  # by its name it is done, and not all of it is always read
                raise FrontierError(
                    f"{self.place} lacks {unit}{why}{cure}; {self.header.how_to_go_on}"
                )
            yield unit, rows, stored

    def spent(self) -> Counter[str]:
        """Passes through the model that no unit counts: setting the record up, and shards that grew since."""
        return sum(
            (Counter(counts) for counts in self.header.replaced.values()),
            Counter(self.header.counts),
        )

    # Files

    def copy(self, place: str | PathLike[str]) -> None:
        """Copy the record into `place/NORM`, new or empty; the header last: without it nothing counts."""
        place = norm_folder(place, self.header.terms.norm)
        if Record.find(place) is not None:
            raise FrontierError(f"{place} holds a record already: expected a new or empty folder")
        if self.folder.read(FILE) is None:
            raise FrontierError(f"{self.place} is gone: there is nothing to copy")
        target = check_empty(place)
        several = (name for under in (UNITS, IMAGES, "radii") for name in self.folder.names(under))
        for name in (*several, _CLEAN, _CERTIFIED, FILE):
            if (content := self.folder.read(name)) is not None:
                target.write(name, content)

    def read_file(
        self, name: str, belongs: str, names: Collection[str] | None = None
    ) -> tuple[dict[str, Tensor], dict[str, str]] | None:
        """A tensor file that carries this mark, or some of its tensors; None if it is missing, damaged or foreign."""
        self.damaged.pop(name, None)
        file = self.folder.open(name)
        if file is None:
            return None
        with file:
            try:
                tensors, words = unpack(file, names)
            except Damaged as error:
                self.damaged[name] = f"{name}: {error}"
                return None
        if words.pop("belongs", None) != belongs:
            self.damaged[name] = (
                f"{name} belongs to another record: of another model, other samples or terms"
            )
            return None
        return tensors, words

    def why(self, name: str) -> str:
        """In brackets, why a file that is there was not read."""
        return f" ({self.damaged[name]})" if name in self.damaged else ""

    def write_file(
        self, name: str, tensors: Mapping[str, Tensor], words: Mapping[str, str], belongs: str
    ) -> None:
        """Write a tensor file with its mark."""
        self.folder.write(name, pack(tensors, {**words, "belongs": belongs}))


def find_records(path: str, *, kind: RecordKind, needed: bool = True) -> list[Record]:
    """The records of a kind at or below a folder, sorted, norms in their usual order. Raises if some are needed."""
    folder = open_folder(path)
    names = folder.names(depth=_DEPTH)
    inside = (
        tuple(name.split("/")[:-1]) for name in names if name == FILE or name.endswith(f"/{FILE}")
    )
    ours = [parts for parts in inside if _is_ours(folder.read("/".join((*parts, FILE))))]
    ours.sort(
        key=lambda parts: (
            (parts[:-1], NORMS.index(parts[-1])) if {*parts[-1:]} & {*NORMS} else (parts, -1)
        )
    )
    records = [record for parts in ours if (record := Record.find(below(path, *parts))) is not None]
    found = [record for record in records if record.header.kind == kind]
    if not found and needed:
        lacks = (
            f"{path} holds no record of the kind {kind}"
            if names
            else f"no folder {path}, or nothing in it"
        )
        raise FrontierError(f"{lacks}: type `advfrontier {_COMMANDS[kind]} … --out {path}`")
    return found


def _is_ours(content: bytes | None) -> bool:
    """Whether a file of this name is a record's: a damaged one counts, so that its reader says what is wrong."""
    try:
        return "schema" in json.loads(content or b"{}")
    except (ValueError, TypeError, RecursionError):
        return True
