"""Folders of records: local, or any address that fsspec knows (`s3://…`, `gs://…`, `memory://…`).

Files are written atomically. Local files are written aside and renamed; object stores take whole
objects. A folder's own files are plain files in plain folders: a link in it is refused, because it
would lead to someone else's files.
"""

from __future__ import annotations

import errno
import io
import os
import re
import secrets
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager, suppress
from os import PathLike
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory
from typing import Any, BinaryIO

from advfrontier.errors import FrontierError, explain_os_errors
from advfrontier.record.lock import file_lock

FILE = "record.json"
_LOCK = ".record.lock"
_WRITTEN = {":": "+", "/": "~"}  # in names of folders; neither of the two is kept as it is
# Name of a file while it is being written.
_ASIDE = re.compile(r"\..+\.advfrontier-\d+-[0-9a-f]{8}")


class Folder:
    """Whole files by name, behind an address that fsspec knows; names use `/`.

    Args:
        address: Address that opens the folder again, from any machine.
        system: File system of fsspec.
        root: Path of the folder within the file system.
    """

    def __init__(self, address: str, system: Any, root: str) -> None:
        self.place = address
        self._system, self._root = system, root.rstrip("/")

    def open(self, name: str) -> BinaryIO | None:
        """Open a file to read it, or return None if there is no such file.

        Args:
            name: Name of the file within the folder, with `/` between parts.
        """
        with self._explained("read", name):
            try:
                return io.BytesIO(self._system.cat_file(f"{self._root}/{name}"))
            except FileNotFoundError:
                return None

    def read(self, name: str) -> bytes | None:
        """Return the content of a file, or None if there is no such file.

        Args:
            name: Name of the file within the folder, with `/` between parts.
        """
        file = self.open(name)
        if file is None:
            return None
        with self._explained("read", name), file:
            return file.read()

    def write(self, name: str, content: bytes) -> None:
        """Put a whole file there, in place of the one that was.

        Args:
            name: Name of the file within the folder, with `/` between parts.
            content: Whole content of the file.
        """
        path = f"{self._root}/{name}"
        with self._explained("written", name):
            self._system.makedirs(path.rsplit("/", 1)[0], exist_ok=True)
            self._system.pipe_file(path, content)

    def create(self, name: str, content: bytes) -> bool:
        """Put a whole file there unless there is one already; return whether it was put there.

        Of two writers at the same moment one wins, in stores that can tell (S3, GCS and others).

        Args:
            name: Name of the file within the folder, with `/` between parts.
            content: Whole content of the file.
        """
        path = f"{self._root}/{name}"
        with self._explained("written", name):
            self._system.makedirs(path.rsplit("/", 1)[0], exist_ok=True)
            try:
                self._system.pipe_file(path, content, mode="create")
            except FileExistsError:
                return False
        return True

    def names(
        self, under: str = "", depth: int | None = None, *, skip_unreadable: bool = False
    ) -> list[str]:
        """Return the names of all files below a folder of this folder, sorted.

        Args:
            under: Name of a folder within this one; empty for all.
            depth: How many folders below it are searched; None for all.
            skip_unreadable: Leave folders out that must not be read, instead of raising.
        """
        del skip_unreadable  # a store is listed as a whole
        deepest = None if depth is None else depth + 1
        with self._explained("listed", under):
            self._system.invalidate_cache()  # other workers write too
            try:
                top = f"{self._root}/{under}".rstrip("/")
                paths: list[Any] = self._system.find(top, maxdepth=deepest)
            except FileNotFoundError:
                return []
        return sorted(str(path)[len(self._root) + 1 :] for path in paths)

    def entries(self) -> list[str]:
        """Return the names of everything directly in the folder, hidden ones included."""
        return sorted({name.split("/")[0] for name in self.names()})

    def remove(self, name: str) -> None:
        """Delete a file; it is no error if there is none.

        Args:
            name: Name of the file within the folder, with `/` between parts.
        """
        with self._explained("removed", name), suppress(FileNotFoundError):
            self._system.rm_file(f"{self._root}/{name}")

    def remove_abandoned(self, under: str, older_than: float) -> None:
        """Delete what killed processes left half written; here nothing is ever half written.

        Args:
            under: Name of the folder to tidy, within this one; empty for all.
            older_than: Only files last changed before that time, in seconds since the epoch.
        """

    @contextmanager
    def lock(self) -> Iterator[bool]:
        """Exclude other writers, and yield whether that is possible; it is not in a store."""
        yield False

    @contextmanager
    def _explained(self, action: str, name: str) -> Iterator[None]:
        """Turn errors into FrontierErrors; every store has its own besides those of the system."""
        place = below(self.place, name) if name else self.place
        try:
            with explain_os_errors(action, place):
                yield
        except FrontierError:
            raise
        except Exception as error:
            raise FrontierError(
                f"{place} cannot be {action}: {type(error).__name__}: {error}; see whether the "
                "address and your credentials are right, and try again"
            ) from error


class LocalFolder(Folder):
    """Folder of this machine, or one that several machines share.

    Args:
        path: The folder; it need not exist yet.
    """

    def __init__(self, path: str | PathLike[str]) -> None:
        # A worker, or a later step of the program, may be in another folder.
        self.path = Path(path).absolute()
        self.place = str(self.path)

    def open(self, name: str) -> BinaryIO | None:
        """Open a file to read it, or return None if there is no such file."""
        with self._explained("read", name):
            try:
                return self._own(name).open("rb")
            except FileNotFoundError:
                return None
            except NotADirectoryError as error:
                raise FrontierError(
                    f"{self.place} is a file: expected a folder, or the name of a new one"
                ) from error

    def write(self, name: str, content: bytes) -> None:
        """Write a file atomically."""
        with self._explained("written", name):
            _write_aside(self._own(name), content)

    def create(self, name: str, content: bytes) -> bool:
        """Write a file unless there is one. Exact under `lock`, which excludes other writers."""
        if self.read(name) is not None:
            return False
        self.write(name, content)
        return True

    def names(
        self, under: str = "", depth: int | None = None, *, skip_unreadable: bool = False
    ) -> list[str]:
        """Return the names of all files below; hidden files and linked folders are left out."""

        def refuse(error: OSError) -> None:
            absent = isinstance(error, (FileNotFoundError, NotADirectoryError))
            unreadable = error.errno in {errno.EACCES, errno.EPERM}
            if not absent and not (unreadable and skip_unreadable):
                raise error

        names = []
        with self._explained("listed", under):
            start = self._own(under)
            for root, folders, files in os.walk(start, onerror=refuse):
                at = Path(root)
                if depth is not None and len(at.relative_to(start).parts) == depth:
                    folders.clear()
                inside = "".join(f"{part}/" for part in at.relative_to(self.path).parts)
                names += [f"{inside}{file}" for file in files if not file.startswith(".")]
        return sorted(names)

    def entries(self) -> list[str]:
        """Return all names in it, without what advfrontier itself leaves hidden there."""
        with self._explained("listed", ""):
            try:
                names = os.listdir(self.path)  # noqa: PTH208
            except FileNotFoundError:
                return []
        return sorted(name for name in names if name != _LOCK and not _ASIDE.fullmatch(name))

    def remove(self, name: str) -> None:
        """Delete a file; it is no error if there is none."""
        with self._explained("removed", name):
            self._own(name).unlink(missing_ok=True)

    def remove_abandoned(self, under: str, older_than: float) -> None:
        """Delete files directly in a folder that killed processes left half written.

        Args:
            under: Name of the folder to tidy, within this one; empty for all.
            older_than: Only files last changed before that time, in seconds since the epoch.
        """
        with self._explained("tidied", under):
            folder = self._own(under)
            for path in folder.iterdir() if folder.is_dir() else ():
                if not _ASIDE.fullmatch(path.name):
                    continue
                with suppress(FileNotFoundError):  # its writer may be done with it at this moment
                    if path.lstat().st_mtime < older_than and not path.is_symlink():
                        path.unlink()

    @contextmanager
    def lock(self) -> Iterator[bool]:
        """Exclude other writers of this folder, and yield whether its file system can do that."""
        with self._explained("written", ""):
            path = self._own(_LOCK)
            self.path.mkdir(parents=True, exist_ok=True)
        with file_lock(path) as locked:
            yield locked

    @contextmanager
    def _explained(self, action: str, name: str) -> Iterator[None]:
        with explain_os_errors(action, self.path / name if name else self.path):
            yield

    def _own(self, name: str) -> Path:
        """Return the path of a file here. A link on the way would lead out, and is refused."""
        path = self.path
        for part in PurePosixPath(name).parts:
            path /= part
            if part in {"..", "/"} or path.is_symlink():
                raise FrontierError(
                    f"{path} is a link or leads out of {self.place}: expected the folder's own "
                    "files; put a copy in its place, or remove it"
                )
        return path


def open_folder(place: str | PathLike[str]) -> Folder:
    """Open a local path, or an address with `://`.

    Args:
        place: Local path, or address such as `s3://bucket/mine`.
    """
    if not isinstance(place, str) or "://" not in place:
        return LocalFolder(place)
    import fsspec  # noqa: PLC0415  # only who uses addresses pays for the import

    try:
        system, root = fsspec.core.url_to_fs(place)
    except (ImportError, ValueError) as error:
        raise FrontierError(f"cannot open {place}: {error}") from error
    # A local folder is one however it is written: fsspec writes into a file, which a reader may
    # see half done.
    local = isinstance(system, fsspec.get_filesystem_class("file"))
    return LocalFolder(root) if local else Folder(place, system, str(root))


def below(folder: str | PathLike[str], *names: str) -> str:
    """Return a path or an address with names behind it.

    Args:
        folder: Path or address of a folder.
        names: Names to append, in order.
    """
    text = os.fspath(folder) or "."
    if not names:
        return text
    separator = "" if text.endswith("/") else "/"
    return f"{text}{separator}{'/'.join(names)}"


def norm_folder(out: str | PathLike[str], norm: str) -> str:
    """Return the folder of a record: `out/NORM`, or `out` if it ends so or is a record.

    Args:
        out: Path or address of the output folder that the user named.
        norm: Name of the norm, such as `L2`.
    """
    folder = open_folder(out)
    own = PurePosixPath(folder.place).name == norm or folder.read(FILE) is not None
    return str(out) if own else below(out, norm)


def check_empty(place: str | PathLike[str], *, but_for: Collection[str] = ()) -> Folder:
    """Return a folder that a record may be started in; raise if other files are in it.

    Args:
        place: A folder that does not exist yet, or is empty.
        but_for: Names that may be in it.
    """
    folder = open_folder(place)
    entries = [name for name in folder.entries() if name not in but_for]
    if entries:
        others = f" and {len(entries) - 1} more" if len(entries) > 1 else ""
        raise FrontierError(
            f"{folder.place} holds {entries[0]}{others}, but no {FILE}: expected an empty folder "
            "or a new name, because a record is never started among other files; type another, "
            f"such as --out {folder.place}/record"
        )
    return folder


def folder_name(name: str) -> str:
    """Return the folder's name for a model, such as `zoo+F3` for `zoo:F3`.

    Different models have different folders, and none is `.` or `..`. What a folder name cannot
    hold everywhere is written as `%` and its number, as addresses do.

    Args:
        name: Display name or source of a model.
    """
    letters = []
    for letter in name:
        if letter in _WRITTEN:
            letters.append(_WRITTEN[letter])
        elif letter.isalnum() or letter in "-_.":
            letters.append(letter)
        else:
            letters += [f"%{byte:02x}" for byte in letter.encode(errors="surrogatepass")]
    safe = "".join(letters)
    if safe.strip("."):
        return safe
    return "%2e" * len(safe) or "%"


def write_file(path: str | PathLike[str], content: bytes, *, mark: bytes = b"") -> str:
    """Write one whole file to a path or an address, and return which.

    Args:
        path: File to write: a path or an address.
        content: Whole content of the file.
        mark: Bytes that a file in its place must hold to be replaced: one that somebody else wrote
            is left alone. Without a mark every file is replaced.
    """
    text = os.fspath(path)
    if "://" in text:
        start, slash, name = text.rpartition("/")
        # `memory://` without its last slash would be a folder here.
        folder = open_folder(start + slash)
        _check_own(folder, name, mark)
        folder.write(name, content)
        return text
    with explain_os_errors("written", text):
        target = Path(text).absolute()
        if target.is_dir():
            raise FrontierError(f"{target} is a folder: expected the name of a file")
        if target.exists() and not target.is_file():
            target.write_bytes(content)  # /dev/stdout or a pipe: a rename would replace it
            return text
        check_writable(target, mark)
        # A rename would replace a link, not the file it leads to.
        _write_aside(target.resolve(), content)
    return text


def check_writable(path: str | PathLike[str], mark: bytes = b"") -> None:
    """Raise for a link that leads out of its folder, and for a file that somebody else wrote.

    Args:
        path: File to be written: a path or an address.
        mark: Bytes that a file of advfrontier in its place holds.
    """
    with explain_os_errors("written", path):
        target = Path(path).absolute()
        if target.is_symlink() and target.resolve().parent != target.parent.resolve():
            raise FrontierError(
                f"{target} is a link to another folder: expected a file or nothing there; remove "
                "it, or name another file"
            )
        if mark and target.is_file() and mark not in target.read_bytes():
            raise _foreign(target)


def _check_own(folder: Folder, name: str, mark: bytes) -> None:
    """Do the same for a file of a folder that may be anywhere."""
    if isinstance(folder, LocalFolder):
        check_writable(folder.path / name, mark)
    elif mark:
        content = folder.read(name)
        if content is not None and mark not in content:
            raise _foreign(below(folder.place, name))


def _foreign(place: object) -> FrontierError:
    return FrontierError(
        f"{place} was not written by advfrontier: move it away, or name another file"
    )


def write_files(
    folder: str | PathLike[str], write: Callable[[Path], Iterable[Path]], *, mark: bytes = b""
) -> list[str]:
    """Write files to a folder of this machine and move them to one that may be anywhere.

    Args:
        folder: Output folder: a path or an address.
        write: Writes the files below the folder it is given, and yields them.
        mark: Bytes that a file in its place must hold to be replaced, as in `write_file`.
    """
    target = open_folder(os.fspath(folder))
    written = []
    with explain_os_errors("written", folder), TemporaryDirectory(prefix="advfrontier-") as aside:
        for path in write(Path(aside)):
            name = path.relative_to(aside).as_posix()
            _check_own(target, name, mark)
            target.write(name, path.read_bytes())
            path.unlink()
            written.append(below(folder, name))
    return written


def _write_aside(target: Path, content: bytes) -> None:
    """Write beside the target and rename, which is atomic; each writer has a name of its own."""
    target.parent.mkdir(parents=True, exist_ok=True)
    aside = target.with_name(f".{target.name}.advfrontier-{os.getpid()}-{secrets.token_hex(4)}")
    try:
        with aside.open("wb") as file:
            file.write(content)
            file.flush()
            # Or the rename may survive a power cut that the content does not.
            os.fsync(file.fileno())
        aside.replace(target)
    finally:
        aside.unlink(missing_ok=True)
