"""How a source is written: `kind:place?option=value&option=value`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from advfrontier.errors import FrontierError


@dataclass(frozen=True)
class Spec:
    """A source taken apart. `text` is what the user typed."""

    text: str
    kind: str
    place: str
    options: Mapping[str, str]
    download: bool  # whether it may be fetched

    @property
    def hint(self) -> str:
        """What to do if something may be missing only because it was not fetched."""
        allow = "if it is not on this machine, allow the download with --download (download=True)"
        return "" if self.download else f"; {allow}"

    def option(self, name: str, *, choices: tuple[str, ...], default: str) -> str:
        """An option that has a few possible values."""
        value = self.options.get(name, default)
        if value not in choices:
            raise self.error(f"{name}={value}: expected one of {', '.join(choices)}")
        return value

    def error(self, why: str) -> FrontierError:
        """To be raised where the source is not what it should be."""
        return FrontierError(f"{self.text}: {why}")


def read_spec(text: str, options: Mapping[str, tuple[str, ...]], *, download: bool = False) -> Spec | None:
    """Take a source apart; None if its kind is not among those that `options` knows."""
    kind, _, rest = text.partition(":")
    if kind not in options:
        return None
    place, _, query = rest.partition("?") if "=" in rest.rpartition("?")[2] else (rest, "", "")
    found: dict[str, str] = {}
    for part in filter(None, query.split("&")):
        key, equals, value = part.partition("=")
        if key not in options[kind] or not equals or not value:
            known = " or ".join(f"{name}=…" for name in options[kind]) or "none"
            raise FrontierError(f"{text}: {part!r} is not an option of {kind}: expected {known}")
        found[key] = value
    return Spec(text, kind, place, found, download)


def existing(path: str | Path, text: str, *, folder: bool = False) -> Path:
    """Return the path of a file, or of a folder, that must be there."""
    place = Path(path).expanduser()
    if not (place.is_dir() if folder else place.is_file()):
        found = "a folder" if place.is_dir() else "a file" if place.is_file() else "nothing"
        wanted = "a folder" if folder else "a file"
        raise FrontierError(f"{text}: found {found} at {place}: expected {wanted}; check the path")
    return place
