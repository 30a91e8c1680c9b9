"""Locks of files: released with their holder, and named where they are never released."""

import errno

import pytest

from advfrontier import FrontierError
from advfrontier.record.lock import file_lock


def test_a_lock_that_is_never_released_is_named(tmp_path):
    path = tmp_path / "lock"
    message = r"has been locked for 0\.05 s by another process.*run the same command again"
    with (
        file_lock(path) as locked,
        pytest.raises(FrontierError, match=message),
        file_lock(path, seconds=0.05),
    ):
        pass
    assert locked
    with file_lock(path) as again:
        assert again


def test_folder_that_is_not_there_is_named(tmp_path):
    with (
        pytest.raises(FrontierError, match=r"gone cannot be written: it does not exist"),
        file_lock(tmp_path / "gone" / "lock"),
    ):
        pass


def test_file_system_without_locks_is_reported(tmp_path, monkeypatch):
    def no_locks(*_):
        raise OSError(errno.ENOLCK, "no locks")

    monkeypatch.setattr("fcntl.flock", no_locks)
    with file_lock(tmp_path / "lock") as locked:
        assert not locked
