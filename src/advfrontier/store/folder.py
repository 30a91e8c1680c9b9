"""Where records lie: a local folder or any address that fsspec knows (`s3://…`, `gs://…`, `memory://…`).

A file is there whole or not at all. Local files are written aside and renamed; object stores take whole objects.
"""

from __future__ import annotations

import os
import secrets
from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any

from advfrontier.errors import FrontierError


class Folder(ABC):
    """Whole files by name; names use `/`."""

    place: str  # what opens it again

    @abstractmethod
    def read(self, name: str) -> bytes | None:
        """The content, or None if there is no such file."""

    @abstractmethod
    def write(self, name: str, content: bytes) -> None:
        """Put a whole file there, in place of one that was."""

    @abstractmethod
    def names(self, under: str) -> list[str]:
        """The names of all files below a folder of this folder."""

    @abstractmethod
    def remove(self, name: str) -> None:
        """Delete a file; it is no error if there is none."""


class LocalFolder(Folder):
    """A folder of this machine, or one that several machines share."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self.place = str(path)

    def read(self, name: str) -> bytes | None:
        """The content, if the file is there."""
        try:
            return (self.path / name).read_bytes()
        except FileNotFoundError:
            return None

    def write(self, name: str, content: bytes) -> None:
        """Write the file as a whole."""
        target = self.path / name
        target.parent.mkdir(parents=True, exist_ok=True)
        # Written by nobody else, even when two workers make the same file; renaming is atomic.
        aside = target.with_name(f".{target.name}.{os.getpid()}-{secrets.token_hex(4)}")
        try:
            with aside.open("wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())  # or the rename may survive a power cut that the content does not
            aside.replace(target)
        finally:
            aside.unlink(missing_ok=True)

    def names(self, under: str) -> list[str]:
        """All files below."""
        found = []
        for root, _, files in os.walk(self.path / under):
            inside = Path(root).relative_to(self.path).as_posix()
            found += [f"{inside}/{file}" for file in files if not file.startswith(".")]
        return sorted(found)

    def remove(self, name: str) -> None:
        """Delete it."""
        (self.path / name).unlink(missing_ok=True)


class RemoteFolder(Folder):
    """A folder behind an address that fsspec knows."""

    def __init__(self, address: str) -> None:
        import fsspec  # noqa: PLC0415  # only who uses addresses pays for the import

        self.place = address
        try:
            self._system, root = fsspec.core.url_to_fs(address)
        except (ImportError, ValueError) as error:
            raise FrontierError(f"cannot open {address}: {error}") from error
        self._root = str(root).rstrip("/")

    def read(self, name: str) -> bytes | None:
        """The content, if the file is there."""
        try:
            return bytes(self._system.cat_file(f"{self._root}/{name}"))
        except FileNotFoundError:
            return None

    def write(self, name: str, content: bytes) -> None:
        """Write the file as a whole."""
        path = f"{self._root}/{name}"
        self._system.makedirs(path.rsplit("/", 1)[0], exist_ok=True)
        self._system.pipe_file(path, content)

    def names(self, under: str) -> list[str]:
        """All files below."""
        self._system.invalidate_cache()  # other workers write too
        try:
            found: list[Any] = self._system.find(f"{self._root}/{under}")
        except FileNotFoundError:
            return []
        return sorted(str(path)[len(self._root) + 1 :] for path in found)

    def remove(self, name: str) -> None:
        """Delete it."""
        try:
            self._system.rm_file(f"{self._root}/{name}")
        except FileNotFoundError:
            return


def open_folder(place: str | Path) -> Folder:
    """A local path, or an address with `://`."""
    return RemoteFolder(place) if isinstance(place, str) and "://" in place else LocalFolder(place)
