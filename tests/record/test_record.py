"""Transactions: no change of a header is lost, whoever else changes it at the same time."""

import multiprocessing
import os
import signal
import sys
import threading
import time

import fsspec
import pytest
from fsspec.implementations.dirfs import DirFileSystem
from fsspec.implementations.local import LocalFileSystem
from record_made import LARGER, SMALL, SOLVERS, clean_of, header_of, made_record

from advfrontier import FrontierError
from advfrontier.flags import Flag, Kind
from advfrontier.record import HeaderChange, Record
from advfrontier.record import folder as folder_module
from advfrontier.record import record as record_module

WRITERS, CHANGES = 4, 100
KINDS = list(Kind)


class SharedFileSystem(DirFileSystem):
    """A store behind an address that is a folder of this machine: what processes can share."""

    protocol = "shared"

    def __init__(self, **options):
        super().__init__(path="/", fs=LocalFileSystem(skip_instance_cache=True), **options)

    @classmethod
    def _strip_protocol(cls, path):
        return str(path).removeprefix("shared://")


def place_of(store, tmp_path):
    """Return the place of a record in a kind of store."""
    if store == "shared":
        fsspec.register_implementation("shared", SharedFileSystem, clobber=True)
        return f"shared://{tmp_path}/record"
    return str(tmp_path / "record") if store == "local" else f"memory://{tmp_path}/record"


def changes_of(writer, count):
    """Return what one writer changes: something of everything, each change its own."""
    for k in range(count):
        kind = KINDS[(writer * count + k) % len(KINDS)]
        yield (
            HeaderChange(add_counts={"checks": 1, f"writer {writer}": k}),
            HeaderChange(command=f"command {writer} {k}"),
            HeaderChange(add_flags=(Flag(kind, f"{kind} of {writer}"),)),
            HeaderChange(runs={f"fmn:restart{writer * count + k + 1}": 10 * (k + 1)}),
            HeaderChange(replaced={f"file {writer} {k}": {"attack": k}}),
            HeaderChange(add_radii=(float(writer * count + k),)),
            HeaderChange(finished=SMALL if k % 2 else LARGER),
        )[k % 7]


def write(places, writer, count, together):
    """Open one record after the other and change it many times, at the same time as others."""
    fsspec.register_implementation("shared", SharedFileSystem, clobber=True)
    for place in places:
        record = Record.find(place)
        together.wait()
        for change in changes_of(writer, count):
            assert record.change(change)


def nothing_is_lost(header, writers, count):
    """Compare a header with all changes of all writers."""
    expected = header_of(clean_of(6))
    for writer in range(writers):
        for change in changes_of(writer, count):
            expected = change.apply(expected)
    assert header.counts == expected.counts
    assert sorted(header.commands) == sorted(expected.commands)
    assert {flag.kind for flag in header.flags} == {flag.kind for flag in expected.flags}
    assert len(header.flags) == len(expected.flags)
    assert header.runs == expected.runs
    assert header.replaced == expected.replaced
    assert header.radii == expected.radii
    assert header.finished in (SMALL, LARGER)
    for writer in range(writers):  # the changes of one writer are in its order
        own = [text for text in header.commands if text.startswith(f"command {writer} ")]
        assert own == sorted(own, key=lambda text: int(text.split()[-1]))


def by_processes(places, writers, count):
    context = multiprocessing.get_context("spawn")
    together = context.Barrier(writers)
    workers = []
    for writer in range(writers):
        about = (places, writer, count, together)
        workers.append(context.Process(target=write, args=about))
        workers[-1].start()
    for worker in workers:
        worker.join()
    assert [worker.exitcode for worker in workers] == [0] * writers


def by_threads(places, writers, count):
    failures = []
    together = threading.Barrier(writers)

    def work(writer):
        try:
            write(places, writer, count, together)
        except Exception as error:  # noqa: BLE001
            failures.append(error)
            together.abort()

    workers = [threading.Thread(target=work, args=(writer,)) for writer in range(writers)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert failures == []


def stress(places, run, count=CHANGES):
    for place in places:
        Record.begin(place, header_of(clean_of(6)))
    run(places, WRITERS, count)
    for place in places:
        nothing_is_lost(Record.find(place).header, WRITERS, count)


def several(store, tmp_path, rounds):
    return [place_of(store, tmp_path / str(number)) for number in range(rounds)]


def test_nothing_is_lost_between_processes(tmp_path):
    places = several("local", tmp_path / "local", 1) + several("shared", tmp_path / "shared", 1)
    stress(places, by_processes, count=40)


@pytest.mark.parametrize("store", ["local", "shared", "memory"])
def test_nothing_is_lost_between_threads(tmp_path, store):
    stress(several(store, tmp_path, 2), by_threads, count=40)


@pytest.mark.slow
@pytest.mark.parametrize("store", ["local", "shared"])
def test_nothing_is_lost_in_twenty_rounds(tmp_path, store):
    stress(several(store, tmp_path, 20), by_processes)


def test_nothing_is_lost_where_a_file_system_has_no_locks(tmp_path, monkeypatch):
    """Writers that find no lock use the journal, also beside writers that find one."""
    import errno  # noqa: PLC0415
    import fcntl  # noqa: PLC0415

    turns = iter(range(10**6))
    lock = fcntl.flock

    def sometimes(*about):
        if next(turns) % 3:
            raise OSError(errno.ENOLCK, "No locks available")
        lock(*about)

    monkeypatch.setattr(fcntl, "flock", sometimes)
    stress([str(tmp_path / "record")], by_threads, count=40)
    assert Record.find(tmp_path / "record").folder.names("changes")


def hold(place, ready):
    """Take the lock of a record and never give it back."""
    with Record.find(place).folder.lock():
        ready.set()
        time.sleep(600)


@pytest.mark.skipif(sys.platform == "win32", reason="processes are killed by a signal")
def test_a_killed_holder_releases_the_lock(tmp_path):
    place = str(tmp_path / "record")
    Record.begin(place, header_of(clean_of(6)))
    context = multiprocessing.get_context("spawn")
    ready = context.Event()
    holder = context.Process(target=hold, args=(place, ready))
    holder.start()
    assert ready.wait(60)
    os.kill(holder.pid, signal.SIGKILL)
    holder.join()
    record = Record.find(place)
    assert record.change(HeaderChange(add_counts={"checks": 1}))
    assert Record.find(place).header.counts == {"checks": 1}


def test_changes_of_others_are_seen_before_the_header_is_changed(tmp_path):
    record = made_record(tmp_path / "record", kind="trace")
    Record.find(tmp_path / "record").change(HeaderChange(runs={"ddn": 200}))
    record.change(HeaderChange(runs={"alma": 30}))
    assert record.header.runs == {"fmn": 40, "ddn": 200, "alma": 30}
    assert Record.find(tmp_path / "record").header == record.header


def test_a_change_of_nothing_writes_nothing(tmp_path, monkeypatch):
    record = made_record(tmp_path / "record")

    def refuse(*about):
        raise AssertionError(about)

    monkeypatch.setattr(folder_module.LocalFolder, "write", refuse)
    monkeypatch.setattr(folder_module.LocalFolder, "lock", refuse)
    assert record.change(HeaderChange(finished=SMALL, solvers=SOLVERS, keep_state=True))
    record.reload()
    record.check_numerics()


def test_another_solver_of_an_attack_is_refused(tmp_path):
    record = made_record(tmp_path / "record")
    other = {"fmn": {"class": "FMN", "alpha": "7"}}
    message = r"made with another solver of fmn: FMN\(alpha=None\), not FMN\(alpha=7\)"
    with pytest.raises(FrontierError, match=message):
        record.change(HeaderChange(solvers=other))
    assert Record.find(tmp_path / "record").header.solvers == SOLVERS


def test_a_header_that_is_gone_is_not_called_damaged(tmp_path):
    record = made_record(tmp_path / "record")
    record.folder.remove("record.json")
    with pytest.raises(FrontierError, match=r"record\.json is gone"):
        record.change(HeaderChange(keep_state=False))


@pytest.mark.parametrize("store", ["local", "memory"])
def test_a_record_begun_by_another_process_is_left_to_it(tmp_path, store):
    place = place_of(store, tmp_path)
    first = Record.begin(place, header_of(clean_of(6)))
    assert Record.begin(place, header_of(clean_of(4))) is None
    assert Record.find(place).header == first.header


def test_two_that_begin_a_record_in_a_store_at_the_same_moment(tmp_path, monkeypatch):
    """Both see an empty folder before either writes: the second leaves it to the first."""
    place = place_of("memory", tmp_path)
    first = Record.begin(place, header_of(clean_of(6)))
    first.change(HeaderChange(add_counts={"checks": 3}))
    with monkeypatch.context() as patch:
        patch.setattr(record_module, "check_empty", lambda _: None)
        patch.setattr(folder_module.Folder, "read", lambda *_: None)
        assert Record.begin(place, header_of(clean_of(4))) is None
    assert Record.find(place).header == first.header


def test_only_one_of_many_begins_a_record(tmp_path):
    begun = []

    def begin():
        begun.append(Record.begin(str(tmp_path / "record"), header_of(clean_of(6))))

    workers = [threading.Thread(target=begin) for _ in range(8)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert len([record for record in begun if record is not None]) == 1
    assert len(begun) == 8


def test_a_copy_holds_all_changes_in_its_header(tmp_path):
    record = made_record(f"memory://{tmp_path}/record")
    record.change(HeaderChange(command="advfrontier evaluate"))
    record.copy(tmp_path / "copy")
    copied = Record.find(tmp_path / "copy" / "L2")
    assert copied.header == record.header
    assert copied.folder.names("changes") == []
