"""Records on disk: whole or not at all, checked when read, never unpickled."""

import io
import json
import os
import pickle
import time

import pytest
import torch

from advfrontier.errors import FrontierError
from advfrontier.store import Damaged, Store, UnitName, pack, unpack
from advfrontier.store.folder import LocalFolder
from advfrontier.store.packing import unpack_parts

TENSORS = {"a": torch.arange(6.0).view(2, 3), "b": torch.tensor([True, False]), "c": torch.tensor(7)}
UNIT = UnitName("fmn:target1", 200, 100)


def test_what_is_packed_comes_back():
    tensors, words = unpack(pack(TENSORS, {"run": "fmn", "note": "ε ≤ 1"}))
    assert words == {"run": "fmn", "note": "ε ≤ 1"}
    assert set(tensors) == set(TENSORS)
    for name, tensor in TENSORS.items():
        assert torch.equal(tensors[name], tensor)
        assert tensors[name].dtype == tensor.dtype


def test_every_flipped_byte_is_noticed():
    content = pack(TENSORS, {"run": "fmn"})
    for place in range(len(content)):
        changed = bytearray(content)
        changed[place] ^= 0x10
        try:
            tensors, words = unpack(bytes(changed))
        except Damaged:
            continue
        # The header may be written in more than one way: then nothing it says has changed.
        assert words == {"run": "fmn"}
        assert all(torch.equal(tensors[name], TENSORS[name]) for name in TENSORS)


@pytest.mark.parametrize("keep", [0, 1, 7, 8, 9, 60, -1])
@pytest.mark.parametrize("names", [None, ("b",), ()])
def test_a_file_cut_short_is_noticed_whatever_is_read_of_it(keep, names):
    with pytest.raises(Damaged):
        unpack_parts(io.BytesIO(pack(TENSORS)[:keep]), names)


class Counting(io.BytesIO):
    passed = 0

    def read(self, size=-1):
        found = super().read(size)
        self.passed += len(found)
        return found


def test_a_part_is_read_alone_and_is_as_sure_as_the_whole():
    large = {"points": torch.rand(100, 1000), **TENSORS}
    content = pack(large, {"run": "fmn"})
    file = Counting(content)
    tensors, words = unpack_parts(file, ("a", "c", "nowhere"))
    assert words == {"run": "fmn"}
    assert set(tensors) == {"a", "c"}
    assert all(torch.equal(tensors[name], TENSORS[name]) for name in tensors)
    assert file.passed < 1500
    changed = bytearray(content)
    changed[content.index(large["points"].numpy().tobytes()) + 77] ^= 1
    assert set(unpack_parts(io.BytesIO(changed), ("a",))[0]) == {"a"}  # what was changed is not read
    with pytest.raises(Damaged, match="the checksum of points does not match"):
        unpack_parts(io.BytesIO(changed), ("points",))
    with pytest.raises(Damaged, match="the checksum of points does not match"):
        unpack(bytes(changed))


def test_a_pickle_is_not_loaded(tmp_path):
    class Payload:
        def __reduce__(self):
            return (LocalFolder(tmp_path).write, ("ran", b""))

    with pytest.raises(Damaged):
        unpack(pickle.dumps(Payload()))
    assert not (tmp_path / "ran").exists()


@pytest.fixture(params=["local", "remote"])
def store(request, tmp_path):
    place = tmp_path / "record" if request.param == "local" else f"memory://{tmp_path.name}/record"
    yield Store(place, writing=True)
    if request.param == "remote":
        import fsspec  # noqa: PLC0415

        fsspec.filesystem("memory").store.clear()


def test_a_unit_is_named_by_run_shard_and_queries(store):
    store.write_unit(UNIT, 270, TENSORS, {"run": "fmn:target1"})
    assert store.folder.names("units") == ["units/fmn.target1/00200+100-0270.safetensors"]
    assert store.units() == {UNIT: 270}
    stored = store.read_unit(UNIT, 270)
    assert stored.queries == 270
    assert torch.equal(stored.tensors["a"], TENSORS["a"])
    assert store.read_unit(UNIT, 280) is None


def test_extending_replaces_the_shorter_file(store):
    store.write_unit(UNIT, 270, TENSORS, {})
    store.write_unit(UNIT, 1000, TENSORS, {}, instead=270)
    assert store.folder.names("units") == ["units/fmn.target1/00200+100-1000.safetensors"]


def test_what_a_kill_between_writing_and_removing_leaves_is_tidied(store):
    store.write_unit(UNIT, 270, TENSORS, {})
    store.write_unit(UNIT, 1000, TENSORS, {})
    assert store.units() == {UNIT: 1000}
    store.tidy()
    assert len(store.folder.names("units")) == 1
    assert store.units() == {UNIT: 1000}


def test_a_damaged_unit_is_named_and_removed_and_the_shorter_one_counts(store):
    store.write_unit(UNIT, 270, TENSORS, {})
    store.write_unit(UNIT, 1000, TENSORS, {})
    name = UNIT.file(1000)
    store.folder.write(name, store.folder.read(name)[:-3])
    assert store.read_unit(UNIT, 1000) is None
    assert len(store.damaged) == 1
    assert store.damaged[0].startswith(name)
    assert store.units() == {UNIT: 270}


def test_who_only_reads_removes_nothing(store):
    store.write_unit(UNIT, 270, TENSORS, {})
    name = UNIT.file(270)
    store.folder.write(name, store.folder.read(name)[:-3])
    reader = Store(store.folder)
    assert reader.read_unit(UNIT, 270) is None
    assert reader.damaged[0].startswith(name)
    assert store.folder.names("units") == [name]


def test_some_tensors_of_a_unit(store):
    store.write_unit(UNIT, 270, TENSORS, {"run": "fmn:target1"})
    stored = store.read_unit(UNIT, 270, ("b",))
    assert set(stored.tensors) == {"b"}
    assert stored.words == {"run": "fmn:target1"}
    assert store.read_unit(UNIT, 270, ()).tensors == {}


def test_files_left_aside_by_a_kill_are_removed_an_hour_later(tmp_path):
    store = Store(tmp_path, writing=True)
    store.write_unit(UNIT, 270, TENSORS, {})
    folder = (tmp_path / UNIT.file(270)).parent
    left, being_written = folder / ".a.safetensors.4711-0badcafe", folder / ".b.safetensors.4712-0badcafe"
    for path in (left, being_written):
        path.write_bytes(b"half")
    (tmp_path / ".hidden").write_text("of the user")
    os.utime(left, (time.time() - 4000,) * 2)
    os.utime(tmp_path / ".hidden", (time.time() - 4000,) * 2)
    store.tidy()
    assert not left.exists()
    assert being_written.exists()
    assert (tmp_path / ".hidden").exists()
    assert store.units() == {UNIT: 270}


def test_the_record_is_json_and_versioned(store):
    assert store.record() is None
    store.write_record({"norm": "L2", "model": {"name": "ß"}})
    assert store.record() == {"schema": 2, "norm": "L2", "model": {"name": "ß"}}
    store.folder.write("record.json", json.dumps({"schema": 99}).encode())
    with pytest.raises(FrontierError, match="schema 99: this version reads schema 2"):
        store.record()
    store.folder.write("record.json", b"{")
    with pytest.raises(FrontierError, match=r"record\.json is damaged .*: expected a record; put back a copy"):
        store.record()


def test_nothing_half_written_is_ever_seen(tmp_path, monkeypatch):
    """The disk fills up in the middle of a write: the old file is still there, and nothing else."""
    folder = LocalFolder(tmp_path)
    folder.write("units/a/x", b"old")

    def full(_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(OSError, match="No space"):
        folder.write("units/a/x", b"new and longer")
    assert folder.read("units/a/x") == b"old"
    assert [path.name for path in (tmp_path / "units" / "a").iterdir()] == ["x"]


def test_ten_thousand_units_are_listed_in_two_seconds(tmp_path):
    store = Store(tmp_path)
    for run in range(100):
        folder = tmp_path / "units" / f"fmn.target{run}"
        folder.mkdir(parents=True)
        for shard in range(100):
            (folder / f"{100 * shard:05d}+100-1000.safetensors").touch()
    started = time.process_time()
    assert len(store.units()) == 10_000
    assert time.process_time() - started < 2


def test_an_address_nobody_knows():
    with pytest.raises(FrontierError, match="cannot open nowhere://x"):
        Store("nowhere://x")
