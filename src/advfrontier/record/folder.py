"""Where records lie: a local folder or any address that fsspec knows (`s3://…`, `gs://…`, `memory://…`).

A file is there whole or not at all. Local files are written aside and renamed; object stores take whole objects. A
folder's own files are plain files in plain folders: a link in it is refused, because it would lead to someone else's.
"""

from __future__ import annotations

import io
import os
import re
import secrets
from collections.abc import Callable, Collection, Iterable
from contextlib import suppress
from os import PathLike
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory
from typing import Any, BinaryIO

from advfrontier.errors import FrontierError

FILE = "record.json"
_WRITTEN = {":": "+", "/": "~"}  # in names of folders; neither of the two is kept as it is
_ASIDE = re.compile(
    r"\..+\.advfrontier-\d+-[0-9a-f]{8}"
)  # what a file is called while it is being written


class Folder:
    """Whole files by name, behind an address that fsspec knows; names use `/`."""

    def __init__(self, address: str, system: Any, root: str) -> None:
        self.place = address  # what opens it again, from anywhere
        self._system, self._root = system, root.rstrip("/")

    def open(self, name: str) -> BinaryIO | None:
        """The file, to be closed by the caller, or None if there is no such file."""
        try:
            return io.BytesIO(self._system.cat_file(f"{self._root}/{name}"))
        except FileNotFoundError:
            return None

    def read(self, name: str) -> bytes | None:
        """The content, or None if there is no such file."""
        file = self.open(name)
        if file is None:
            return None
        with file:
            return file.read()

    def write(self, name: str, content: bytes) -> None:
        """Put a whole file there, in place of one that was."""
        path = f"{self._root}/{name}"
        self._system.makedirs(path.rsplit("/", 1)[0], exist_ok=True)
        self._system.pipe_file(path, content)

    def names(self, under: str = "", depth: int | None = None) -> list[str]:
        """The names of all files below a folder of this folder, or of those in at most `depth` folders below it."""
        self._system.invalidate_cache()  # other workers write too
        deepest = None if depth is None else depth + 1
        try:
            found: list[Any] = self._system.find(
                f"{self._root}/{under}".rstrip("/"), maxdepth=deepest
            )
        except FileNotFoundError:
            return []
        return sorted(str(path)[len(self._root) + 1 :] for path in found)

    def entries(self) -> list[str]:
        """Everything directly in the folder, hidden files and folders included."""
        return sorted({name.split("/")[0] for name in self.names()})

    def remove(self, name: str) -> None:
        """Delete a file; it is no error if there is none."""
        with suppress(FileNotFoundError):
            self._system.rm_file(f"{self._root}/{name}")

    def remove_abandoned(self, under: str, older_than: float) -> None:
        """Delete files that a killed process was writing directly in a folder: here nothing is ever half written."""


class LocalFolder(Folder):
    """A folder of this machine, or one that several machines share."""

    def __init__(self, path: str | PathLike[str]) -> None:
        self.path = Path(
            path
        ).absolute()  # a worker, or a later step of the program, may be in another folder
        self.place = str(self.path)

    def open(self, name: str) -> BinaryIO | None:
        """Open the file to read it."""
        try:
            return self._own(name).open("rb")
        except FileNotFoundError:
            return None
        except NotADirectoryError as error:
            raise FrontierError(
                f"{self.place} is a file: expected a folder, or the name of a new one"
            ) from error

    def write(self, name: str, content: bytes) -> None:
        """Write the file as a whole."""
        _write_aside(self._own(name), content)

    def names(self, under: str = "", depth: int | None = None) -> list[str]:
        """All files below; hidden ones and those behind linked folders are not looked at."""
        found, start = [], self._own(under)
        for root, folders, files in os.walk(start):
            at = Path(root)
            if depth is not None and len(at.relative_to(start).parts) == depth:
                folders.clear()
            inside = "".join(f"{part}/" for part in at.relative_to(self.path).parts)
            found += [f"{inside}{file}" for file in files if not file.startswith(".")]
        return sorted(found)

    def entries(self) -> list[str]:
        """All names in it, but for files that a killed process was writing."""
        try:
            return sorted(name for name in os.listdir(self.path) if not _ASIDE.fullmatch(name))  # noqa: PTH208
        except FileNotFoundError:
            return []

    def remove(self, name: str) -> None:
        """Delete it."""
        self._own(name).unlink(missing_ok=True)

    def remove_abandoned(self, under: str, older_than: float) -> None:
        """Delete files that a killed process was writing directly in a folder, and last touched before that time."""
        folder = self._own(under)
        for path in folder.iterdir() if folder.is_dir() else ():
            with suppress(FileNotFoundError):  # its writer may be done with it at this moment
                if (
                    _ASIDE.fullmatch(path.name)
                    and path.lstat().st_mtime < older_than
                    and not path.is_symlink()
                ):
                    path.unlink()

    def _own(self, name: str) -> Path:
        """The path of a file in this folder. A link on the way is refused: it would lead out of the folder."""
        path = self.path
        for part in PurePosixPath(name).parts:
            path /= part
            if part in {"..", "/"} or path.is_symlink():
                raise FrontierError(
                    f"{path} is a link or leads out of {self.place}: expected the folder's own files; put a copy in "
                    "its place, or remove it"
                )
        return path


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
    return LocalFolder(root) if local else Folder(place, system, str(root))


def below(folder: str | PathLike[str], *names: str) -> str:
    """A path or an address with names behind it."""
    text = os.fspath(folder) or "."
    return (text if text.endswith("/") else f"{text}/") + "/".join(names) if names else text


def norm_folder(out: str | PathLike[str], norm: str) -> str:
    """The folder of a record: `out/NORM`, so that norms lie side by side; `out` itself if it ends so or is a record."""
    place = open_folder(out)
    own = PurePosixPath(place.place).name == norm or place.read(FILE) is not None
    return str(out) if own else below(out, norm)


def check_empty(place: str | PathLike[str], *, but_for: Collection[str] = ()) -> Folder:
    """A folder that a record may be started in: one that is not there, or holds nothing but these."""
    folder = open_folder(place)
    if entries := [name for name in folder.entries() if name not in but_for]:
        others = f" and {len(entries) - 1} more" if len(entries) > 1 else ""
        raise FrontierError(
            f"{folder.place} holds {entries[0]}{others}, but no {FILE}: expected an empty folder or a new name, "
            f"because a record is never started among other files; type another, such as --out {folder.place}/record"
        )
    return folder


def folder_name(name: str) -> str:
    """A folder for a model of this name, `zoo+F3` for `zoo:F3`; other names have others, and none is `.` or `..`.

    What a folder name cannot hold everywhere is written as `%` and its number, as addresses do.
    """
    escaped = {c: "".join(f"%{byte:02x}" for byte in c.encode()) for c in name} | _WRITTEN
    safe = "".join(c if c.isalnum() or c in "-_." else escaped[c] for c in name)
    return safe if safe.strip(".") else "%2e" * len(safe) or "%"


def write_file(path: str | PathLike[str], content: bytes, *, mark: bytes = b"") -> str:
    """Write one whole file to a path or an address, and return which.

    With a `mark`, a file that is there already must hold it: one that somebody else wrote is left alone.
    """
    text = os.fspath(path)
    if "://" in text:
        start, slash, name = text.rpartition("/")
        folder = open_folder(
            start + slash
        )  # `memory://` without its last slash would be a folder here
        _check_own(folder, name, mark)
        folder.write(name, content)
        return text
    target = Path(text).absolute()
    if target.exists() and not target.is_file():
        target.write_bytes(
            content
        )  # /dev/stdout, or a pipe: renaming would put a file in its place
        return text
    check_writable(target, mark)
    _write_aside(
        target.resolve(), content
    )  # renaming would replace a link, not the file it leads to
    return text


def check_writable(path: str | PathLike[str], mark: bytes = b"") -> None:
    """Refuse a link that leads out of its folder, and a file that somebody else wrote: one without the mark."""
    target = Path(path).absolute()
    if target.is_symlink() and target.resolve().parent != target.parent.resolve():
        raise FrontierError(
            f"{target} is a link to another folder: expected a file or nothing there; remove it, or name another file"
        )
    if mark and target.is_file() and mark not in target.read_bytes():
        raise FrontierError(
            f"{target} was not written by advfrontier: move it away, or name another file"
        )


def _check_own(folder: Folder, name: str, mark: bytes) -> None:
    """The same for a file of a folder that may be anywhere."""
    if isinstance(folder, LocalFolder):
        check_writable(folder.path / name, mark)
    elif mark and (there := folder.read(name)) is not None and mark not in there:
        place = below(folder.place, name)
        raise FrontierError(
            f"{place} was not written by advfrontier: move it away, or name another file"
        )


def write_files(
    folder: str | PathLike[str], write: Callable[[Path], Iterable[Path]], *, mark: bytes = b""
) -> list[str]:
    """Have files written to a folder of this machine, and put them into one that may be anywhere.

    With a `mark`, a file that is there already must hold it, as with `write_file`.
    """
    target = open_folder(os.fspath(folder))
    written = []
    with TemporaryDirectory(prefix="advfrontier-") as aside:
        for path in write(Path(aside)):
            name = path.relative_to(aside).as_posix()
            _check_own(target, name, mark)
            target.write(name, path.read_bytes())
            path.unlink()
            written.append(below(folder, name))
    return written


def _write_aside(target: Path, content: bytes) -> None:
    """Write beside the target and rename, which is atomic; the name is nobody else's, even with two writers."""
    target.parent.mkdir(parents=True, exist_ok=True)
    aside = target.with_name(f".{target.name}.advfrontier-{os.getpid()}-{secrets.token_hex(4)}")
    try:
        with aside.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(
                file.fileno()
            )  # or the rename may survive a power cut that the content does not
        aside.replace(target)
    finally:
        aside.unlink(missing_ok=True)
