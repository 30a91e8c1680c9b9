"""The journal: changes as files of their own, in one order for all readers, never lost."""

import json
import threading

import pytest
from record_made import clean_of, header_of

from advfrontier import FrontierError
from advfrontier.record import Header, HeaderChange, Record, open_folder
from advfrontier.record import journal as journal_module
from advfrontier.record.header import SCHEMA, sealed, unsealed
from advfrontier.record.journal import Journal


@pytest.fixture
def place(tmp_path):
    return f"memory://{tmp_path}/record"


def journal_at(place, model="0" * 32):
    return Journal(open_folder(place), model)


def noted(journal):
    return [entry.change.command for entry in journal.read()]


def test_changes_are_read_in_the_order_of_their_writers(place):
    one, two = journal_at(place), journal_at(place)
    for k, journal in enumerate((one, two, one, two, two)):
        journal.read()
        journal.append(HeaderChange(command=f"command {k}"))
    expected = [f"command {k}" for k in range(5)]
    assert noted(one) == noted(two) == noted(journal_at(place)) == expected


def test_changes_of_writers_that_did_not_see_each_other_are_both_kept(place):
    one, two = journal_at(place), journal_at(place)
    one.append(HeaderChange(command="one"))
    two.append(HeaderChange(command="two"))
    assert sorted(noted(one)) == ["one", "two"]
    assert noted(one) == noted(journal_at(place))


def test_many_files_become_one(place):
    journal = journal_at(place)
    expected = [f"command {k}" for k in range(80)]
    for command in expected:
        journal.read()
        journal.append(HeaderChange(command=command))
    assert len(open_folder(place).names("changes")) <= 33
    assert noted(journal_at(place)) == expected


def test_two_writers_that_put_files_together_lose_nothing(place, monkeypatch):
    """Each has read all files of the other before either writes: the worst moment."""
    monkeypatch.setattr(journal_module, "MOST_PAGES", 3)
    first = journal_at(place)
    for k in range(3):
        first.read()
        first.append(HeaderChange(command=f"command {k}"))
    one, two = journal_at(place), journal_at(place)
    one.read()
    two.read()
    one.append(HeaderChange(command="one"))
    two.append(HeaderChange(command="two"))
    assert set(noted(first)) == {"command 0", "command 1", "command 2", "one", "two"}
    for _ in range(5):  # and putting theirs together again
        first.read()
        first.append(HeaderChange(command="again"))
    assert {"command 0", "command 1", "command 2", "one", "two"} < set(noted(journal_at(place)))


def test_a_reader_beside_a_writer_that_puts_files_together(place, monkeypatch):
    monkeypatch.setattr(journal_module, "MOST_PAGES", 2)
    journal = journal_at(place)
    counts, done = [], threading.Event()

    def read():
        reader = journal_at(place)
        while not done.is_set():
            counts.append(len(reader.read()))

    thread = threading.Thread(target=read)
    thread.start()
    for k in range(60):
        journal.read()
        journal.append(HeaderChange(command=f"command {k}"))
    done.set()
    thread.join()
    assert counts == sorted(counts)  # no change that was seen is ever missing again
    assert len(journal_at(place).read()) == 60


def test_a_file_that_is_being_written_is_waited_for(place):
    journal = journal_at(place)
    journal.append(HeaderChange(command="one"))
    folder = open_folder(place)
    (name,) = folder.names("changes")
    whole = folder.read(name)
    folder.write(name, whole[:-20])
    timer = threading.Timer(0.05, folder.write, (name, whole))
    timer.start()
    assert noted(journal_at(place)) == ["one"]
    timer.join()


@pytest.mark.parametrize("damage", ["cut", "changed", "another model", "newer", "number"])
def test_a_damaged_file_is_named(place, damage):
    Record.begin(place, header_of(clean_of(6)))
    journal_at(place).append(HeaderChange(command="one"))
    folder = open_folder(place)
    (name,) = folder.names("changes")
    content = folder.read(name)
    fields = unsealed(content, place, name)
    message = rf"{name} is damaged \(.*put back a copy"
    if damage == "cut":
        changed = content[:-20]
        message = rf"{name} is cut short.*was killed, remove this file"
    elif damage == "changed":
        changed = content.replace(b"one", b"two")
    elif damage == "another model":
        changed = sealed(fields | {"model": "1" * 32})
        message = "it belongs to a record of another model"
    elif damage == "number":
        fields["entries"][0]["number"] = 10**20
        changed = sealed(fields)
    else:
        changed = json.dumps({**fields, "schema": SCHEMA + 1}, indent=2).encode() + b"\n"
        message = "it is newer than this"
    folder.write(name, changed)
    with pytest.raises(FrontierError, match=message):
        Record.find(place)


def test_other_files_in_the_folder_are_left_alone(place):
    journal_at(place).append(HeaderChange(command="one"))
    folder = open_folder(place)
    folder.write("changes/notes.txt", b"mine")
    folder.write(f"changes/{'9' * 20}-{'0' * 16}.json", b"mine")
    assert noted(journal_at(place)) == ["one"]
    assert folder.read("changes/notes.txt") == b"mine"


def test_a_change_with_the_largest_number_is_the_last_one(place):
    journal = journal_at(place)
    journal.append(HeaderChange(command="one"))
    folder = open_folder(place)
    (name,) = folder.names("changes")
    fields = unsealed(folder.read(name), place, name)
    fields["entries"][0]["number"] = 10**8 - 1
    folder.write(name, sealed(fields))
    last = journal_at(place)
    last.read()
    with pytest.raises(FrontierError, match=r"changes is damaged .it holds a change of the number"):
        last.append(HeaderChange(command="two"))


def test_a_journal_counts_also_in_a_folder_of_this_machine(tmp_path):
    """As after a copy of a bucket by other means."""
    header = header_of(clean_of(6))
    Record.begin(tmp_path, header)
    journal_at(tmp_path).append(HeaderChange(command="one"))
    record = Record.find(tmp_path)
    assert record.header.commands == ("one",)
    record.change(HeaderChange(command="two"))
    assert Record.find(tmp_path).header.commands == ("one", "two")
    assert Header.from_bytes((tmp_path / "record.json").read_bytes(), "here") == header
