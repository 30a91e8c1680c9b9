"""A Markdown extension for the site: the help text of every command, as the program prints it."""

from __future__ import annotations

import io
from typing import Any

from markdown import Extension, Markdown
from markdown.preprocessors import Preprocessor
from rich.console import Console

from advfrontier.cli.app import COMMANDS, app

MARK = "<!-- help of every command -->"
PRIORITY = 28  # after line ends are normalised (30), before fenced code is taken out (25)


class CommandHelp(Preprocessor):
    """Replaces the mark on a page by one section per command."""

    def run(self, lines: list[str]) -> list[str]:
        """Return the lines of the page with the mark replaced.

        Args:
            lines: Lines of one Markdown page.
        """
        if MARK not in lines:
            return lines
        index = lines.index(MARK)
        return [*lines[:index], *help_of_all_commands().splitlines(), *lines[index + 1 :]]


class CommandHelpExtension(Extension):
    """Registers the preprocessor; `mkdocs.yml` names this module."""

    def extendMarkdown(self, md: Markdown) -> None:  # noqa: N802  # the name is Markdown's
        """Add the preprocessor to a parser.

        Args:
            md: The parser of one page.
        """
        md.preprocessors.register(CommandHelp(md), "command_help", PRIORITY)


def makeExtension(**options: Any) -> CommandHelpExtension:  # noqa: N802  # the name is Markdown's
    """Return the extension. Markdown calls this function by its name.

    Args:
        options: Options in `mkdocs.yml`, of which there are none.
    """
    return CommandHelpExtension(**options)


def help_of_all_commands() -> str:
    """Return one section of Markdown per command and subcommand."""
    sections = []
    for name in COMMANDS:
        paths = [(name,)]
        paths += [(name, part) for part in app[name] if not part.startswith("-")]
        for path in paths:
            title = " ".join(("advfrontier", *path))
            sections.append(f"## {title}\n\n```text\n{help_text(path)}\n```\n")
    return "\n".join(sections)


def help_text(path: tuple[str, ...]) -> str:
    """Return what `advfrontier … --help` prints, 80 columns wide and without colours.

    Args:
        path: Name of a command, and of its subcommand if it has one.
    """
    printed = io.StringIO()
    app.help_print(list(path), console=Console(file=printed, width=80, color_system=None))
    return printed.getvalue().strip()
