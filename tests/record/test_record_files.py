"""Records on disk: whole or not at all, checked when read, never unpickled."""

import json
import os
import time

import pytest
import torch
from support.models import conv_net, samples

from advfrontier import Ensemble, FrontierError, evaluate
from advfrontier.jobs.setup import tidy
from advfrontier.record import Header, Record, UnitName, find_records, folder_name, open_folder
from advfrontier.record.folder import LocalFolder, write_file

TENSORS = {
    "a": torch.arange(6.0).view(2, 3),
    "b": torch.tensor([True, False]),
    "c": torch.tensor(7),
}
UNIT = UnitName("fmn", 0, 4)
SHAPE = (1, 6, 6)


@pytest.fixture(params=["local", "remote"])
def record(request, tmp_path):
    """A record with two units of one run."""
    place = (
        str(tmp_path / "record") if request.param == "local" else f"memory://{tmp_path.name}/record"
    )
    model = conv_net(SHAPE, classes=10, seed=5)
    images, labels = samples(model, 8, SHAPE, seed=5)
    ensemble = Ensemble.of("small", "L2", {"fmn": 40})
    yield evaluate(
        model, images, labels, norm="L2", ensemble=ensemble, batch_size=4, out=place
    ).record
    if request.param == "remote":
        import fsspec  # noqa: PLC0415

        fsspec.filesystem("memory").store.clear()


def write_unit(record, unit, queries, tensors):
    words = {"seconds": "0", "checks": "0", "attack": "0", "verification": "0"}
    record.write_file(
        unit.file(queries), tensors, words, record.unit_mark(unit, record.header.solvers["fmn"])
    )


def test_a_unit_is_named_by_run_shard_and_queries(record):
    assert (
        UnitName("fmn:target1", 200, 100).file(270)
        == "units/fmn.target1/00200+100-0270.safetensors"
    )
    assert UnitName.of_file("units/fmn.target1/00200+100-0270.safetensors") == (
        UnitName("fmn:target1", 200, 100),
        270,
    )
    assert UnitName.of_file("units/fmn.target1/notes.txt") is None
    assert record.units() == {UNIT: 40, UnitName("fmn", 4, 4): 40}
    assert record.read_unit(UNIT, 40).queries == 40
    assert record.read_unit(UNIT, 50) is None


def test_what_a_kill_between_writing_and_removing_leaves_is_tidied(record):
    write_unit(record, UNIT, 270, TENSORS)
    assert record.units()[UNIT] == 270
    assert len(record.unit_files()) == 3
    tidy(record)
    assert len(record.unit_files()) == 2
    assert record.units()[UNIT] == 270


def test_a_unit_that_another_process_writes_meanwhile_is_left_alone(record, monkeypatch):
    names, listed = record.folder.names, []

    def slowly(*about):
        found = names(*about)
        if not listed:
            write_unit(record, UnitName("ddn", 0, 4), 20, TENSORS)
        listed.append(about)
        return found

    monkeypatch.setattr(record.folder, "names", slowly)
    tidy(record)
    assert len(record.units()) == 3


def test_a_damaged_unit_is_named_and_who_reads_removes_nothing(record):
    name = UNIT.file(40)
    record.folder.write(name, record.folder.read(name)[:-3])
    assert record.read_unit(UNIT, 40) is None
    assert record.damaged[name].startswith(name)
    assert record.folder.read(name) is not None


def test_some_tensors_of_a_unit(record):
    stored = record.read_unit(UNIT, 40, ("trajectory",))
    assert set(stored.tensors) == {"trajectory"}
    assert stored.words["run"] == "fmn"
    assert record.read_unit(UNIT, 40, ()).tensors == {}


def test_a_record_can_be_copied_to_a_new_folder_only(record, tmp_path):
    record.copy(tmp_path / "copy")
    assert Record.find(tmp_path / "copy" / "L2").read_unit(UNIT, 40) is not None
    with pytest.raises(FrontierError, match="holds a record already"):
        record.copy(tmp_path / "copy")


def test_the_header_is_json_with_a_schema_and_a_checksum(record):
    content = json.loads(record.folder.read("record.json"))
    assert content["schema"] == 4
    assert content["model"]["name"] == "Sequential"
    assert Header.from_bytes(record.folder.read("record.json"), "here") == record.header
    for change in ({"schema": 99}, {"schema": None}):
        record.folder.write("record.json", json.dumps(content | change).encode())
        with pytest.raises(FrontierError, match=r"a record of schema (99|None): expected 4"):
            Record.find(record.place)
    for change in ({"flags": []}, {"runs": {}}, {"checksum": "0"}, {"keep_state": False}):
        record.folder.write("record.json", json.dumps(content | change).encode())
        if json.loads(record.folder.read("record.json")) != content:
            with pytest.raises(
                FrontierError, match="checksum does not match: it was changed after it was written"
            ):
                Record.find(record.place)
    record.folder.write("record.json", b"{")
    with pytest.raises(
        FrontierError, match=r"record\.json is damaged .*: expected a record; put back a copy"
    ):
        Record.find(record.place)


def test_a_header_that_others_have_changed_is_read_again_before_it_is_written(record):
    other = Record.find(record.place)
    other.change(lambda header: {"runs": {**header.runs, "ddn": 20}})
    record.change(lambda header: {"runs": {**header.runs, "alma": 30}})
    assert Record.find(record.place).header.runs == {"fmn": 40, "ddn": 20, "alma": 30}


def test_a_header_that_is_gone_is_not_called_damaged(record):
    record.folder.remove("record.json")
    with pytest.raises(FrontierError, match=r"record\.json is gone"):
        record.change(lambda _: {"keep_state": False})


def test_a_unit_that_is_extended_while_it_is_read_is_read_from_the_longer_file(record):
    second = UnitName("fmn", 4, 4)
    reading = record.read_units({"fmn": 40}, ("trajectory",))
    assert next(reading)[0] == UNIT
    write_unit(record, second, 60, {"trajectory": torch.zeros(6, 4)})
    record.folder.remove(second.file(40))
    unit, _, stored = next(reading)
    assert (unit, stored.queries) == (second, 60)


def test_a_file_that_its_writer_renames_meanwhile_is_nobodys(tmp_path, monkeypatch):
    gone = tmp_path / ".x.safetensors.advfrontier-4711-0badcafe"
    monkeypatch.setattr("pathlib.Path.iterdir", lambda _: iter([gone]))
    LocalFolder(tmp_path).remove_abandoned("", time.time())


def test_files_left_by_a_kill_are_removed_an_hour_later_and_no_others(tmp_path):
    model = conv_net(SHAPE, classes=10, seed=5)
    images, labels = samples(model, 4, SHAPE, seed=5)
    ensemble = Ensemble.of("small", "L2", {"fmn": 40})
    record = evaluate(
        model, images, labels, norm="L2", ensemble=ensemble, batch_size=4, out=tmp_path / "a" / "L2"
    ).record
    folder = tmp_path / "a" / "L2" / "units" / "fmn"
    left = folder / ".x.safetensors.advfrontier-4711-0badcafe"
    being_written = folder / ".y.safetensors.advfrontier-4712-0badcafe"
    foreign = [tmp_path / "a" / "L2" / name for name in (".env.prod-eu", ".hidden", "notes.x-1")]
    foreign += [folder / ".x.y-z", tmp_path / "a" / "L2" / "images" / "picture.png"]
    for path in (left, being_written, *foreign):
        path.write_bytes(b"half")
        if path != being_written:
            os.utime(path, (time.time() - 4000,) * 2)
    tidy(record)
    assert not left.exists()
    assert being_written.exists()
    assert all(path.read_bytes() == b"half" for path in foreign)
    assert record.units() == {UNIT: 40}


def test_folders_of_models_are_apart_and_never_above(tmp_path):
    names = ["..", ".", "", "a/b", "a-b", "a b", "zoo:F3", "zoo-F3", "é", "x" * 9, "...", "/etc"]
    folders = [folder_name(name) for name in names]
    assert len(set(folders)) == len(names)
    for folder in folders:
        (tmp_path / folder).mkdir()
        assert (tmp_path / folder).resolve().parent == tmp_path
        assert "/" not in folder
    assert folder_name("robust-net_1.0") == "robust-net_1.0"


def test_a_file_that_somebody_else_wrote_is_not_replaced(tmp_path):
    (tmp_path / "report.html").write_text("mine")
    with pytest.raises(
        FrontierError, match="was not written by advfrontier: move it away, or name another file"
    ):
        write_file(tmp_path / "report.html", b"<new>", mark=b"<new")
    assert (tmp_path / "report.html").read_text() == "mine"
    write_file(tmp_path / "own.html", b"<new>", mark=b"<new")
    write_file(tmp_path / "own.html", b"<newer>", mark=b"<new")
    assert (tmp_path / "own.html").read_bytes() == b"<newer>"
    for address in (f"file://{tmp_path}/report.html", "memory://foreign/report.html"):
        if address.startswith("memory"):
            write_file(address, b"mine")
        with pytest.raises(FrontierError, match=r"report.html was not written by advfrontier"):
            write_file(address, b"<new>", mark=b"<new")
    (tmp_path / "record").mkdir()
    (tmp_path / "record" / "link.html").symlink_to(tmp_path / "own.html")
    with pytest.raises(FrontierError, match="is a link to another folder"):
        write_file(tmp_path / "record" / "link.html", b"x")
    assert (tmp_path / "own.html").read_bytes() == b"<newer>"


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
    model = conv_net(SHAPE, classes=10, seed=5)
    images, labels = samples(model, 4, SHAPE, seed=5)
    ensemble = Ensemble.of("small", "L2", {"ddn": 20})
    record = evaluate(
        model, images, labels, norm="L2", ensemble=ensemble, out=tmp_path / "a" / "L2"
    ).record
    for run in range(100):
        folder = tmp_path / "a" / "L2" / "units" / f"fmn.target{run}"
        folder.mkdir(parents=True)
        for shard in range(100):
            (folder / f"{100 * shard:05d}+100-1000.safetensors").touch()
    started = time.process_time()
    assert len(record.units()) == 10_001
    assert time.process_time() - started < 2


def test_tidying_takes_time_in_proportion_to_the_files(tmp_path):
    model = conv_net(SHAPE, classes=10, seed=5)
    images, labels = samples(model, 4, SHAPE, seed=5)
    ensemble = Ensemble.of("small", "L2", {"ddn": 20})
    done = evaluate(
        model, images, labels, norm="L2", ensemble=ensemble, batch_size=1, out=tmp_path / "a" / "L2"
    )
    record = done.record
    record.write_clean(record.clean.rows(torch.zeros(20_000, dtype=torch.int64)))
    for row in range(4, 20_000):
        (tmp_path / "a" / "L2" / "units" / "ddn" / f"{row:05d}+001-0020.safetensors").touch()
    started = time.process_time()
    tidy(record)
    assert time.process_time() - started < 5
    assert len(record.units()) == 20_000


def test_a_file_at_the_top_of_an_address_is_not_written_here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_file("memory://top.html", b"page")
    assert open_folder("memory://").read("top.html") == b"page"
    assert not list(tmp_path.iterdir())


def test_a_file_is_no_folder(tmp_path):
    (tmp_path / "notes.txt").touch()
    with pytest.raises(FrontierError, match=r"notes\.txt is a file: expected a folder"):
        Record.find(tmp_path / "notes.txt")
    assert find_records(str(tmp_path / "notes.txt"), kind="evaluation", needed=False) == []


def test_an_address_nobody_knows():
    with pytest.raises(FrontierError, match="cannot open nowhere://x"):
        open_folder("nowhere://x")
