"""Folders and their files: written atomically, listed fast, and never left by a link."""

import os
import time

import pytest
from record_made import SMALL, clean_of, header_of, made_record

from advfrontier import FrontierError
from advfrontier.record import (
    Record,
    find_records,
    folder_name,
    norm_folder,
    open_folder,
    write_file,
)
from advfrontier.record.folder import LocalFolder, below, check_empty, write_files
from advfrontier.record.header import HeaderChange
from advfrontier.threat.names import NormFacts, register_norm


@pytest.fixture(params=["local", "remote"])
def place(request, tmp_path):
    return str(tmp_path / "f") if request.param == "local" else f"memory://{tmp_path}/f"


def test_files_of_a_folder(place):
    folder = open_folder(place)
    assert folder.read("units/a/x") is None
    assert folder.open("units/a/x") is None
    assert folder.names() == folder.entries() == []
    for name in ("units/a/x", "units/b/y", "z"):
        folder.write(name, name.encode())
    folder.write("z", b"new")
    assert folder.read("z") == b"new"
    with folder.open("units/a/x") as file:
        assert file.read() == b"units/a/x"
    assert folder.names() == ["units/a/x", "units/b/y", "z"]
    assert folder.names("units") == ["units/a/x", "units/b/y"]
    assert folder.names(depth=0) == ["z"]
    assert folder.names("units", depth=1) == ["units/a/x", "units/b/y"]
    assert folder.entries() == ["units", "z"]
    folder.remove("z")
    folder.remove("z")
    assert folder.names() == ["units/a/x", "units/b/y"]
    assert open_folder(folder.place).read("units/a/x") == b"units/a/x"


def test_a_record_can_be_copied_to_a_new_folder_only(place, tmp_path):
    record = made_record(place)
    record.copy(tmp_path / "copy")
    copied = Record.find(tmp_path / "copy" / "L2")
    assert copied.header == record.header
    assert all(copied.read_unit(*unit) is not None for unit in record.units().items())
    assert len(copied.samples().read(copied.clean.labels[:0])) == 0
    with pytest.raises(FrontierError, match="holds a record already"):
        record.copy(tmp_path / "copy")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "L2").mkdir()
    (tmp_path / "mine" / "L2" / "notes.txt").touch()
    with pytest.raises(FrontierError, match=r"holds notes\.txt, but no record\.json"):
        record.copy(tmp_path / "mine")
    record.folder.remove("record.json")
    with pytest.raises(FrontierError, match="is gone: there is nothing to copy"):
        record.copy(tmp_path / "again")


def test_records_are_opened_by_their_folder_or_that_of_their_norm(place):
    made_record(below(place, "L2"))
    assert (
        Record.open(place, "evaluation").place
        == Record.open(below(place, "L2"), "evaluation").place
    )
    with pytest.raises(
        FrontierError, match="holds no trace: found a record of the kind evaluation"
    ):
        Record.open(place, "trace")
    with pytest.raises(FrontierError, match="holds no evaluation: found nothing"):
        Record.open(below(place, "nowhere"), "evaluation")
    terms = header_of(clean_of(4)).terms.model_copy(update={"norm": "L1"})
    Record.begin(below(place, "L1"), header_of(clean_of(4), terms=terms))
    with pytest.raises(FrontierError, match=r"holds several norms \(L1, L2\): open one, such as"):
        Record.open(place, "evaluation")
    assert norm_folder(place, "L2") == below(place, "L2")
    assert norm_folder(below(place, "L2"), "L2") == below(place, "L2")


def test_a_record_in_a_registered_norm_is_opened(place):
    register_norm(NormFacts("Ltest", "ℓt", "mine:Norm"))
    terms = header_of(clean_of(4)).terms.model_copy(update={"norm": "Ltest"})
    Record.begin(below(place, "Ltest"), header_of(clean_of(4), terms=terms))
    made_record(below(place, "L2"))
    found = find_records(place, kind="evaluation")
    assert [record.header.terms.norm for record in found] == ["L2", "Ltest"]
    with pytest.raises(FrontierError, match="several norms"):
        Record.open(place, "evaluation")


def test_records_below_a_folder_are_found_in_order(place):
    for model in ("b", "a"):
        for norm in ("Linf", "L0", "L2"):
            terms = header_of(clean_of(4)).terms.model_copy(update={"norm": norm})
            kind = "trace" if norm == "L0" and model == "a" else "evaluation"
            header = header_of(clean_of(4), terms=terms, kind=kind)
            assert Record.begin(below(place, model, norm), header)
    write_file(below(place, "other", "record.json"), b'{"what": "else"}')
    found = [record.place.split("/f/")[-1] for record in find_records(place, kind="evaluation")]
    assert found == ["a/L2", "a/Linf", "b/L0", "b/L2", "b/Linf"]
    assert find_records(below(place, "a", "L2"), kind="trace", needed=False) == []
    with pytest.raises(FrontierError, match="holds no record of the kind baseline: type"):
        find_records(place, kind="baseline")
    with pytest.raises(FrontierError, match=r"no folder .*nowhere, or nothing in it: type"):
        find_records(below(place, "nowhere"), kind="trace")
    write_file(below(place, "broken", "record.json"), b'{"schema"')
    with pytest.raises(FrontierError, match=r"broken/record\.json is damaged"):
        find_records(place, kind="evaluation")


def test_a_record_is_never_started_among_other_files(place):
    open_folder(place).write("notes.txt", b"mine")
    with pytest.raises(FrontierError, match=r"holds notes\.txt, but no record\.json: .*/record$"):
        Record.begin(place, header_of(clean_of(4)))
    assert open_folder(place).entries() == ["notes.txt"]
    assert check_empty(place, but_for=("notes.txt",)).read("notes.txt") == b"mine"


def test_what_advfrontier_leaves_hidden_is_no_obstacle(tmp_path):
    for name in (".record.lock", ".x.safetensors.advfrontier-4711-0badcafe"):
        (tmp_path / name).touch()
    assert Record.begin(tmp_path, header_of(clean_of(4))) is not None


def test_no_link_is_followed(tmp_path):
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "precious").write_text("precious")
    record = made_record(tmp_path / "L2")
    folder = record.folder
    (tmp_path / "L2" / "linked").symlink_to(tmp_path / "outside")
    message = r"is a link or leads out of .*: expected the folder's own files; put a copy"
    for use in (
        lambda: folder.read("linked/precious"),
        lambda: folder.write("linked/precious", b"x"),
        lambda: folder.remove("linked/precious"),
        lambda: folder.names("linked"),
        lambda: folder.read("../outside/precious"),
        lambda: folder.remove_abandoned("linked", time.time()),
    ):
        with pytest.raises(FrontierError, match=message):
            use()
    assert "linked/precious" not in folder.names()
    lock = tmp_path / "L2" / ".record.lock"
    lock.unlink(missing_ok=True)
    lock.symlink_to(tmp_path / "outside" / "precious")
    with pytest.raises(FrontierError, match=message):
        record.change(HeaderChange(finished=SMALL.with_total(40)))
    assert (tmp_path / "outside" / "precious").read_text() == "precious"


def test_files_left_by_a_kill_are_removed_an_hour_later_and_no_others(tmp_path):
    folder = tmp_path / "units"
    folder.mkdir()
    left = folder / ".x.safetensors.advfrontier-4711-0badcafe"
    written = folder / ".y.safetensors.advfrontier-4712-0badcafe"
    foreign = [folder / name for name in (".env.prod-eu", ".hidden", "notes.x-1", ".x.y-z")]
    for path in (left, written, *foreign):
        path.write_bytes(b"half")
        if path != written:
            os.utime(path, (time.time() - 4000,) * 2)
    LocalFolder(tmp_path).remove_abandoned("units", time.time() - 3600)
    assert not left.exists()
    assert written.exists()
    assert all(path.read_bytes() == b"half" for path in foreign)
    LocalFolder(tmp_path).remove_abandoned("nowhere", time.time())


def test_a_file_that_its_writer_renames_meanwhile_is_left_to_it(tmp_path, monkeypatch):
    gone = tmp_path / ".x.safetensors.advfrontier-4711-0badcafe"
    monkeypatch.setattr("pathlib.Path.iterdir", lambda _: iter([gone]))
    LocalFolder(tmp_path).remove_abandoned("", time.time())


def test_folders_of_models_are_apart_and_never_above(tmp_path):
    models = ["..", ".", "", "a/b", "a-b", "a b", "zoo:F3", "zoo-F3", "é", "x" * 9, "...", "/etc"]
    models += ["a\0b", "a\nb", "\ud800"]
    folders = [folder_name(model) for model in models]
    assert len(set(folders)) == len(models)
    for folder in folders:
        (tmp_path / folder).mkdir()
        assert (tmp_path / folder).resolve().parent == tmp_path
        assert "/" not in folder
    assert folder_name("robust-net_1.0") == "robust-net_1.0"
    assert folder_name("zoo:F3") == "zoo+F3"


def test_a_file_that_somebody_else_wrote_is_not_replaced(tmp_path):
    (tmp_path / "report.html").write_text("mine")
    message = "was not written by advfrontier: move it away, or name another file"
    with pytest.raises(FrontierError, match=message):
        write_file(tmp_path / "report.html", b"<new>", mark=b"<new")
    assert (tmp_path / "report.html").read_text() == "mine"
    write_file(tmp_path / "own.html", b"<new>", mark=b"<new")
    write_file(tmp_path / "own.html", b"<newer>", mark=b"<new")
    assert (tmp_path / "own.html").read_bytes() == b"<newer>"
    for address in (f"file://{tmp_path}/report.html", f"memory://{tmp_path}/report.html"):
        if address.startswith("memory"):
            write_file(address, b"mine")
        with pytest.raises(FrontierError, match=r"report.html was not written by advfrontier"):
            write_file(address, b"<new>", mark=b"<new")
    (tmp_path / "record").mkdir()
    (tmp_path / "record" / "link.html").symlink_to(tmp_path / "own.html")
    with pytest.raises(FrontierError, match="is a link to another folder"):
        write_file(tmp_path / "record" / "link.html", b"x")
    assert (tmp_path / "own.html").read_bytes() == b"<newer>"


def test_files_are_written_to_a_folder_anywhere(place):
    def write(aside):
        for name in ("a.txt", "deep/b.txt"):
            (aside / name).parent.mkdir(exist_ok=True)
            (aside / name).write_text(name)
            yield aside / name

    assert write_files(place, write) == [below(place, "a.txt"), below(place, "deep/b.txt")]
    assert open_folder(place).read("deep/b.txt") == b"deep/b.txt"
    with pytest.raises(FrontierError, match="was not written by advfrontier"):
        write_files(place, write, mark=b"<html")


def test_a_pipe_is_written_to_and_not_replaced(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    write_file(pipe, b"through")
    assert os.read(reader, 100) == b"through"
    os.close(reader)
    assert pipe.is_fifo()


def test_ten_thousand_units_are_listed_in_two_seconds(tmp_path):
    record = made_record(tmp_path)
    for run in range(100):
        folder = tmp_path / "units" / f"fmn.target{run}"
        folder.mkdir(parents=True)
        for shard in range(100):
            (folder / f"{100 * shard:05d}+100-1000.safetensors").touch()
    started = time.process_time()
    assert len(record.units()) == 10_002
    assert time.process_time() - started < 2


def test_a_file_at_the_top_of_an_address_is_not_written_here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_file("memory://top.html", b"page")
    assert open_folder("memory://").read("top.html") == b"page"
    assert not list(tmp_path.iterdir())


def test_a_relative_folder_stays_where_it_was_opened(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    folder = open_folder("here")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    folder.write("x", b"x")
    assert (tmp_path / "here" / "x").read_bytes() == b"x"
    assert below("") == "."
    assert below("s3://bucket/", "a", "b") == "s3://bucket/a/b"


def test_a_file_is_no_folder(tmp_path):
    (tmp_path / "notes.txt").touch()
    with pytest.raises(FrontierError, match=r"notes\.txt is a file: expected a folder"):
        Record.find(tmp_path / "notes.txt")
    assert find_records(str(tmp_path / "notes.txt"), kind="evaluation", needed=False) == []


def test_an_address_nobody_knows():
    with pytest.raises(FrontierError, match="cannot open nowhere://x"):
        open_folder("nowhere://x")
