"""Pages from templates: HTML in one file each, with everything inside and nothing fetched; Markdown as it is.

Their pictures are PNG files made with nothing but zlib.
"""

from __future__ import annotations

import base64
import json
import struct
import zlib
from functools import cache, partial
from importlib.resources import files
from os import PathLike
from typing import Any

import numpy as np
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup
from numpy.typing import NDArray

from advfrontier.pool import tier_label
from advfrontier.record.folder import write_file
from advfrontier.report import charts, numbers, words
from advfrontier.report.render import as_cells, as_markdown, printable
from advfrontier.table import Table
from advfrontier.threat.names import SYMBOLS

MARK = b'<meta name="generator" content="advfrontier">'  # by which pages of our own are known
PNG_MARK = b"Software\0advfrontier"  # and pictures
_GREY, _RGB = 0, 2


def write_page(path: str | PathLike[str], template: str, **content: Any) -> str:
    """Fill a template and write it to a path or an address; folders on the way are made."""
    return write_file(path, environment().get_template(template).render(**content).encode(), mark=MARK)


def as_html(table: Table) -> Markup:
    """A table element with its title and notes, for a notebook."""
    drawn = environment().get_template("table.html.j2").render(table=table, rows=as_cells(table))
    return Markup(drawn)  # noqa: S704 - the template escapes


def script_json(content: Any) -> Markup:
    """JSON that may stand inside a script element: nothing in it can end the element or begin a comment."""
    text = json.dumps(content, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    for letter in "<>&\u2028\u2029":
        text = text.replace(letter, f"\\u{ord(letter):04x}")
    return Markup(text)  # noqa: S704 - escaped just above, for where it stands


def asset(name: str) -> Markup:
    """A style sheet or script of this package, as it is."""
    text = files("advfrontier.report").joinpath("templates", name).read_text(encoding="utf-8")
    return Markup(text)  # noqa: S704 - our own file


@cache
def plotly() -> Markup:
    """plotly.js as the Python package carries it."""
    from plotly.offline import get_plotlyjs  # type: ignore[import-untyped] # noqa: PLC0415 - only reports need it

    return Markup(get_plotlyjs())  # noqa: S704 - a library made to stand in a script element


@cache
def environment() -> Environment:
    """The templates, and what they may call."""
    found = Environment(
        loader=PackageLoader("advfrontier.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    found.globals.update(asset=asset, plotly=plotly, symbols=SYMBOLS, words=words, line=charts.line)
    found.filters |= {show.__name__: show for show in (numbers.whole, numbers.ranks, numbers.duration)}
    for show in (numbers.percent, numbers.size, numbers.score):
        found.filters[show.__name__] = show
        found.filters[f"{show.__name__}_interval"] = partial(numbers.ends, show=show)
    found.filters |= {
        "tier": tier_label,
        "picture": data_uri,
        "markdown": as_markdown,
        "printable": printable,
        "key": lambda value: value if numbers.known(value) else -1,  # what is not known sorts last
    }
    return found


def png(image: NDArray[np.uint8]) -> bytes:
    """An array (height, width, 1 or 3) of uint8 as a PNG file."""
    height, width, channels = image.shape
    header = struct.pack(">IIBBBBB", width, height, 8, _GREY if channels == 1 else _RGB, 0, 0, 0)
    rows = np.ascontiguousarray(image).reshape(height, width * channels)
    unfiltered = np.pad(rows, ((0, 0), (1, 0))).tobytes()  # each row begins with its filter: 0, none
    return (
        b"\x89PNG\r\n\x1a\n"
        + _chunk(b"IHDR", header)
        + _chunk(b"tEXt", PNG_MARK)
        + _chunk(b"IDAT", zlib.compress(unfiltered, 9))
        + _chunk(b"IEND", b"")
    )


def data_uri(image: NDArray[np.uint8]) -> str:
    """The PNG as an address that needs no file."""
    return "data:image/png;base64," + base64.b64encode(png(image)).decode("ascii")


def _chunk(kind: bytes, content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))
