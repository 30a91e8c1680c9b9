"""Where records lie: a local folder or any address that fsspec knows (`s3://…`, `gs://…`, `memory://…`).

A file is there whole or not at all. Local files are written aside and renamed; object stores take whole objects.
"""

from __future__ import annotations

import os
import secrets
from abc import ABC, abstractmethod
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from advfrontier.errors import FrontierError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from os import PathLike


class Folder(ABC):
    """Whole files by name; names use `/`."""

    place: str  # what opens it again, from anywhere

    @abstractmethod
    def read(self, name: str) -> bytes | None:
        """The content, or None if there is no such file."""

    @abstractmethod
    def write(self, name: str, content: bytes) -> None:
        """Put a whole file there, in place of one that was."""

    @abstractmethod
    def names(self, under: str = "", depth: int | None = None) -> list[str]:
        """The names of all files below a folder of this folder, or of those in at most `depth` folders below it."""

    @abstractmethod
    def remove(self, name: str) -> None:
        """Delete a file; it is no error if there is none."""


class LocalFolder(Folder):
    """A folder of this machine, or one that several machines share."""

    def __init__(self, path: str | PathLike[str]) -> None:
        self.path = Path(path).absolute()  # a worker, or a later step of the program, may be in another folder
        self.place = str(self.path)

    def read(self, name: str) -> bytes | None:
        """The content, if the file is there."""
        try:
            return (self.path / name).read_bytes()
        except FileNotFoundError:
            return None

    def write(self, name: str, content: bytes) -> None:
        """Write the file as a whole."""
        target = self.path / name
        if target.exists() and not target.is_file():
            target.write_bytes(content)  # /dev/stdout, or a pipe: renaming would put a file in its place
            return
        target = Path(os.path.realpath(target))  # renaming would replace a link, not the file it leads to
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

    def names(self, under: str = "", depth: int | None = None) -> list[str]:
        """All files below."""
        found, start = [], self.path / under
        for root, folders, files in os.walk(start):
            at = Path(root)
            if depth is not None and len(at.relative_to(start).parts) == depth:
                folders.clear()
            inside = "".join(f"{part}/" for part in at.relative_to(self.path).parts)
            found += [f"{inside}{file}" for file in files if not file.startswith(".")]
        return sorted(found)

    def remove(self, name: str) -> None:
        """Delete it."""
        (self.path / name).unlink(missing_ok=True)


class RemoteFolder(Folder):
    """A folder behind an address that fsspec knows."""

    def __init__(self, address: str, system: Any, root: str) -> None:
        self.place = address
        self._system, self._root = system, root.rstrip("/")

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

    def names(self, under: str = "", depth: int | None = None) -> list[str]:
        """All files below."""
        self._system.invalidate_cache()  # other workers write too
        deepest = None if depth is None else depth + 1
        try:
            found: list[Any] = self._system.find(f"{self._root}/{under}".rstrip("/"), maxdepth=deepest)
        except FileNotFoundError:
            return []
        return sorted(str(path)[len(self._root) + 1 :] for path in found)

    def remove(self, name: str) -> None:
        """Delete it."""
        try:
            self._system.rm_file(f"{self._root}/{name}")
        except FileNotFoundError:
            return


def open_folder(place: str | PathLike[str]) -> Folder:
    """A local path, or an address with `://`."""
    if not isinstance(place, str) or "://" not in place:
        return LocalFolder(place)
    import fsspec  # noqa: PLC0415  # only who uses addresses pays for the import

    try:
        system, root = fsspec.core.url_to_fs(place)
    except (ImportError, ValueError) as error:
        raise FrontierError(f"cannot open {place}: {error}") from error
    # A local folder is one however it is written: fsspec writes into a file, which a reader may see half done.
    local = isinstance(system, fsspec.get_filesystem_class("file"))
    return LocalFolder(root) if local else RemoteFolder(place, system, str(root))


def below(folder: str | PathLike[str], *names: str) -> str:
    """A path or an address with names behind it."""
    text = os.fspath(folder) or "."
    return (text if text.endswith("/") else f"{text}/") + "/".join(names) if names else text


def write_file(path: str | PathLike[str], content: bytes) -> str:
    """Write one whole file to a path or an address, and return which."""
    text = os.fspath(path)
    name = text.rpartition("/")[2] if "://" in text else Path(text).name
    open_folder(text.removesuffix(name) if "://" in text else Path(text).parent).write(name, content)
    return text


def write_files(folder: str | PathLike[str], write: Callable[[Path], Iterable[Path]]) -> list[str]:
    """Have files written to a folder of this machine, and put them into one that may be anywhere."""
    target = open_folder(os.fspath(folder))
    written = []
    with TemporaryDirectory(prefix="advfrontier-") as aside:
        for path in write(Path(aside)):
            name = path.relative_to(aside).as_posix()
            target.write(name, path.read_bytes())
            path.unlink()
            written.append(below(folder, name))
    return written
