"""Units as files: their names, their marks, and a schema that every file must keep."""

import io
from dataclasses import fields, replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from record_made import LARGER, SHAPE, SMALL, made_record, unit_of

from advfrontier import FrontierError
from advfrontier.flags import Flag, Kind
from advfrontier.pool import Ensemble
from advfrontier.record import HeaderChange, Record, StoredUnit, UnitName
from advfrontier.record.tensors import Damaged, pack, unpack
from advfrontier.record.units import ENSEMBLE, doubtful, shards_of, unit_flags

NAMES = ("fmn", "ddn", "fmn:refine")
FEATURES = 9
FIRST = UnitName(ENSEMBLE, 0, 4)


def unit(rows=3, queries=40):
    return unit_of(rows, queries, NAMES)


def read(content, names=None, rows=3):
    return StoredUnit.from_bytes(content, names, rows=rows, classes=10, features=FEATURES)


# Names


@pytest.mark.parametrize(
    ("name", "file"),
    [
        (UnitName("fmn:target1", 200, 100), "units/fmn.target1/00200+100-0270.safetensors"),
        (UnitName(ENSEMBLE, 0, 50), "units/ensemble/00000+050-0270.safetensors"),
        (UnitName("mine.py:Net", 7, 1), "units/mine%2epy.%4eet/00007+001-0270.safetensors"),
    ],
)
def test_a_unit_is_named_by_run_shard_and_queries(name, file):
    assert name.file(270) == file
    assert UnitName.of_file(file) == (name, 270)


@given(
    st.text(min_size=1, max_size=20),
    st.integers(0, 10**9 - 1),
    st.integers(1, 10**7 - 1),
    st.integers(1, 10**9 - 1),
)
def test_any_name_survives_the_file(name, first, count, queries):
    one = UnitName(name, first, count)
    file = one.file(queries)
    assert UnitName.of_file(file) == (one, queries)
    assert file.isascii()
    assert file.count("/") == 2
    assert ".." not in file.split("/")


@pytest.mark.parametrize(
    "file",
    [
        "units/fmn/notes.txt",
        "units/fmn/00000+004-99999999999999999999.safetensors",
        "units/fmn/99999999999999999999+004-0020.safetensors",
        "units/fmn/00000+99999999999999999999-0020.safetensors",
        "units/fmn/00000+004-00020.safetensors",
        "units/fmn/00000+000-0020.safetensors",
        "units/fmn/00000+004-0000.safetensors",
        "units/fmn/0+4-20.safetensors",
        "units/fmn/00000+004-002٣.safetensors",
        "units/FMN/00000+004-0020.safetensors",
        "units/f%6dn/00000+004-0020.safetensors",
        "units/%ff/00000+004-0020.safetensors",
        "units/%zz/00000+004-0020.safetensors",
        "units/fmn/deep/00000+004-0020.safetensors",
        "images/00000+004.safetensors",
    ],
)
def test_other_files_are_no_units(file):
    assert UnitName.of_file(file) is None


def test_files_with_absurd_names_are_left_alone(tmp_path):
    record = made_record(tmp_path)
    before = record.units()
    for queries in ("99999999999999999999", "0" * 40, "00060"):
        (tmp_path / f"units/ensemble/00000+004-{queries}.safetensors").write_bytes(b"x")
    assert record.units() == before
    assert Record.find(tmp_path).finished({ENSEMBLE: 60}) == (2, 2)


def test_shards_are_fixed_ranges():
    assert shards_of(10, 4) == [(0, 4), (4, 4), (8, 2)]
    assert shards_of(0, 4) == []


def test_texts_of_units():
    assert str(UnitName("fmn", 4, 4)) == "fmn on samples 4–7"
    assert str(FIRST) == "the ensemble on samples 0–3"


# Their schema


def test_a_unit_is_read_as_it_was_written():
    one = unit()
    two = read(one.to_bytes())
    for each in fields(StoredUnit):
        before, after = getattr(one, each.name), getattr(two, each.name)
        if isinstance(before, torch.Tensor):
            assert torch.equal(before, after)
            assert before.dtype == after.dtype
        elif each.name == "state":
            assert before.keys() == after.keys()
            assert all(torch.equal(before[key], after[key]) for key in before)
        else:
            assert before == after
    assert torch.equal(one.distances, one.trajectory[-1])


def test_tensors_by_name_make_the_same_unit():
    one = unit()
    two = StoredUnit.of(
        {**one.tensors(), "best_distance": one.distances},
        queries=one.queries,
        names=one.names,
        spent=one.spent,
        seconds=one.seconds,
    )
    assert two.spent == one.spent
    assert two.tensors().keys() == one.tensors().keys()
    assert all(torch.equal(two.tensors()[name], one.tensors()[name]) for name in one.tensors())
    tensors = one.tensors()
    del tensors["found"]
    with pytest.raises(KeyError, match="found"):
        StoredUnit.of(tensors, queries=40, names=one.names, spent={}, seconds=0.0)


class Counting(io.BytesIO):
    passed = 0

    def read(self, size=-1):
        content = super().read(size)
        self.passed += len(content)
        return content


def test_points_and_states_are_read_only_if_they_are_named():
    large = replace(
        unit(), best_point=torch.rand(3, 10_000), state={"fmn.point": torch.rand(3, 20_000)}
    )
    content = large.to_bytes()
    sizes = []
    for names in ((), ("best_point",), ("state",), ("best_point", "state"), None):
        file = Counting(content)
        found = StoredUnit.from_bytes(file, names, rows=3)
        assert (found.best_point is not None) == (names is None or "best_point" in names)
        assert bool(found.state) == (names is None or "state" in names)
        sizes.append(file.passed)
    assert sizes[0] < 10_000
    assert [round(size, -5) for size in sizes[1:]] == [100_000, 200_000, 400_000, 400_000]


def integer(value):
    return lambda tensor: torch.full_like(tensor, value)


WRONG = {
    "trajectory": [
        ("rises", lambda t: t.flip(0)),
        ("holds values that are no numbers", lambda t: t * torch.nan),
        ("ranges from -", lambda t: -t),
        ("has the shape", lambda t: t[:-1]),
        ("has the shape", lambda t: t[:, :-1]),
        ("is float32: expected float64", lambda t: t.float()),
        ("do not agree", lambda t: torch.full_like(t, torch.inf)),
    ],
    "classes": [
        ("ranges from", integer(10)),
        ("ranges from", integer(-2)),
        ("do not agree", integer(-1)),
        ("do not agree", integer(4)),
        ("has the shape", lambda t: t[None]),
        ("is float64", lambda t: t.double()),
    ],
    "origin": [("ranges from", integer(3)), ("ranges", integer(-2)), ("int64", lambda t: t.long())],
    "winner": [("ranges from", integer(3)), ("has the shape", lambda t: t[:1])],
    "found": [("has the shape", lambda t: t[:2]), ("no numbers", lambda t: t * torch.nan)],
    "zero_gradients": [("ranges from", integer(-1)), ("has the shape", lambda t: t[:, :1])],
    "bad_gradients": [("int64: expected int32", lambda t: t.long())],
    "best_point": [
        ("ranges from", lambda t: t + 1),
        ("ranges from", lambda t: t - 1),
        ("no numbers", lambda t: t * torch.nan),
        ("has the shape", lambda t: t[:, :-1]),
        ("has the shape", lambda t: t[:-1]),
        ("float16", lambda t: t.half()),
    ],
}
CASES = [(name, *case) for name, cases in WRONG.items() for case in cases]


@pytest.mark.parametrize(("name", "message", "wrong"), CASES)
def test_tensors_of_another_form_are_refused(name, message, wrong):
    one = unit()
    other = replace(one, **{name: wrong(getattr(one, name))})
    with pytest.raises(Damaged, match=message):
        read(other.to_bytes())
    with pytest.raises(Damaged, match=message):
        other.check(3, classes=10, features=FEATURES)


def test_shares_are_shares_or_nan():
    one = replace(unit(), shares=torch.tensor([0.5, 1.0, torch.nan]))
    assert torch.equal(read(one.to_bytes()).shares[:2], one.shares[:2])
    with pytest.raises(Damaged, match=r"shares ranges from 0\.5 to 1\.5"):
        read(replace(one, shares=torch.tensor([0.5, 1.5, 1.0])).to_bytes())


@pytest.mark.parametrize(
    ("facts", "message"),
    [
        ("{}", "queries: Field required"),
        ("5", "it is no unit"),
        ("[" * 10_000, "it is no unit"),
        ('{"queries":45,"names":["fmn"],"spent":{},"seconds":1}', "queries: .*multiple of 10"),
        ('{"queries":1e400,"names":["fmn"],"spent":{},"seconds":1}', "queries"),
        ('{"queries":40,"names":["fmn"],"spent":{"a":-1},"seconds":1}', "spent.a"),
        ('{"queries":40,"names":["fmn"],"spent":{"a":1e3},"seconds":1}', "spent.a"),
        ('{"queries":40,"names":["fmn"],"spent":{},"seconds":NaN}', "it is no unit"),
        ('{"queries":40,"names":["fmn"],"spent":{},"seconds":-1}', "seconds"),
        ('{"queries":40,"names":["fmn"],"spent":{},"seconds":1}', "found has the shape"),
        ('{"queries":80,"names":["a","b","c"],"spent":{},"seconds":1}', "trajectory has the shape"),
    ],
)
def test_words_of_another_form_are_refused(facts, message):
    content = pack(unit().tensors(), {"unit": facts})
    with pytest.raises(Damaged, match=message):
        read(content)


def test_a_file_that_is_no_unit_is_refused():
    with pytest.raises(Damaged, match="it is no unit: it has no unit"):
        read(pack(unit().tensors()))
    tensors, words = unpack(unit().to_bytes())
    for name in ("trajectory", "found"):
        others = {key: tensor for key, tensor in tensors.items() if key != name}
        with pytest.raises(Damaged, match=f"it is no unit: it has no {name}"):
            read(pack(others, words))


def test_a_unit_of_another_form_is_not_written(tmp_path):
    record = made_record(tmp_path)
    stored = record.read_unit(FIRST, 60)
    before = (tmp_path / FIRST.file(60)).read_bytes()
    with pytest.raises(Damaged, match="classes and distances do not agree"):
        record.write_unit(FIRST, replace(stored, classes=integer(-1)(stored.classes)))
    assert (tmp_path / FIRST.file(60)).read_bytes() == before


# In a record


@pytest.fixture(params=["local", "remote"])
def place(request, tmp_path):
    return str(tmp_path / "record") if request.param == "local" else f"memory://{tmp_path}/record"


def test_units_of_a_record(place):
    record = made_record(place)
    assert record.units() == {FIRST: 60, UnitName(ENSEMBLE, 4, 2): 60}
    assert record.finished({ENSEMBLE: 60}) == (2, 2)
    assert record.finished({ENSEMBLE: 70}) == (0, 2)
    stored = record.read_unit(FIRST, 60)
    assert (stored.queries, stored.names) == (60, SMALL.names)
    assert stored.trajectory.shape == (6, 3)  # one of four samples is misclassified anyway
    assert record.read_unit(FIRST, 70) is None
    assert record.why(FIRST.file(70)) == ""
    assert record.read_unit(FIRST, 60, ()).best_point is None


def test_the_longest_file_of_a_unit_counts(place):
    record = made_record(place)
    record.change(HeaderChange(ensemble=LARGER))
    record.write_unit(FIRST, unit_of(3, 80, LARGER.names))
    assert record.units()[FIRST] == 80
    assert len(record.unit_files()) == 3
    assert record.read_unit(FIRST, 60) is not None  # the steps before are the same
    record.remove_unit(FIRST, 60)
    record.remove_unit(FIRST, 60)
    assert record.unit_files().count((FIRST, 80)) == 1
    assert len(record.unit_files()) == 2


def test_a_damaged_unit_is_named_and_left_there(place):
    record = made_record(place)
    file = FIRST.file(60)
    record.folder.write(file, record.folder.read(file)[:-3])
    assert record.read_unit(FIRST, 60) is None
    assert record.why(file) == f" ({file}: it is cut short, or longer than it says)"
    assert record.folder.read(file) is not None
    error = record.lacks(FIRST, 60)
    assert isinstance(error, FrontierError)
    assert "lacks the ensemble on samples 0–3 (units/" in str(error)
    assert str(error).endswith("; remove that file; to resume, repeat the same call")


def test_a_forged_unit_with_its_checksums_is_named(place):
    record = made_record(place)
    stored = record.read_unit(FIRST, 60)
    tensors = stored.tensors() | {"winner": integer(7)(stored.winner)}
    file = FIRST.file(60)
    words = unpack(record.folder.read(file))[1]
    record.folder.write(file, pack(tensors, words))
    assert record.read_unit(FIRST, 60) is None
    assert "its winner ranges from 7 to 7: expected -1 to 1" in record.why(file)


def test_a_unit_under_the_name_of_more_queries_is_foreign(place):
    record = made_record(place)
    record.folder.write(FIRST.file(50), record.folder.read(FIRST.file(60)))
    assert record.read_unit(FIRST, 50) is None
    assert "belongs to another record" in record.why(FIRST.file(50))


OTHERS = {
    "model": {"model": {"name": "net", "source": None, "digest": "1" * 32}},
    "seed": {"terms": {"norm": "L2", "shard": 4, "seed": 3}},
    "gradients": {"gradients": "surrogate"},
    "numerics": {"numerics": {"threat": 1, "solvers": 2, "engine": 1}},
    "steps": {"ensemble": Ensemble.of("small", "L2", {"fmn": 40, "alma": 20})},
    "solver": {"solvers": {"fmn": {"class": "FMN", "alpha": "7"}, "ddn": {"class": "DDN"}}},
}


@pytest.mark.parametrize("what", OTHERS)
def test_what_decides_a_unit_is_in_its_mark(tmp_path, what):
    record = made_record(tmp_path)
    before = record.unit_mark(FIRST, 60)
    fields_now = record.header.model_dump() | {"ensemble": SMALL, "finished": None} | OTHERS[what]
    record.header = type(record.header).model_validate(fields_now)
    assert record.unit_mark(FIRST, 60) != before


def test_what_comes_later_is_not_in_the_mark_of_a_unit(tmp_path):
    record = made_record(tmp_path)
    before = record.unit_mark(FIRST, 60)
    renamed = LARGER.model_copy(update={"name": "other", "aoi": 0.9})
    solvers = {"alma": {"class": "ALMA", "x": "1"}, "pdgd": {"class": "PDGD"}}
    header = record.header
    record.header = header.model_copy(
        update={"ensemble": renamed, "solvers": header.solvers | solvers, "commands": ("x",)}
    )
    assert record.unit_mark(FIRST, 60) == before
    assert record.unit_mark(FIRST, 80) != before
    assert record.unit_mark(UnitName(ENSEMBLE, 4, 2), 60) != before


def test_units_of_a_trace(place):
    record = made_record(place, kind="trace")
    fmn, ddn = UnitName("fmn", 0, 4), UnitName("ddn", 0, 4)
    assert record.units()[fmn] == record.units()[ddn] == 40
    assert record.unit_mark(fmn, 40) != record.unit_mark(ddn, 40)
    record.folder.write(ddn.file(40), record.folder.read(fmn.file(40)))
    assert record.read_unit(fmn, 40).names == ("fmn",)
    assert record.read_unit(ddn, 40) is None


# Doubts


def test_doubts_are_counted_by_reason_and_run():
    one = unit_of(3, 40, ("fmn", "square_min", "fmn:refine"), state=False)
    zeros, bad = one.zero_gradients.clone(), one.bad_gradients.clone()
    zeros[0] = torch.tensor([11, 10, 0])
    zeros[1] = torch.tensor([20, 21, 0])
    bad[2, 1] = 1
    doubted = replace(one, zero_gradients=zeros, bad_gradients=bad)
    queries = {"fmn": 40, "square_min": 40, "fmn:refine": 20, "ddn": 0}
    labels = torch.tensor([3, 4, 5])
    assert doubtful(doubted, labels, queries) == {
        (Kind.FLIPPED, "fmn"): 1,
        (Kind.ZERO_GRADIENTS, "fmn"): 1,  # more than half of 20 steps
        (Kind.ZERO_GRADIENTS, "square_min"): 1,  # more than half of 40
        (Kind.BAD_GRADIENTS, "fmn:refine"): 1,
    }
    assert not doubtful(one, labels + 1, queries)
    assert not doubtful(doubted, labels, {"ddn": 40, "fmn": 0})


def test_one_flag_per_reason():
    doubts = {(Kind.FLIPPED, name): k for k, name in enumerate("abcde", 1)}
    doubts[Kind.BAD_GRADIENTS, "fmn"] = 2
    assert unit_flags(doubts) == (
        Flag(
            Kind.FLIPPED,
            "a, b, c and 2 others: up to 5 kept points were classified correctly in another batch",
        ),
        Flag(Kind.BAD_GRADIENTS, "fmn: 2 samples had logits or gradients that are not finite"),
    )
    assert unit_flags({}) == ()


def test_the_shape_of_images_decides_how_long_points_are(tmp_path):
    record = made_record(tmp_path)
    assert record.header.data.features == torch.Size(SHAPE).numel() == FEATURES
    flat = record.header.data.model_copy(update={"shape": (8,)})
    record.header = record.header.model_copy(update={"data": flat})
    assert record.read_unit(FIRST, 60) is None
    assert "its best_point has the shape (3, 9): expected (3, 8)" in record.why(FIRST.file(60))
