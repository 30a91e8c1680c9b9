"""HTML pages: one file each, everything inside, nothing fetched."""

from __future__ import annotations

import json
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from advfrontier.record.folder import write_file
from advfrontier.report import numbers
from advfrontier.threat.names import SYMBOLS

if TYPE_CHECKING:
    from os import PathLike

    from advfrontier.frontier.ranking import RankRow

MARK = b'<meta name="generator" content="advfrontier">'  # by which pages of our own are known


def write_page(path: str | PathLike[str], template: str, **content: Any) -> str:
    """Fill a template and write it to a path or an address; folders on the way are made."""
    return write_file(path, _environment().get_template(template).render(**content).encode(), mark=MARK)


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


def doi_cell(row: RankRow) -> Markup:
    """The DOI of a model with its interval; all of it in brackets where the model is in doubt, for it may pass 1."""
    text = Markup("{} <small>{}</small>").format(numbers.score(row.doi.estimate), numbers.score_interval(row.doi))
    return Markup("({})").format(text) if row.bracketed and row.doi.known else text


@cache
def plotly() -> Markup:
    """plotly.js as the Python package carries it."""
    from plotly.offline import get_plotlyjs  # type: ignore[import-untyped] # noqa: PLC0415 - only reports need it

    return Markup(get_plotlyjs())  # noqa: S704 - a library made to stand in a script element


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("advfrontier.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.globals.update(asset=asset, plotly=plotly, symbols=SYMBOLS)
    for name in (
        "percent", "percent_interval", "size", "size_interval", "score", "score_interval", "doi", "whole", "tier",
        "ranks", "duration",
    ):  # fmt: skip
        environment.filters[name] = getattr(numbers, name)
    environment.filters["doi_cell"] = doi_cell
    environment.filters["key"] = lambda value: value if numbers.known(value) else -1  # what is not known sorts last
    return environment
