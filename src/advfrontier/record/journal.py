"""Changes of a header, one after the other, where no lock can keep two writers apart.

In a folder behind an address every change is a file of its own in `changes/`, so that no writer can
overwrite another one's. Readers apply all of them to `record.json`, in the order of their numbers:
a writer takes a number above all that it has seen. Once there are many files, a writer puts all
changes it has seen into one, and removes those files afterwards. A change is therefore always in
at least one file, whatever other writers do; in several it counts once.
"""

from __future__ import annotations

import re
import secrets
import time

from pydantic import Field

from advfrontier.errors import FrontierError
from advfrontier.record.folder import Folder
from advfrontier.record.header import (
    Frozen,
    HeaderChange,
    damaged,
    installed,
    sealed,
    unsealed,
    validated,
)

CHANGES = "changes"
_PAGE = re.compile(rf"{CHANGES}/\d{{8}}-[0-9a-f]{{16}}\.json")
_LAST = 10**8 - 1  # largest number of a change
MOST_PAGES = 32  # files; more are put into one
_ATTEMPTS = 9  # to read files that others move meanwhile
_PAUSE = 0.01  # seconds before the second attempt; each pause doubles


class Entry(Frozen):
    """Change with its place in the order.

    Args:
        number: Larger than those of all changes that its writer knew.
        token: Tells apart changes with the same number.
        change: Change of the header.
    """

    number: int = Field(ge=1, le=_LAST)
    token: str = Field(pattern=r"^[0-9a-f]{16}$")
    change: HeaderChange

    @property
    def place(self) -> tuple[int, str]:
        """Its place in the order."""
        return self.number, self.token


class _Page(Frozen):
    """File of the journal."""

    model: str  # digest of the record's model: a file of another record is not taken for its own
    versions: dict[str, str]  # of the writer
    entries: tuple[Entry, ...]


class Journal:
    """Journal of a record.

    Args:
        folder: Folder of the record.
        model: Digest of the record's model.
    """

    def __init__(self, folder: Folder, model: str) -> None:
        self._folder, self._model = folder, model
        self._pages: dict[str, tuple[Entry, ...]] = {}

    @property
    def begun(self) -> bool:
        """Return whether the journal holds changes."""
        return bool(self._pages)

    def read(self) -> list[Entry]:
        """Return all changes in order."""
        pause = _PAUSE
        for attempt in range(_ATTEMPTS):
            names = self._names()
            if not names:
                self._pages = {}
                return []
            whole = self._fetch(names, last=attempt == _ATTEMPTS - 1)
            # Where another writer has moved changes meanwhile, the list may have missed them.
            if whole and self._names() == names:
                break
            time.sleep(pause)
            pause *= 2
        else:
            raise FrontierError(
                f"{self._folder.place}/{CHANGES} cannot be read, because other processes change "
                "this record all the time: try again in a minute"
            )
        entries = self._entries()
        return [entries[place] for place in sorted(entries)]

    def _entries(self) -> dict[tuple[int, str], Entry]:
        """Return the entries of all pages by their place; an entry of several pages counts once."""
        entries = {}
        for page in self._pages.values():
            for entry in page:
                entries[entry.place] = entry
        return entries

    def append(self, change: HeaderChange) -> None:
        """Add a change after all that `read` returned last.

        Args:
            change: Change of the header.
        """
        known = self._entries()
        number = max((place[0] for place in known), default=0) + 1
        if number > _LAST:
            reason = f"it holds a change of the number {_LAST}"
            raise damaged(self._folder.place, CHANGES, reason)
        entry = Entry(number=number, token=secrets.token_hex(8), change=change)
        old = list(self._pages) if len(self._pages) >= MOST_PAGES else []
        entries = (*(known[place] for place in sorted(known)), entry) if old else (entry,)
        page = _Page(
            model=self._model,
            versions={"advfrontier": installed("advfrontier")},
            entries=entries,
        )
        name = f"{CHANGES}/{number:08d}-{secrets.token_hex(8)}.json"
        self._folder.write(name, sealed(page.model_dump(mode="json", exclude_defaults=True)))
        for other in old:  # their changes are in the new file
            self._folder.remove(other)
            del self._pages[other]
        self._pages[name] = entries

    def _names(self) -> list[str]:
        return [name for name in self._folder.names(CHANGES) if _PAGE.fullmatch(name)]

    def _fetch(self, names: list[str], *, last: bool) -> bool:
        """Read the files that are new; tell whether all were there, and whole."""
        pages = {}
        for name in names:
            page = self._pages.get(name)
            if page is None:
                content = self._folder.read(name)
                if content is None:
                    return False
                if not content.endswith(b"\n}\n"):  # no other line of it is a bare bracket
                    if last:
                        raise _cut_short(self._folder.place, name)
                    return False  # it is being written, in a store where that can be seen
                page = self._page(name, content)
            pages[name] = page
        self._pages = pages
        return True

    def _page(self, name: str, content: bytes) -> tuple[Entry, ...]:
        place = self._folder.place
        page = validated(_Page, unsealed(content, place, name), place, name)
        if page.model != self._model:
            raise damaged(place, name, "it belongs to a record of another model")
        return page.entries


def _cut_short(place: str, name: str) -> FrontierError:
    return FrontierError(
        f"{place}/{name} is cut short. If the process that wrote it was killed, remove this file: "
        "no change that was completed is in it alone. Otherwise put back a copy of it"
    )
