"""Program: its commands, options in a file, and exit codes.

`--config FILE` reads from a TOML file what the command line does not say. Nothing here may import
torch: it runs before `--help`.
"""

from __future__ import annotations

import shlex
import sys
import tomllib
from collections.abc import Sequence
from io import TextIOWrapper
from pathlib import Path
from typing import Any

from cyclopts import App, Argument, ArgumentCollection, CycloptsError, Token
from rich.text import Text

from advfrontier import __version__
from advfrontier.command import typed
from advfrontier.errors import FrontierError, Unfinished, printable

# Options that exclude each other: one on the command line overrides all of its group in the file.
_ALTERNATIVES = (
    {"tier", "queries", "ensemble"},
    {"runs", "pool"},
    {"ensemble", "runs"},
    {"ensemble", "pool"},
    {"workers", "ray"},
)


def read_config(_: App, __: tuple[str, ...], arguments: ArgumentCollection) -> None:
    """Fill in the options of a file, where a command was given one; typed options override it."""
    named: dict[str, Argument] = {}
    for argument in arguments:
        for key in _keys(argument):
            named[key] = argument
    if "config" not in named or not named["config"].tokens:
        return
    path = str(named["config"].tokens[-1].value)
    possible = sorted(set(named) - {"config"})
    overridden = _overridden(named)
    for written, value in _read_toml(path).items():
        key = written.replace("_", "-")
        if key not in possible:
            raise FrontierError(
                f"{path}: unknown key {key!r}: expected one of {', '.join(possible)}"
            )
        if isinstance(value, dict):
            raise FrontierError(f"{path}: {key} is a table: expected a value, as in {key} = …")
        if key in overridden:
            continue
        for index, text in enumerate(_texts(named[key], value)):
            named[key].append(Token(keyword=key, value=text, source=path, index=index))


def _overridden(named: dict[str, Argument]) -> set[str]:
    """Return the keys that the command line overrides."""
    keys = {key for key, argument in named.items() if argument.tokens}
    groups = [group for group in _ALTERNATIVES if group & keys]
    return keys.union(*groups)


def _read_toml(path: str) -> dict[str, Any]:
    """Return the content of a file; raise if it cannot be read or is not TOML."""
    try:
        return tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise FrontierError(
            f"{path}: cannot be read ({error.strerror}): expected a TOML file"
        ) from error
    except (ValueError, RecursionError) as error:
        raise FrontierError(
            f'{path}: not TOML ({error}): expected lines such as norm = "L2"'
        ) from error


def _texts(argument: Argument, value: object) -> list[str]:
    """Return a value as it would be typed: a list with commas, or an option repeated."""
    parts = [str(part) for part in value] if isinstance(value, list) else [str(value)]
    return parts if argument.token_count()[1] else [",".join(parts)]


def _keys(argument: Argument) -> list[str]:
    """Return an option's or a positional argument's keys in a file; none for groups of options."""
    if argument.children:
        return []
    positional = argument.field_info.is_positional_only
    opposites = set(argument.negatives)  # such as --no-report: in a file it is report = false
    keys = []
    for name in argument.names:
        if name in opposites:
            continue
        if name.startswith("--") or (positional and name != "*"):
            keys.append(name.removeprefix("--").lower())
    return keys


app = App(
    name="advfrontier",
    help="Robustness curves from ensembles of minimum-norm attacks, in four norms, at a query "
    "budget you choose.",
    version=__version__,
    suppress_keyboard_interrupt=False,  # `main` handles it
    config=read_config,
    error_formatter=lambda error: Text(f"advfrontier: {printable(error)}"),
)
app.register_install_completion_command(
    help="Install tab completion of commands and options for your shell. Writes a file, and names "
    "it in the shell's start-up file."
)

# The file of each command, where it is called NAME_command, and its summary. Files are imported
# when a command is called: torch takes seconds, and nobody waits seconds for --help.
COMMANDS = {
    "evaluate": ("evaluating", "Measure the robustness curve of a model."),
    "extend": (
        "evaluating",
        "Extend a finished evaluation to a larger budget. No query is repeated.",
    ),
    "demo": (
        "evaluating",
        "Evaluate an embedded model in four norms and write the report. Nothing is downloaded.",
    ),
    "certify": ("results", "Compute certified lower bounds on the distances of an evaluation."),
    "verify": (
        "results",
        "Verify a record from someone else: check every point, and repeat some units.",
    ),
    "report": ("results", "Write the HTML report of one model's records, beside other models."),
    "paper": (
        "results",
        "Write a table, figures, a sentence, BibTeX and CSV files for a paper.",
    ),
    "compare": (
        "results",
        "Compare two models on whole curves: reject one, or print what to run next.",
    ),
    "rank": ("results", "Rank models by DOI, in every norm and over all of them."),
    "union": ("unions", "Measure models against several norms at once, from their records."),
    "reference": ("results", "Make a reference set of evaluated models, or show what one holds."),
    "trace": (
        "pool",
        "Run every attack of a pool and record how its distances fall with the queries it spends.",
    ),
    "attack-card": (
        "pool",
        "Show what an attack adds to a pool, on one model.",
    ),
    "allocate": ("pool", "Split query budgets over attacks using traces."),
    "baseline": ("pool", "Run AutoAttack at several radii, every pass counted, as a baseline."),
    "aoi": (
        "pool",
        "Measure how close an evaluation came to the frontier of a traced pool.",
    ),
    "bench": ("bench", "Benchmarks: many models, all norms, tables and figures."),
    "zoo": ("embedded", "The embedded models."),
    "pool": ("embedded", "List the runs of a pool."),
}
for _name, (_file, _help) in COMMANDS.items():
    _function = f"{_name.replace('-', '_')}_command"
    app.command(f"advfrontier.cli.{_file}:{_function}", name=_name, help=_help)


def _check_text(words: Sequence[str]) -> None:
    """Raise if an argument is not text: a record could not store the command."""
    if any("\ud800" <= letter <= "\udfff" for letter in "".join(words)):
        raise FrontierError(
            "an argument is not UTF-8: expected names in UTF-8; rename the file or folder"
        )


def main(arguments: Sequence[str] | None = None) -> None:
    """Run one command.

    Exit codes: 1 for a requirement or a claim that does not hold, 2 for an error, 75 for a time
    limit with work left, 130 for an interruption.

    Args:
        arguments: Words of the command (default: those typed).
    """
    words = list(sys.argv[1:] if arguments is None else arguments)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="replace")  # a pipe may have no ε, such as one of cp1252
    try:
        _check_text(words)
        with typed(shlex.join(["advfrontier", *words])):
            app(words, exit_on_error=False, print_error=True, result_action="return_none")
    except CycloptsError:
        sys.exit(2)
    except BrokenPipeError:
        sys.stderr.close()  # the reader of the output has gone
    except Unfinished as left:
        print(f"advfrontier: {printable(left)}", file=sys.stderr)
        sys.exit(75)  # EX_TEMPFAIL of sysexits.h: try again
    except (FrontierError, OSError) as error:  # a full disk is no bug either
        print(f"advfrontier: {printable(error)}", file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:
        print(
            "advfrontier: Interrupted. Progress is saved; run the same command to resume.",
            file=sys.stderr,
        )
        sys.exit(130)
