"""Errors of the operating system and unsafe text: one message that says what to do."""

import errno
import os
import pickle
import subprocess
import sys
from pathlib import Path

import pytest
from record_made import LARGER, SMALL, clean_of, header_of, made_record
from support.disks import read_only, small_disk

from advfrontier import FrontierError
from advfrontier.errors import ReadOnlyError, Unfinished, explain_os_errors, printable
from advfrontier.record import HeaderChange, Record, open_folder, write_file, write_files
from advfrontier.record.folder import LocalFolder
from advfrontier.toml import TomlTable, read_toml


def failing(number):
    """Return a function of the operating system that fails with an error number."""

    def fail(*_, **__):
        raise OSError(number, os.strerror(number))

    return fail


FULL = "cannot be written: the disk is full.*everything stored before is intact.*run the same comm"


def test_a_full_disk(tmp_path, monkeypatch):
    folder = LocalFolder(tmp_path)
    folder.write("units/a/x", b"old")
    monkeypatch.setattr("os.fsync", failing(errno.ENOSPC))
    with pytest.raises(FrontierError, match=rf"units/a/x {FULL}"):
        folder.write("units/a/x", b"new and longer")
    assert folder.read("units/a/x") == b"old"
    assert [path.name for path in (tmp_path / "units" / "a").iterdir()] == ["x"]
    with pytest.raises(FrontierError, match=rf"page\.html {FULL}"):
        write_file(tmp_path / "page.html", b"<html>")
    assert not (tmp_path / "page.html").exists()


def test_a_full_disk_leaves_the_header_as_it_was(tmp_path, monkeypatch):
    record = made_record(tmp_path / "record")
    before = record.header
    monkeypatch.setattr("os.fsync", failing(errno.ENOSPC))
    with pytest.raises(FrontierError, match=rf"record\.json {FULL}"):
        record.change(HeaderChange(add_counts={"checks": 1}))
    assert record.header == Record.find(tmp_path / "record").header == before


@pytest.mark.skipif(sys.platform == "win32", reason="limits of processes")
def test_a_file_larger_than_the_limit(tmp_path):
    """The operating system itself refuses to write on."""
    program = f"""
import resource
from advfrontier.errors import FrontierError
from advfrontier.record.folder import LocalFolder
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
folder = LocalFolder({str(tmp_path)!r})
folder.write("x", b"old")
try:
    folder.write("x", bytes(2000))
except FrontierError as error:
    print(error)
assert folder.read("x") == b"old"
"""
    words = [sys.executable, "-c", program]
    done = subprocess.run(words, check=True, capture_output=True, text=True)  # noqa: S603
    assert "x cannot be written: the file would be larger than the system allows" in done.stdout
    assert [path.name for path in tmp_path.iterdir()] == ["x"]


def test_a_small_disk_that_is_full(tmp_path):
    with small_disk(tmp_path / "disk", "64k") as disk:
        folder = LocalFolder(disk)
        folder.write("x", b"old")
        with pytest.raises(FrontierError, match=FULL):
            folder.write("x", bytes(100_000))
        assert folder.read("x") == b"old"
        assert folder.entries() == ["x"]


def test_a_finished_record_on_a_disk_that_is_really_read_only(tmp_path):
    made_record(tmp_path / "record").copy(tmp_path / "L2")
    with read_only(tmp_path / "L2", tmp_path / "view") as view:
        use_finished(Record.open(view, "evaluation"))
        with pytest.raises(ReadOnlyError, match="cannot be written: its file system is read-only"):
            Record.find(view).change(HeaderChange(ensemble=LARGER))


def use_finished(record):
    """Do all that asking for a finished record once more does."""
    assert record.change(HeaderChange(ensemble=SMALL, finished=SMALL, keep_state=True))
    record.check_numerics()
    assert not record.change(HeaderChange(command="advfrontier evaluate"), optional=True)
    assert not record.change(HeaderChange(add_counts={"checks": 8}), optional=True)
    for unit, queries in record.units().items():
        assert record.read_unit(unit, queries) is not None
    assert record.finished({"ensemble": 60}) == (2, 2)
    assert len(record.samples().read(record.clean.labels[:0])) == 0
    assert record.read_certified() is None
    assert record.header.commands == ()


@pytest.mark.parametrize("number", [errno.EROFS, errno.EACCES, errno.EPERM])
def test_a_record_that_must_not_be_written(tmp_path, monkeypatch, number):
    record = made_record(tmp_path / "record")
    monkeypatch.setattr("os.open", failing(number))
    monkeypatch.setattr("pathlib.Path.mkdir", failing(number))
    use_finished(record)
    with pytest.raises(ReadOnlyError, match=r"cannot be written: .*Nothing was changed"):
        record.change(HeaderChange(ensemble=LARGER))
    with pytest.raises(ReadOnlyError, match=r"cannot be written: .*Nothing was changed"):
        Record.begin(tmp_path / "other", header_of(clean_of(4)))


def test_a_file_that_must_not_be_read(tmp_path, monkeypatch):
    made_record(tmp_path / "record")
    monkeypatch.setattr("pathlib.Path.open", failing(errno.EACCES))
    with pytest.raises(ReadOnlyError, match=r"record\.json cannot be read: permission denied.*Ask"):
        Record.find(tmp_path / "record")


def test_a_folder_that_cannot_be_listed_is_not_taken_for_empty(tmp_path, monkeypatch):
    record = made_record(tmp_path / "record")
    monkeypatch.setattr("os.scandir", failing(errno.EIO))
    with pytest.raises(FrontierError, match=r"units cannot be listed: the device reports"):
        record.units()
    monkeypatch.setattr("os.scandir", failing(errno.EACCES))
    assert open_folder(tmp_path).names(depth=3, skip_unreadable=True) == []


def test_a_device_that_fails(tmp_path, monkeypatch):
    record = made_record(tmp_path / "record")
    message = r"cannot be (read|removed): the device reports an input/output error.*another disk"
    monkeypatch.setattr("pathlib.Path.open", failing(errno.EIO))
    with pytest.raises(FrontierError, match=message):
        record.read_clean()
    monkeypatch.setattr("pathlib.Path.unlink", failing(errno.EIO))
    with pytest.raises(FrontierError, match=message):
        record.remove_unit(*next(iter(record.units().items())))


NAMES = {
    "long": ("x" * 300, r"cannot be (read|written|listed): the name is too long.*255 bytes"),
    "nul": ("a\0b", r"a\\x00b.* cannot be (read|written|listed): its name holds a NUL"),
}


@pytest.mark.parametrize("kind", ["long", "nul"])
def test_names_that_no_file_can_have(tmp_path, kind):
    name, message = NAMES[kind]
    place = tmp_path / name
    uses = (
        lambda: Record.find(place),
        lambda: Record.open(str(place), "evaluation"),
        lambda: Record.begin(place, header_of(clean_of(4))),
        lambda: made_record(tmp_path / "right").copy(place),
        lambda: write_file(place, b"x"),
        lambda: write_file(place / "x.html", b"x", mark=b"x"),
        lambda: write_files(place, written),
        lambda: open_folder(place).names(),
        lambda: open_folder(place).entries(),
        lambda: open_folder(tmp_path).write(f"{name}/x", b"x"),
        lambda: read_toml(TomlTable, place),
    )
    for number, use in enumerate(uses):
        with pytest.raises(FrontierError, match=message):
            use()
        if number == 3:
            (tmp_path / "right").rename(tmp_path / f"was {number}")


def written(folder):
    (folder / "x").write_bytes(b"x")
    yield folder / "x"


def test_a_name_that_is_no_text(tmp_path, monkeypatch):
    """As the command line of a system whose files are not named in UTF-8."""
    monkeypatch.setattr("os.open", failing(0))
    with pytest.raises(FrontierError, match=r"a\\ud800b cannot be written: its name is not text"):
        write_file(tmp_path / "a\ud800b", b"x")


@pytest.mark.parametrize("number", [errno.ENOTDIR, errno.EISDIR, errno.EMFILE, errno.EDQUOT, 9999])
def test_other_errors_say_what_happened(number):
    with (
        pytest.raises(FrontierError, match=r"here cannot be written: .{20,} \(.+\)$") as caught,
        explain_os_errors("written", "here"),
    ):
        failing(number)()
    assert isinstance(caught.value.__cause__, OSError)


def test_mistakes_of_programs_are_no_errors_of_the_system():
    with pytest.raises(ValueError, match="a bug"), explain_os_errors("written", "here"):
        raise ValueError("a bug")


def test_a_file_where_a_folder_should_be(tmp_path):
    (tmp_path / "notes").touch()
    with pytest.raises(FrontierError, match=r"notes is a file: expected a folder"):
        Record.find(tmp_path / "notes")
    with pytest.raises(FrontierError, match=r"x cannot be written: a file stands where a folder"):
        write_file(tmp_path / "notes" / "x", b"x")
    with pytest.raises(FrontierError, match="is a folder: expected the name of a file"):
        write_file(tmp_path, b"x")


def test_a_store_that_fails_in_its_own_words(tmp_path, monkeypatch):
    from fsspec.implementations.memory import MemoryFileSystem  # noqa: PLC0415

    class NoCredentialsError(Exception):
        pass

    def fail(*_, **__):
        raise NoCredentialsError("Unable to locate credentials")

    record = made_record(f"memory://{tmp_path}/record")
    monkeypatch.setattr(MemoryFileSystem, "cat_file", fail)
    message = r"record\.json cannot be read: NoCredentialsError: Unable to locate.*credentials are"
    with pytest.raises(FrontierError, match=message):
        Record.find(record.place)
    monkeypatch.setattr(MemoryFileSystem, "pipe_file", fail)
    with pytest.raises(FrontierError, match="cannot be written: NoCredentialsError"):
        record.folder.write("x", b"x")


# Text

UNSAFE = "\x1b[31mred\x07\x00\x9b\u202e\u2066\u200f\u2028\u200b\ufeff\ud800\x7f"
SAFE = r"\x1b[31mred\x07\x00\x9b\u202e\u2066\u200f\u2028\u200b\ufeff\ud800\x7f"


def test_text_that_acts_on_a_terminal_is_escaped():
    assert printable(UNSAFE) == SAFE
    assert printable(SAFE) == SAFE
    assert printable("two\r\n  lines\tand a tab") == "two lines and a tab"
    assert printable("ε ≤ 8/255 · ℓ∞ – “x” 🂡 é 中\u00a0") == "ε ≤ 8/255 · ℓ∞ – “x” 🂡 é 中\u00a0"
    printable(UNSAFE).encode("utf-8")
    assert printable(12) == "12"


@pytest.mark.parametrize("kind", [FrontierError, ReadOnlyError, Unfinished])
def test_every_message_is_printable(kind):
    error = kind(f"all 3 models are flagged ({UNSAFE})")
    assert str(error) == f"all 3 models are flagged ({SAFE})"
    assert str(pickle.loads(pickle.dumps(error))) == str(error)  # noqa: S301
    assert repr(error) == f"{kind.__name__}({str(error)!r})"


def test_a_name_from_a_record_cannot_act_on_a_terminal(tmp_path):
    record = made_record(tmp_path / "record")
    record.change(HeaderChange(model_name="\x1b]0;owned\x07", command="x\x1b[2J"))
    (tmp_path / "record" / "clean.safetensors").unlink()
    with pytest.raises(FrontierError, match=r"to resume, type x\\x1b\[2J$"):
        _ = Record.find(tmp_path / "record").clean
    asked = record.header.model_copy(
        update={
            "model": header_of(
                clean_of(4), model={"name": "other", "source": None, "digest": "f" * 32}
            ).model
        }
    )
    assert "\x1b" not in str(FrontierError(record.header.mismatch(asked)))
    assert Path(tmp_path / "record" / "record.json").read_bytes().count(b"\x1b") == 0
