"""What the site adds to its pages while it is built: the help text of every command, as the program prints it."""

from __future__ import annotations

import io
from typing import Any

from rich.console import Console

from advfrontier.cli.app import COMMANDS, app

MARK = "<!-- help of every command -->"


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Put the help texts where a page asks for them."""
    return markdown.replace(MARK, "\n".join(_sections())) if MARK in markdown else markdown


def _sections() -> list[str]:
    inner = {name: [part for part in app[name] if not part.startswith("-")] for name in COMMANDS}
    paths = [
        path
        for name, parts in inner.items()
        for path in [(name,), *((name, part) for part in parts)]
    ]
    return [f"## advfrontier {' '.join(path)}\n\n```text\n{_help(path)}\n```\n" for path in paths]


def _help(path: tuple[str, ...]) -> str:
    """What `advfrontier … --help` prints, 80 columns wide and without colours."""
    printed = io.StringIO()
    app.help_print(list(path), console=Console(file=printed, width=80, color_system=None))
    return printed.getvalue().strip()
