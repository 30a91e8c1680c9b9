"""Record: `record.json`, `clean.safetensors`, the images, and one file per unit of work.

Reading a record changes nothing, whatever state it is in. Working on a record deletes nothing but
files of the names that it writes.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import fields
from functools import cached_property, partial
from os import PathLike

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from advfrontier.engine import CleanPass, Oracle
from advfrontier.engine.data import Samples
from advfrontier.errors import FrontierError, ReadOnlyError, explain_os_errors
from advfrontier.numerics import NUMERICS
from advfrontier.pool import TARGETS, Ensemble, Raise, attack_of
from advfrontier.pool.ensemble import refinements
from advfrontier.record.folder import FILE, Folder, below, check_empty, norm_folder, open_folder
from advfrontier.record.header import Header, HeaderChange, RecordKind, solver_repr
from advfrontier.record.identity import data_digest, mark, versions
from advfrontier.record.images import IMAGES, VerifiedImages, read_stored
from advfrontier.record.journal import Journal
from advfrontier.record.tensors import Damaged, pack, require, unpack
from advfrontier.record.units import UNITS, StoredUnit, UnitName, parts_to_read, shards_of
from advfrontier.threat.domain import Space
from advfrontier.threat.names import NORMS, UNIT_BOX, is_norm
from advfrontier.threat.norms import Norm, make_norm

_CLEAN, _CERTIFIED = "clean.safetensors", "certified.safetensors"
_DOMAIN = "domain.safetensors"
_DEPTH = 3  # folders below the one named that are searched for records
_COMMANDS = {"evaluation": "evaluate", "trace": "trace", "baseline": "baseline"}


class Record:
    """Files of one record, and its header as it was last read or written.

    Args:
        folder: Folder of the record.
        header: Header, as it was read or written last.
    """

    def __init__(self, folder: Folder, header: Header) -> None:
        self.folder, self.header = folder, header
        self.place = folder.place  # what opens it again
        self.temporary = False  # whether its folder is deleted when nobody uses it any more
        self.damaged: dict[str, str] = {}  # files found damaged or foreign, each with the reason
        self._content = b""  # of record.json, as `_stored` was read from it
        self._stored = header
        self._journal = Journal(folder, header.model.digest)

    # Opening

    @classmethod
    def find(cls, place: str | PathLike[str]) -> Record | None:
        """Return the record in a folder, or None if there is none.

        Args:
            place: Path or address of the record's folder.
        """
        folder = open_folder(place)
        content = folder.read(FILE)
        if content is None:
            return None
        record = cls(folder, Header.from_bytes(content, folder.place))
        record._content = content
        record._apply_journal()
        return record

    @classmethod
    def open(cls, place: str | PathLike[str], kind: RecordKind) -> Record:
        """Return the record in a folder, or in the folder of the only norm there.

        Args:
            place: Path or address of the record's folder.
            kind: Kind that the record must be of; another one raises.
        """
        here = cls.find(place)
        records = [here] if here is not None else _records_of_norms(place)
        if len(records) > 1:
            norms = ", ".join(record.header.terms.norm for record in records)
            raise FrontierError(
                f"{place} holds several norms ({norms}): open one, such as {records[0].place}"
            )
        if not records or records[0].header.kind != kind:
            found = f"a record of the kind {records[0].header.kind}" if records else "nothing"
            raise FrontierError(
                f"{place} holds no {kind}: found {found}, expected a folder that "
                f"`advfrontier {_COMMANDS[kind]} --out` has written"
            )
        return records[0]

    @classmethod
    def begin(cls, place: str | PathLike[str], header: Header) -> Record | None:
        """Start a record in a folder that does not exist yet, or is empty.

        Args:
            place: Path or address of a folder that does not exist yet, or is empty.
            header: First header of the record.

        Returns:
            The record; None if another process has started one there at this moment.
        """
        folder = open_folder(place)
        try:
            check_empty(place)
        except FrontierError:
            if folder.read(FILE) is not None:
                return None
            raise
        content = header.to_bytes()
        with folder.lock():
            if not folder.create(FILE, content):
                return None
        record = cls(folder, header)
        record._content = content
        return record

    # The header

    def reload(self) -> None:
        """Read the header as it is now: others may work on the record too."""
        content = self.folder.read(FILE)
        if content is None:
            raise FrontierError(
                f"{self.place}/{FILE} is gone: expected the record that was opened; put it back"
            )
        if content != self._content:
            self._stored = Header.from_bytes(content, self.place)
            self._content = content
        self._apply_journal()

    def change(self, change: HeaderChange, *, optional: bool = False) -> bool:
        """Change the header in one transaction; changes of other writers stay.

        Nothing is written where nothing changes.

        Args:
            change: Change of the header, made in one transaction.
            optional: Do without the change where the folder must not be written.

        Returns:
            Whether the header in the folder holds the change now.
        """
        self.reload()
        self._refuse_other_solvers(change)
        if change.apply(self.header) == self.header:
            return True
        try:
            with self.folder.lock() as locked:
                self.reload()
                self._refuse_other_solvers(change)
                changed = change.apply(self.header)
                if changed == self.header:
                    return True
                if locked and not self._journal.begun:
                    self._write(changed)
                else:
                    self._journal.append(change)
                    self.header = changed
        except ReadOnlyError:
            if optional:
                return False
            raise
        return True

    def _write(self, header: Header) -> None:
        content = header.to_bytes()
        self.folder.write(FILE, content)
        self.header = self._stored = header
        self._content = content

    def _apply_journal(self) -> None:
        header = self._stored
        for entry in self._journal.read():
            header = entry.change.apply(header)
        self.header = header

    def _refuse_other_solvers(self, change: HeaderChange) -> None:
        for attack, parameters in change.solvers.items():
            known = self.header.solvers.get(attack, parameters)
            if known != parameters:
                raise FrontierError(
                    f"{self.place} was made with another solver of {attack}: {solver_repr(known)}, "
                    f"not {solver_repr(parameters)}. Choose another folder, or give the solver "
                    "that it was made with"
                )

    def check_numerics(self) -> None:
        """Raise if distances computed here would not be of one kind with those of the record.

        Other versions of libraries that round are no reason to raise; they are noted.
        """
        header, here = self.header, versions()
        if header.numerics != NUMERICS:
            before = ", ".join(f"{room} {number}" for room, number in header.numerics.items())
            now = ", ".join(f"{room} {number}" for room, number in NUMERICS.items())
            writer = header.versions.advfrontier
            install = f", or install advfrontier {writer}" if writer != here.advfrontier else ""
            raise FrontierError(
                f"{self.place} was computed with the numerics {before} (advfrontier {writer}); "
                f"here they are {now} (advfrontier {here.advfrontier}). Distances of both do not "
                f"belong in one record. To extend it, evaluate again in a new folder{install}. The "
                "record can still be read and compared"
            )
        self.change(HeaderChange(later=here))

    # The clean pass

    @cached_property
    def clean(self) -> CleanPass:
        """Return the clean pass; raise if it is missing or damaged."""
        clean = self.read_clean()
        if clean is None:
            raise FrontierError(
                f"{self.place} lacks its clean pass{self.why(_CLEAN)}; {self.header.how_to_resume}"
            )
        return clean

    def read_clean(self) -> CleanPass | None:
        """Return the clean pass, or None if it is missing, damaged or of another record."""
        content = self.read_file(_CLEAN, self._mark("clean"))
        if content is None:
            return None
        try:
            return _clean_pass(content[0], self.header)
        except Damaged as error:
            self.damaged[_CLEAN] = f"{_CLEAN}: {error}"
            return None

    def write_clean(self, clean: CleanPass) -> None:
        """Store the clean pass of all samples: those of the header, or more after them.

        Args:
            clean: Clean pass of all samples.
        """
        identity = {
            "samples": len(clean.labels),
            "digest": data_digest(clean.ids, clean.labels),
        }
        # In the same step nothing is finished any more, for a kill may come at any moment.
        self.change(HeaderChange(data=self.header.data.model_copy(update=identity)))
        tensors = {}
        for column in fields(clean):
            if column.name != "ids":
                tensors[column.name] = getattr(clean, column.name)
        tensors["ids"] = torch.from_numpy(clean.ids.view("int64").copy())
        self.write_file(_CLEAN, tensors, {}, self._mark("clean"))
        self.__dict__["clean"] = clean

    # The domain

    @cached_property
    def space(self) -> Space | None:
        """Return the domain; None for samples in [0, 1]. Raise if it is missing or damaged."""
        if self.header.terms.domain == UNIT_BOX:
            return None
        content = self.read_file(_DOMAIN, mark(self.header, "domain"))
        try:
            space = None if content is None else _space(content[0], self.header)
        except (Damaged, FrontierError) as error:
            self.damaged[_DOMAIN] = f"{_DOMAIN}: {error}"
            space = None
        if space is None:
            raise FrontierError(
                f"{self.place} lacks its domain{self.why(_DOMAIN)}; {self.header.how_to_resume}"
            )
        return space

    @property
    def limits(self) -> tuple[float, float]:
        """Return the smallest and the largest value that samples and points may have."""
        return (0, 1) if self.space is None else self.space.limits

    def norm(self, oracle: Oracle) -> Norm:
        """Return the norm, in a domain in the coordinates of its search.

        Args:
            oracle: The model, where points will be.
        """
        name = self.header.terms.norm
        if self.space is None:
            return make_norm(name, self.header.data.shape)
        return self.space.norm(name, oracle.device, oracle.dtype)

    def write_space(self, space: Space) -> None:
        """Store the domain, unless it is there.

        Args:
            space: Domain of the samples.
        """
        if self.read_file(_DOMAIN, mark(self.header, "domain")) is None:
            self.write_file(_DOMAIN, space.tensors, {}, mark(self.header, "domain"))
        self.__dict__["space"] = space

    # Certified radii

    def read_certified(self) -> NDArray[np.float64] | None:
        """Return per sample the radius that provably holds no misclassified point.

        None if nobody has computed radii, or their file is damaged.
        """
        content = self.read_file(_CERTIFIED, self._mark("certified"))
        if content is None:
            return None
        shape = (len(self.clean.labels),)
        try:
            radii = require(
                content[0], "radii", shape, torch.float64, low=0, high=torch.finfo().max
            )
        except Damaged as error:
            self.damaged[_CERTIFIED] = f"{_CERTIFIED}: {error}"
            return None
        return radii.numpy()

    def write_certified(self, radii: NDArray[np.float64]) -> None:
        """Store certified radii, one per sample.

        Args:
            radii: (n,), in units of the norm.
        """
        self.write_file(_CERTIFIED, {"radii": torch.from_numpy(radii)}, {}, self._mark("certified"))

    def _mark(self, what: str) -> str:
        """Return the mark of a file about all samples."""
        return mark(self.header, what, self.header.data.digest)

    # Images

    def samples(self) -> Samples:
        """Return the samples, read from the images beside the record and verified."""
        terms, data = self.header.terms, self.header.data
        count = len(self.clean.labels)
        where = self.place, data.shape, terms.shard, count
        read = partial(read_stored, *where, limits=self.limits)
        images = VerifiedImages(
            read, self.clean.ids, terms.shard, f"{self.place}/{IMAGES}", space=self.space
        )
        names = data.class_names or None
        return Samples(data.name, self.clean.labels, images, names, space=self.space)

    def images(self, samples: Samples) -> VerifiedImages:
        """Return a reader of samples' images that refuses others than those of the record.

        Args:
            samples: Samples whose ids are compared with the record's.
        """
        read = samples.read
        if isinstance(read, VerifiedImages):
            if np.array_equal(read.ids, self.clean.ids):
                return read
            read = read.read
        shard = self.header.terms.shard
        return VerifiedImages(read, self.clean.ids, shard, samples.name, space=self.space)

    # Units

    @property
    def shards(self) -> list[tuple[int, int]]:
        """First row and number of rows of each shard."""
        return shards_of(len(self.clean.labels), self.header.terms.shard)

    def layout(self, names: Iterable[str]) -> Iterator[tuple[UnitName, Tensor]]:
        """Yield the units of these names that have anything to attack, and the rows they attack.

        Args:
            names: Runs of a trace, or `ensemble`.
        """
        for name in names:
            for shard in self.shards:
                rows = self.clean.attacked(*shard)
                if len(rows):
                    yield UnitName(name, *shard), rows

    def unit_files(self) -> list[tuple[UnitName, int]]:
        """Return all units with their queries, also the shorter of two that a kill has left."""
        files = []
        for name in self.folder.names(UNITS):
            file = UnitName.of_file(name)
            if file is not None:
                files.append(file)
        return files

    def units(self) -> dict[UnitName, int]:
        """Return unit to the queries it has reached, from the names of the files alone."""
        return dict(sorted(self.unit_files()))  # the longest of a unit comes last

    def finished(self, wanted: Mapping[str, int]) -> tuple[int, int]:
        """Return how many units are done, and how many there are.

        Args:
            wanted: Run, or `ensemble`, to the queries at which its units are done.
        """
        done = self.units()
        reached = [done.get(unit, 0) >= wanted[unit.name] for unit, _ in self.layout(wanted)]
        return sum(reached), len(reached)

    def unit_mark(self, unit: UnitName, queries: int) -> str:
        """Return the mark of a unit's file: samples, steps and solvers up to there decide it.

        Args:
            unit: Name of the unit.
            queries: Queries that the unit has spent.
        """
        rows = slice(unit.first, unit.first + unit.count)
        ensemble = None if self.header.kind == "trace" else self.header.ensemble
        if ensemble is None:
            prefix: tuple[tuple[object, ...], ...] = ((unit.name, queries),)
            attacks = {attack_of(unit.name)}
        else:
            prefix = ensemble.prefix(queries)
            attacks = _attacks(ensemble, queries)
        solvers = {attack: self.header.solvers.get(attack, {}) for attack in attacks}
        data = data_digest(self.clean.ids[rows], self.clean.labels[rows])
        return mark(self.header, json.dumps([prefix, solvers], sort_keys=True), data)

    def read_unit(
        self, unit: UnitName, queries: int, names: Collection[str] | None = None
    ) -> StoredUnit | None:
        """Return a unit at exactly these queries; None if it is missing, damaged or foreign.

        Args:
            unit: Name of the unit: run or `ensemble`, and shard.
            queries: Queries that the unit has spent.
            names: Large tensors to read: some of `best_point` and `state`; None for both.
        """
        ensemble = self.header.ensemble
        if ensemble is not None and queries > ensemble.longest:
            self.reload()  # it was extended since the header was read
        file = unit.file(queries)
        content = self.read_file(file, self.unit_mark(unit, queries), parts_to_read(names))
        if content is None:
            return None
        try:
            stored = StoredUnit.unpacked(
                *content,
                rows=len(self.clean.attacked(*unit.shard)),
                classes=self.clean.classes,
                features=self.header.data.features,
                limits=self.limits,
            )
        except Damaged as error:
            self.damaged[file] = f"{file}: {error}"
            return None
        if stored.queries != queries:
            self.damaged[file] = f"{file}: it holds {stored.queries} queries"
            return None
        return stored

    def write_unit(self, unit: UnitName, stored: StoredUnit) -> None:
        """Store a unit. Raises Damaged if its tensors are not of the form they must have.

        Args:
            unit: Name of the unit.
            stored: Content of its file.
        """
        stored.check(
            len(self.clean.attacked(*unit.shard)),
            classes=self.clean.classes,
            features=self.header.data.features,
            limits=self.limits,
        )
        content = stored.to_bytes({"belongs": self.unit_mark(unit, stored.queries)})
        self.folder.write(unit.file(stored.queries), content)

    def remove_unit(self, unit: UnitName, queries: int) -> None:
        """Delete the file of a unit after `queries`, if there is one.

        Args:
            unit: Name of the unit.
            queries: Queries that the unit had spent.
        """
        self.folder.remove(unit.file(queries))

    def lacks(self, unit: UnitName, queries: int) -> FrontierError:
        """Return the error for a unit that is needed and cannot be read.

        Args:
            unit: Name of the unit.
            queries: Queries that the unit has spent.
        """
        why = self.why(unit.file(queries))
        # By its name it is done, and not all of it is always read.
        cure = "; remove that file" if why else ""
        return FrontierError(f"{self.place} lacks {unit}{why}{cure}; {self.header.how_to_resume}")

    def spent(self) -> Counter[str]:
        """Return the passes through the model that no unit counts, by purpose.

        They were spent on setting the record up, and on shards that have grown since.
        """
        spent = Counter(self.header.counts)
        for counts in self.header.replaced.values():
            spent.update(counts)
        return spent

    # Files

    def copy(self, place: str | PathLike[str]) -> None:
        """Copy the record into `place/NORM`, new or empty; the header comes last.

        Args:
            place: Path or address of a folder that does not exist yet, or is empty.
        """
        place = norm_folder(place, self.header.terms.norm)
        if Record.find(place) is not None:
            raise FrontierError(f"{place} holds a record already: expected a new or empty folder")
        if self.folder.read(FILE) is None:
            raise FrontierError(f"{self.place} is gone: there is nothing to copy")
        self.reload()
        target = check_empty(place)
        names = [_CLEAN, _CERTIFIED, _DOMAIN]
        for under in (UNITS, IMAGES, "radii"):
            names += self.folder.names(under)
        for name in names:
            content = self.folder.read(name)
            if content is not None:
                target.write(name, content)
        target.write(FILE, self.header.to_bytes())

    def read_file(
        self, name: str, belongs: str, names: Collection[str] | None = None
    ) -> tuple[dict[str, Tensor], dict[str, str]] | None:
        """Return the tensors and words of a file; None if it is missing, damaged or foreign.

        Args:
            name: Name of the file in the record.
            belongs: The mark that it must carry.
            names: Names of the tensors to read, as `tensors.unpack` takes them; None for all.
        """
        self.damaged.pop(name, None)
        file = self.folder.open(name)
        if file is None:
            return None
        with explain_os_errors("read", below(self.place, name)), file:
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
        """Return in brackets why a file that is there was not read.

        Args:
            name: Name of the file in the record.
        """
        return f" ({self.damaged[name]})" if name in self.damaged else ""

    def write_file(
        self, name: str, tensors: Mapping[str, Tensor], words: Mapping[str, str], belongs: str
    ) -> None:
        """Write a tensor file with its mark.

        Args:
            name: Name of the file in the record.
            tensors: Tensors by name.
            words: Texts by key, stored beside the tensors.
            belongs: Mark that says which record and samples the file is of.
        """
        self.folder.write(name, pack(tensors, {**words, "belongs": belongs}))


def find_records(path: str, *, kind: RecordKind, needed: bool = True) -> list[Record]:
    """Return the records at or below a folder, sorted, norms in their usual order.

    Args:
        path: Path or address of a folder; three levels below it are searched.
        kind: Kind of the records; others are left out.
        needed: Raise if there is no such record.
    """
    folder = open_folder(path)
    names = folder.names(depth=_DEPTH, skip_unreadable=True)
    inside = []
    for name in names:
        *parts, last = name.split("/")
        if last == FILE and _is_ours(folder.read(name)):
            inside.append(tuple(parts))
    records = []
    for place in sorted(inside, key=_order):
        record = Record.find(below(path, *place))
        if record is not None and record.header.kind == kind:
            records.append(record)
    if not records and needed:
        lacks = f"no folder {path}, or nothing in it"
        if names:
            lacks = f"{path} holds no record of the kind {kind}"
        raise FrontierError(f"{lacks}: type `advfrontier {_COMMANDS[kind]} … --out {path}`")
    return records


def _order(parts: tuple[str, ...]) -> tuple[tuple[str, ...], int, str]:
    """Return what folders are sorted by: those of norms by norm, within the folder they are in."""
    last = parts[-1] if parts else ""
    if last in NORMS:
        return parts[:-1], NORMS.index(last), last
    if parts and is_norm(last):
        return parts[:-1], len(NORMS), last
    return parts, -1, ""


def _is_ours(content: bytes | None) -> bool:
    """Tell whether a file of this name is a record's; a damaged one is, so that it is named."""
    try:
        return "schema" in json.loads(content or b"{}")
    except (ValueError, TypeError, RecursionError):
        return True


def _records_of_norms(place: str | PathLike[str]) -> list[Record]:
    """Return the records in folders of the names of norms."""
    folders = []
    for name in open_folder(place).names(depth=1, skip_unreadable=True):
        *parts, last = name.split("/")
        if last == FILE and len(parts) == 1 and is_norm(parts[0]):
            folders.append(tuple(parts))
    records = []
    for names in sorted(folders, key=_order):
        record = Record.find(below(place, *names))
        if record is not None:
            records.append(record)
    return records


def _attacks(ensemble: Ensemble, queries: int) -> set[str]:
    """Return the attacks that the first queries of an ensemble are spent on."""
    attacks = set()
    for span in ensemble.between(0, queries):
        if isinstance(span.step, Raise):
            attacks.add(attack_of(span.step.run))
            continue
        for gained in (True, False):
            for step in refinements(span.step, gained=gained):
                attacks.add(attack_of(step.run))
    return attacks


def _space(tensors: Mapping[str, Tensor], header: Header) -> Space:
    """Return the domain that tensors of a file make; raise if they make none, or another one."""
    shape, largest = header.data.shape, torch.finfo(torch.float32).max
    parts = {
        "lower": require(tensors, "lower", shape, torch.float32, low=-largest, high=largest),
        "upper": require(tensors, "upper", shape, torch.float32, low=-largest, high=largest),
        "changeable": require(tensors, "changeable", shape, torch.bool),
        "weights": require(tensors, "weights", shape, torch.float64, low=0, high=1e300),
    }
    space = Space.of(parts)
    if space.name != header.terms.domain:
        raise Damaged(f"it is {space.name}: expected {header.terms.domain}")
    return space


def _clean_pass(tensors: Mapping[str, Tensor], header: Header) -> CleanPass:
    """Return the clean pass that tensors of a file make; raise Damaged if they are none."""
    rows = header.data.samples
    floats = (torch.float32, torch.float64, torch.float16, torch.bfloat16)
    finite = torch.finfo(torch.float64).max
    logits = require(tensors, "logits", (rows, None), *floats, low=-finite, high=finite)
    classes = logits.shape[1]
    if classes < 2:
        raise Damaged(f"its logits are of {classes} classes: expected two or more")
    columns = {
        "logits": logits,
        "labels": require(tensors, "labels", (rows,), torch.int64, low=0, high=classes - 1),
        "correct": require(tensors, "correct", (rows,), torch.bool),
        "targets": require(
            tensors,
            "targets",
            (rows, min(TARGETS, classes - 1)),
            torch.int64,
            low=0,
            high=classes - 1,
        ),
        "boundary": require(tensors, "boundary", (rows,), *floats, low=0, high=finite),
    }
    ids = require(tensors, "ids", (rows,), torch.int64).numpy().view("uint64")
    if bool((columns["targets"] == columns["labels"][:, None]).any()):
        raise Damaged("its targets hold labels: expected wrong classes")
    if data_digest(ids, columns["labels"]) != header.data.digest:
        raise Damaged("it is of other samples")
    return CleanPass(ids=ids, **columns)
