"""Records that were damaged, or made by someone who knows the checksums: read, or one message.

`ADVFRONTIER_FUZZ=5000 pytest tests/fuzz` (`make fuzz`) tries so many cases of each kind. A failure
names its case, which is the same in every run.
"""

import json
import shutil
from contextlib import suppress
from pathlib import Path
from random import Random

import numpy as np
import pytest
import torch
from record.record_made import made_record

from advfrontier.errors import FrontierError
from advfrontier.record import HeaderChange, Record, UnitName
from advfrontier.record.header import checksum, sealed, unsealed
from advfrontier.record.identity import settings, several_versions, stand_ins
from advfrontier.record.journal import Journal
from advfrontier.record.tensors import pack, unpack
from advfrontier.record.units import doubtful, unit_flags
from fuzz.limits import CASES, time_limit
from fuzz.mutate import mutate_bytes

JUNK = [
    None,
    -1,
    0,
    1,
    7,
    10,
    1e308,
    -1e-9,
    0.5,
    True,
    "",
    "x",
    "../../etc",
    "L2",
    "Linf",
    "fmn",
    "fmn:target1",
    "fmn:refine",
    "🂡" * 40,
    "\x1b[31m\u202e",
    "\x00",
    [],
    {},
    [[]],
    [1, 2],
    {"a": 1},
    {"class": "X"},
    "0" * 32,
    10**12,
    2**31,
    2**63,
    2**64,
    10**400,
    float("1e-300"),
    float("nan"),
    float("inf"),
    ["x"] * 50,
    {"fmn": 10},
    {"fmn": 10**9},
    {"fmn": {"class": "X"}},
    "evaluation",
    "trace",
    "baseline",
    "own",
    "none",
    [{"run": "fmn", "queries": 40}],
    [1, 3, 3],
    [3, 3],
]


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """Return a finished evaluation and a finished trace, each with everything there can be."""
    places = {}
    for kind in ("evaluation", "trace"):
        record = made_record(tmp_path_factory.mktemp("whole") / "L2", kind=kind)
        record.write_certified(np.zeros(6))
        record.change(HeaderChange(command="advfrontier evaluate", add_counts={"checks": 3}))
        journal = Journal(record.folder, record.header.model.digest)
        for command in ("one", "two"):
            journal.read()
            journal.append(HeaderChange(command=command))
        places[kind] = record.place
    return places


def read_all(place):
    """Ask a record for everything, and check that what it says fits together."""
    record = Record.find(place)
    header = record.header
    assert record.header.mismatch(header) == ""
    several_versions(header)
    settings(header.solvers)
    stand_ins(header.solvers)
    record.spent()
    clean = record.clean
    rows = len(clean.labels)
    assert rows == header.data.samples == len(clean.names)
    assert clean.logits.shape == (rows, clean.classes)
    assert int(clean.targets.max()) < clean.classes
    units = record.units()
    runs = list(dict.fromkeys(unit.name for unit in units))
    attacked = dict(record.layout(runs))
    doubts = {}
    for unit, queries in units.items():
        assert unit.first + unit.count < 10**10
        stored = record.read_unit(unit, queries)
        if stored is None:
            assert str(record.lacks(unit, queries))
            continue
        where = attacked.get(unit, clean.attacked(*unit.shard))
        assert stored.trajectory.shape == (queries // 10, len(where))
        assert stored.best_point is None or stored.best_point.shape[1] == header.data.features
        labels = clean.labels[where]
        doubts |= doubtful(stored, labels, dict.fromkeys(stored.names, queries))
    unit_flags(doubts)
    record.finished(dict.fromkeys(runs, 60))
    radii = record.read_certified()
    assert radii is None or radii.shape == (rows,)
    images = record.samples().read(torch.arange(rows))
    assert tuple(images.shape[1:]) == header.data.shape
    return record


def paths_of(tree, path=()):
    """Yield the path of every value in a tree of JSON."""
    yield path
    children = ()
    if isinstance(tree, dict):
        children = tree.items()
    elif isinstance(tree, list):
        children = enumerate(tree)
    for key, child in children:
        yield from paths_of(child, (*path, key))


def forge_tree(tree, random):
    """Put something else into one or two places of a tree of JSON, or take something out."""
    tree = json.loads(json.dumps(tree))
    for _ in range(random.randint(1, 2)):
        paths = [path for path in paths_of(tree) if path]
        if not paths:
            return tree
        *above, last = random.choice(paths)
        parent = tree
        for key in above:
            parent = parent[key]
        kind = random.random()
        if kind < 0.15:
            del parent[last]
        elif kind < 0.25 and isinstance(parent, list):
            parent.append(parent[last])
        elif kind < 0.3 and isinstance(parent, dict):
            parent[random.choice(["x", "fmn", "é"])] = parent[last]
        else:
            parent[last] = json.loads(json.dumps(random.choice(JUNK)))
    return tree


def forge_header(content, random):
    """Forge a header, with the checksum that belongs to it."""
    tree = json.loads(content)
    del tree["checksum"]
    tree = forge_tree(tree, random)
    return json.dumps({**tree, "checksum": checksum(tree)}).encode()


def forge_journal(content, random):
    """Forge a file of the journal, with its checksum."""
    fields = forge_tree(unsealed(content, "here", "x"), random)
    return sealed(fields) if isinstance(fields, dict) else content


def forge_tensor(tensor, random):
    """Return another tensor: of other values, shape or kind."""
    kinds = [torch.float64, torch.float32, torch.float16, torch.int64, torch.int32, torch.int16]
    kinds += [torch.uint8, torch.bool]
    number = random.choice([-2, -1, 0, 1, 3, 9, 10, 1e30, float("nan"), float("inf")])
    other = tensor.clone()
    changes = (
        lambda: other.to(random.choice(kinds)),
        lambda: other[: random.randrange(len(other) + 1)],
        lambda: torch.cat([other, other[:1]]),
        other.flatten,
        lambda: other[None],
        lambda: other.flip(0),
        lambda: other.transpose(0, -1).contiguous(),
        lambda: other.double().fill_(number),
    )
    if random.random() < 0.8:
        return random.choice(changes)()
    if other.numel():
        flat = other.view(-1)
        whole = random.choice([-2, -1, 3, 10, 99])
        flat[random.randrange(len(flat))] = number if other.is_floating_point() else whole
    return other


def forge_tensors(content, random):
    """Forge a file of tensors; all its checksums, its seal and its mark are right."""
    tensors, words = unpack(content)
    for _ in range(random.randint(1, 2)):
        name = random.choice(list(tensors) or ["none"])
        kind = random.random()
        if kind < 0.1:
            tensors.pop(name, None)
        elif kind < 0.2 and "unit" in words:
            words["unit"] = json.dumps(forge_tree(json.loads(words["unit"]), random))
        elif kind < 0.25 and words:
            words.pop(random.choice(list(words)))
        elif kind < 0.3:
            tensors[random.choice(["x", "state.x", "", "é"])] = torch.zeros(2)
        elif name in tensors and kind < 0.4:
            tensors[name] = tensors[random.choice(list(tensors))]
        elif name in tensors:
            tensors[name] = forge_tensor(tensors[name], random)
    return pack(tensors, words)


FORGE = {"record.json": forge_header, "changes": forge_journal}


def files_of(place, under):
    record = Record.find(place)
    return [under] if "." in under else record.folder.names(under)


def check_cases(place, name, change):
    """Change one file after the other, and read everything; return how often it was refused."""
    folder = Record.find(place).folder
    files = files_of(place, name)
    before = {path: folder.read(path) for path in folder.names()}
    refused, texts = 0, []
    for number in range(CASES):
        random = Random(f"{name} {number}")  # noqa: S311 (no secrets here)
        victim = random.choice(files)
        written = change(before[victim], random)
        Path(place, victim).write_bytes(written)  # which waits for no disk
        try:
            with time_limit():
                read_all(place)
        except FrontierError as error:
            texts.append(str(error))
            refused += 1
        except Exception as error:
            error.add_note(f"{victim}, case {number}: {written[:2000]!r}")
            raise
        assert folder.read(victim) == written  # who reads writes nothing
        Path(place, victim).write_bytes(before[victim])
    assert {path: folder.read(path) for path in folder.names()} == before
    read_all(place)
    assert all(text.isprintable() for text in texts)
    return refused


FILES = ["record.json", "changes", "units", "images", "clean.safetensors", "certified.safetensors"]
FORGED = [("evaluation", name) for name in FILES] + [("trace", "record.json"), ("trace", "units")]


@pytest.mark.parametrize(("kind", "name"), FORGED)
def test_forged_files_with_valid_checksums(whole, tmp_path, kind, name):
    shutil.copytree(whole[kind], tmp_path / "L2")
    refused = check_cases(str(tmp_path / "L2"), name, FORGE.get(name, forge_tensors))
    if name in {"record.json", "changes", "clean.safetensors"}:
        assert refused > CASES // 3


@pytest.mark.parametrize("name", [name for name in FILES if name != "changes"])
def test_damaged_files(whole, tmp_path, name):
    """Changed by accident: what is read is what was written."""
    shutil.copytree(whole["evaluation"], tmp_path / "L2")

    def change(content, random):
        changed = mutate_bytes(content, random)
        return changed or b"{"

    check_cases(str(tmp_path / "L2"), name, change)


def test_damaged_journals(whole, tmp_path):
    """A file that was cut short is waited for, so there are fewer cases."""
    shutil.copytree(whole["evaluation"], tmp_path / "L2")

    def change(content, random):
        cut = bytearray(content)
        place = random.randrange(len(cut) - 3)
        cut[place] ^= 1 << random.randrange(7)
        return bytes(cut)

    assert check_cases(str(tmp_path / "L2"), "changes", change) > CASES // 2


def remove_empty(folder):
    """Remove a folder and those above it while they are empty: many would take long to list."""
    with suppress(OSError):
        while True:
            folder.rmdir()
            folder = folder.parent


DIGITS = [
    "0",
    "1",
    "9",
    "00",
    "99999",
    "9" * 20,
    "٣",
    "²",
    "-1",
    "1e3",
    "+",
    "%",
    "%2e",
    ".",
    "..",
    "x",
    "é",
]


def test_names_of_units(whole, tmp_path, monkeypatch):
    """Files whose names are almost those of units, with the content of units."""
    monkeypatch.setattr("os.fsync", lambda _: None)  # a test need not survive a power cut
    shutil.copytree(whole["evaluation"], tmp_path / "L2")
    place = str(tmp_path / "L2")
    folder = Record.find(place).folder
    names = folder.names("units")
    expected = read_all(place).units()
    for number in range(CASES):
        random = Random(f"names {number}")  # noqa: S311 (no secrets here)
        name = random.choice(names)
        content = folder.read(name)
        letters = list(name.removeprefix("units/"))
        for _ in range(random.randint(1, 4)):
            where = random.randrange(len(letters))
            letters[where : where + random.randrange(3)] = random.choice(DIGITS)
        forged = "units/" + "".join(letters)
        try:
            folder.write(forged, content)
        except FrontierError:  # no name of a file, or one that leads out of the folder
            continue
        with time_limit():
            record = read_all(place)
        for unit, queries in record.units().items():
            assert expected.get(unit) == queries or unit.file(queries) == forged
        if forged not in names:
            folder.remove(forged)
            remove_empty(Path(place, forged).parent)
        else:
            folder.write(name, content)
    assert read_all(place).units() == expected


def test_any_text_is_the_name_of_a_unit_or_of_none():
    for number in range(CASES):
        random = Random(f"text {number}")  # noqa: S311 (no secrets here)
        letters = "abc/.:%+-_0123456789é\x00\n²"
        name = "".join(random.choice(letters) for _ in range(random.randrange(40)))
        found = UnitName.of_file(f"units/{name}.safetensors")
        if found is not None:
            unit, queries = found
            assert unit.file(queries) == f"units/{name}.safetensors"
