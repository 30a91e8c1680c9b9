"""Errors a user can cause, and the translation of the operating system's errors into them."""

from __future__ import annotations

import errno
import re
import unicodedata
from collections.abc import Iterator
from contextlib import contextmanager
from operator import index
from typing import Any

_UNSAFE = frozenset(
    {"Cc", "Cf", "Cs", "Zl", "Zp"}
)  # Unicode: control, format, surrogate, line ends
_BREAKS = re.compile(r"[ ]*[\t\r\n][ \t\r\n]*")


def acts_on_terminals(letter: str) -> bool:
    """Tell whether a character can act on a terminal, or change the order of a line.

    Args:
        letter: One character.
    """
    return unicodedata.category(letter) in _UNSAFE


def printable(text: object) -> str:
    r"""Return text that cannot act on a terminal or reorder a line, for messages and tables.

    Line breaks and tabs become one space. Other control characters, bidirectional marks and
    surrogates become escapes such as `\x1b`.

    Args:
        text: Text of a file or a user, such as the name of a model.
    """
    flat = _BREAKS.sub(" ", str(text))
    if flat.isprintable():
        return flat
    letters = []
    for letter in flat:
        if acts_on_terminals(letter):
            letters.append(letter.encode("unicode_escape").decode("ascii"))
        else:
            letters.append(letter)
    return "".join(letters)


class FrontierError(Exception):
    """Bad input. The message says what was found, what was expected and what to type instead.

    Args:
        message: What was found, what was expected, and what to type.
    """

    def __init__(self, message: object = "") -> None:
        super().__init__(printable(message))


class NoGradientError(FrontierError):
    """Error: the model has no gradient with respect to its images."""


class Unfinished(FrontierError):  # noqa: N818  # a state of the work, not a mistake
    """Error: the time limit was reached. The message says what is stored and how to resume."""


class ReadOnlyError(FrontierError):
    """Error: the system does not permit access (a read-only file system or missing rights)."""


def whole_number(value: Any, what: str, *, least: int | None = None) -> int:
    """Return `value` as int; raise FrontierError if it is not integral (200.0 is not) or too small.

    Args:
        value: An integer of any type, such as a NumPy integer.
        what: Name of the number, for the message.
        least: Smallest value that is allowed.
    """
    try:
        number = index(value)
    except TypeError:
        raise FrontierError(f"{what} is {value!r}: expected a whole number, such as 100") from None
    if least is not None and number < least:
        raise FrontierError(f"{what} is {number}: expected {least} or more, such as 100")
    return number


_LONGEST = 240  # characters of a name in a message
_NO_ACCESS = {errno.EROFS, errno.EACCES, errno.EPERM}
_IN_PART = "Files are replaced as a whole, so everything stored before is intact"
_CURES = {
    errno.ENOSPC: f"the disk is full. {_IN_PART}. Free some space and run the same command again, "
    "which resumes, or name a folder on another disk",
    errno.EDQUOT: f"the disk quota is used up. {_IN_PART}. Delete other files and run the same "
    "command again, which resumes, or name a folder on another disk",
    errno.EFBIG: f"the file would be larger than the system allows. {_IN_PART}. Raise the limit "
    "(`ulimit -f unlimited`) and run the same command again, which resumes, or use smaller batches",
    errno.EROFS: "its file system is read-only. Nothing was changed. Name a folder that can be "
    "written, or copy the folder to one and use the copy",
    errno.EACCES: "permission denied. Nothing was changed. Ask its owner for access, or use a copy "
    "in a folder of your own",
    errno.EPERM: "the operation is not permitted. Nothing was changed. Ask its owner for access, "
    "or use a copy in a folder of your own",
    errno.ENAMETOOLONG: "the name is too long for this file system. Nothing was changed. Name a "
    "shorter file or folder (most systems allow 255 bytes per name)",
    errno.EIO: "the device reports an input/output error. Files already stored may be damaged too. "
    "Copy the folder to another disk, check this one, and run the same command on the copy: "
    "damaged files are found by their checksums",
    errno.ENOENT: "it does not exist, or a folder on the way to it does not. Name another one",
    errno.EEXIST: "a file stands where a folder is expected. Name a folder, or a new name",
    errno.ENOTDIR: "a file stands where a folder is expected. Name a folder, or a new name",
    errno.EISDIR: "a folder stands where a file is expected. Move it away, or name another file",
    errno.EMFILE: "too many files are open. Raise the limit (`ulimit -n 4096`), or use fewer "
    "workers, and run the same command again, which resumes",
    errno.ELOOP: "links lead in a circle. Name the folder itself",
}


@contextmanager
def explain_os_errors(action: str, place: object) -> Iterator[None]:
    """Raise FrontierError in place of the operating system's errors, saying what to do.

    Args:
        action: Participle for the message, as in "cannot be read": `read`, `written`, `listed`,
            `removed`, …
        place: The file or folder, as the user knows it.
    """
    try:
        yield
    except OSError as error:
        raise _explained(action, _shortened(place), error) from error
    except ValueError as error:  # Python refuses a NUL, and names that are no text, by itself
        name = _shortened(place)
        if "\0" in name:
            reason = "its name holds a NUL character. Nothing was changed. Name another file"
        elif any("\ud800" <= letter <= "\udfff" for letter in name):
            reason = "its name is not text in UTF-8. Nothing was changed. Rename it"
        else:
            raise
        raise FrontierError(f"{name} cannot be {action}: {reason}") from error


def os_error_cure(error: OSError) -> str | None:
    """Return what an error of the operating system means and what to do; None if it is not known.

    Args:
        error: The error. An error of a library, without a number of the system, is not known.
    """
    return _CURES.get(error.errno or 0)


def _shortened(place: object) -> str:
    """Return the name of a file for a message; of a very long one its beginning and its end."""
    name = str(place)
    if len(name) <= _LONGEST:
        return name
    return f"{name[: _LONGEST // 2]}…{name[-_LONGEST // 4 :]} ({len(name)} characters)"


def _explained(action: str, place: str, error: OSError) -> FrontierError:
    kind = ReadOnlyError if error.errno in _NO_ACCESS else FrontierError
    # A store behind an address raises OSErrors of its own, without a number.
    system = error.strerror or str(error) or type(error).__name__
    cure = os_error_cure(error)
    if cure is None:
        cure = "expected it to work; see whether the place can be reached, and try again"
    return kind(f"{place} cannot be {action}: {cure} ({system})")
