"""Evaluations and traces of records that were damaged or made by someone else.

They are read as they are, or refused with one message. `ADVFRONTIER_FUZZ=5000 pytest tests/fuzz`
(`make fuzz`) tries a fifth of so many cases: those of the files alone are in `test_fuzz_records`.
"""

import json
import random
import shutil

import numpy as np
import pytest
import torch
from support.models import conv_problem

from advfrontier import Evaluation, FrontierError, evaluate, trace
from advfrontier.evaluation.trace import load_traces
from advfrontier.pool import make_ensemble
from advfrontier.record.header import checksum
from fuzz.limits import CASES as FILE_CASES

CASES = FILE_CASES // 5
STEPS = [
    {"run": "fmn", "queries": 40},
    {"run": "ddn:target1", "queries": 20},
    {"run": "ddn", "queries": 20},
    {"run": "fmn", "queries": 60},
    {"run": "ddn", "queries": 30},
]
SMALL = make_ensemble(name="small", norm="L2", steps=STEPS, total=80)
LARGER = make_ensemble(name="larger", norm="L2", steps=STEPS)
JUNK = [
    None,
    -1,
    0,
    1,
    7,
    1e308,
    -1e-9,
    True,
    "",
    "x",
    "../../etc",
    "L2",
    "Linf",
    "fmn",
    "🂡" * 40,
    [],
    {},
    [[]],
    [1, 2],
    {"a": 1},
    "0" * 32,
    10**12,
    2**64,
    float("1e-300"),
    ["x"] * 50,
    {"fmn": 10},
    {"fmn": 10**9},
    "evaluation",
    "trace",
]


@pytest.fixture(scope="module")
def problem():
    return conv_problem(6)


@pytest.fixture(scope="module")
def whole(problem, tmp_path_factory):
    """A finished evaluation and a finished trace."""
    place = tmp_path_factory.mktemp("whole")
    evaluate(*problem, norm="L2", ensemble=SMALL, batch_size=4, out=place / "evaluation")
    trace(*problem, norm="L2", runs=["fmn", "ddn"], queries=40, batch_size=4, out=place / "trace")
    return place


def damaged(content, rng):
    """The bytes of a file with a few of them changed, lost, or doubled."""
    content = bytearray(content)
    for _ in range(rng.randint(1, 3)):
        place = rng.randrange(max(len(content), 1))
        kind = rng.choice(("flip", "set", "cut", "drop", "double", "insert"))
        if kind == "flip" and content:
            content[place] ^= 1 << rng.randrange(8)
        elif kind == "set" and content:
            content[place] = rng.randrange(256)
        elif kind == "cut":
            del content[place:]
        elif kind == "drop":
            del content[place : place + rng.randint(1, 40)]
        elif kind == "double":
            content[place:place] = content[place : place + rng.randint(1, 40)]
        else:
            content[place:place] = rng.randbytes(rng.randint(1, 8))
    return bytes(content)


def places(tree, path=()):
    """Every place in a tree of JSON."""
    yield path
    children = (
        tree.items()
        if isinstance(tree, dict)
        else enumerate(tree)
        if isinstance(tree, list)
        else ()
    )
    for key, child in children:
        yield from places(child, (*path, key))


def forged(content, rng):
    """A header in which something else stands somewhere, with the checksum that belongs to it: a
    record from anyone.
    """
    tree = json.loads(content)
    del tree["checksum"]
    for _ in range(rng.randint(1, 2)):
        path = rng.choice([path for path in places(tree) if path])
        parent = tree
        for key in path[:-1]:
            parent = parent[key]
        if rng.random() < 0.2:
            del parent[path[-1]]
        else:
            parent[path[-1]] = json.loads(json.dumps(rng.choice(JUNK)))
    return json.dumps({**tree, "checksum": checksum(tree)}).encode()


def read_all(place):
    """Everything a reader may ask an evaluation for."""
    found = Evaluation.load(place)
    assert found.adversarials.shape == found.images().shape
    assert len(found.samples) == len(found.labels) == len(found.winners)
    assert all(flag.text for flag in found.flags)
    assert sum(found.counts.values()) >= 0
    assert repr(found)
    return (
        found.norm,
        found.distances,
        found.adversarials,
        found.predictions,
        found.ensemble.queries,
    )


def same(one, two):
    norm, distances, points, classes, queries = one
    assert norm == two[0]
    if queries != two[4]:  # it says that it is of fewer queries, and tells what these found
        assert all(n <= two[4].get(run, 0) for run, n in queries.items())
        assert (distances >= two[1]).all()
        return
    assert distances.tobytes() == two[1].tobytes()
    assert torch.equal(points, two[2])
    assert torch.equal(classes, two[3])


@pytest.mark.parametrize("kind", ["damaged", "forged"])
def test_headers(whole, problem, tmp_path, kind):
    rng = random.Random(kind)  # noqa: S311
    right = read_all(whole / "evaluation" / "L2")
    content = (whole / "evaluation" / "L2" / "record.json").read_bytes()
    shutil.copytree(whole / "evaluation" / "L2", tmp_path / "a")
    before = sorted(path for path in tmp_path.rglob("*"))
    refused = 0
    for _ in range(CASES):
        changed = (damaged if kind == "damaged" else forged)(content, rng)
        (tmp_path / "a" / "record.json").write_bytes(changed)
        try:
            found = read_all(tmp_path / "a")
        except FrontierError:
            refused += 1
            continue
        same(found, right)
        assert kind == "forged" or json.loads(changed) == json.loads(content)
    assert sorted(path for path in tmp_path.rglob("*")) == before
    assert refused > CASES // 4


def test_going_on_with_forged_headers(whole, problem, tmp_path):
    rng = random.Random("extend")  # noqa: S311
    content = (whole / "evaluation" / "L2" / "record.json").read_bytes()
    expected = evaluate(*problem, norm="L2", ensemble=LARGER, batch_size=4).distances
    shutil.copytree(whole / "evaluation" / "L2", tmp_path / "right")
    for case in range(max(CASES // 8, 5)):
        place = tmp_path / f"{case}"
        shutil.copytree(tmp_path / "right", place)
        (place / "record.json").write_bytes(forged(content, rng))
        try:
            found = Evaluation.load(place).extend(LARGER, model=problem[0])
        except FrontierError:
            continue
        assert found.distances.tobytes() == expected.tobytes()
        shutil.rmtree(place)
    assert {path.name for path in tmp_path.iterdir()} <= {"right", *map(str, range(CASES))}


@pytest.mark.parametrize("under", ["units", "images", "clean.safetensors"])
def test_tensor_files(whole, tmp_path, under):
    rng = random.Random(under)  # noqa: S311
    right = read_all(whole / "evaluation" / "L2")
    shutil.copytree(whole / "evaluation" / "L2", tmp_path / "a")
    root = tmp_path / "a" / under
    files = sorted(path for path in root.rglob("*.safetensors")) if root.is_dir() else [root]
    refused = 0
    for _ in range(CASES):
        victim = rng.choice(files)
        content = victim.read_bytes()
        victim.write_bytes(damaged(content, rng))
        try:
            same(read_all(tmp_path / "a"), right)
        except FrontierError:
            refused += 1
        victim.write_bytes(content)
    assert refused > CASES // 2
    same(read_all(tmp_path / "a"), right)


def test_traces(whole, tmp_path):
    rng = random.Random("traces")  # noqa: S311
    right = load_traces(whole / "trace" / "L2")
    shutil.copytree(whole / "trace" / "L2", tmp_path / "t")
    files = sorted(path for path in (tmp_path / "t").rglob("*") if path.is_file())
    for _ in range(CASES):
        victim = rng.choice(files)
        content = victim.read_bytes()
        change = forged if victim.name == "record.json" and rng.random() < 0.7 else damaged
        victim.write_bytes(change(content, rng))
        try:
            found = load_traces(tmp_path / "t")
        except FrontierError:
            pass
        else:
            for run, table in zip(found.runs, found.distances, strict=True):
                expected = right.distances[right.runs.index(run)]
                assert np.array_equal(table, expected[: len(table)])
        victim.write_bytes(content)
