"""The program: its commands, their options in a file, and what happens when one cannot go on.

`--config FILE` takes what the command line does not say from a TOML file. Nothing here may import torch: it runs before
`--help`.
"""

from __future__ import annotations

import shlex
import sys
import tomllib
from collections.abc import Sequence
from io import TextIOWrapper
from pathlib import Path

from cyclopts import App, Argument, ArgumentCollection, CycloptsError, Token

from advfrontier import __version__
from advfrontier.command import typed
from advfrontier.errors import FrontierError, Unfinished

# Of these only one can be given: if one is typed, it wins over all of them in the file.
_ALTERNATIVES = (
    {"tier", "queries", "ensemble"}, {"runs", "pool"}, {"ensemble", "runs"}, {"ensemble", "pool"}, {"workers", "ray"},
)  # fmt: skip


def read_config(_: App, __: tuple[str, ...], arguments: ArgumentCollection) -> None:
    """Fill in what a file says, where a command was given one; what was typed stays."""
    named = {key: argument for argument in arguments for key in _keys(argument)}
    if "config" not in named or not named["config"].tokens:
        return
    path = str(named["config"].tokens[-1].value)
    try:
        content = tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise FrontierError(
            f"{path}: cannot be read ({error.strerror}): expected a TOML file"
        ) from error
    except (ValueError, RecursionError) as error:
        raise FrontierError(
            f'{path}: not TOML ({error}): expected lines such as norm = "L2"'
        ) from error
    possible = sorted(set(named) - {"config"})
    told = {key for key, argument in named.items() if argument.tokens}
    hidden = told.union(*(group for group in _ALTERNATIVES if group & told))
    for key, value in ((key.replace("_", "-"), value) for key, value in content.items()):
        if key not in possible:
            raise FrontierError(
                f"{path}: unknown key {key!r}: expected one of {', '.join(possible)}"
            )
        if isinstance(value, dict):
            raise FrontierError(f"{path}: {key} is a table: expected a value, as in {key} = …")
        if key not in hidden:
            for k, text in enumerate(_texts(named[key], value)):
                named[key].append(Token(keyword=key, value=text, source=path, index=k))


def _texts(argument: Argument, value: object) -> list[str]:
    """A value as it would be typed: a list is typed with commas, unless the option can be repeated."""
    parts = [str(part) for part in value] if isinstance(value, list) else [str(value)]
    return parts if argument.token_count()[1] else [",".join(parts)]


def _keys(argument: Argument) -> list[str]:
    """What an option or a positional argument is called in a file; nothing for groups of options."""
    positional = argument.field_info.is_positional_only
    named = [
        name for name in argument.names if name.startswith("--") or (positional and name != "*")
    ]
    opposites = set(argument.negatives)  # such as --no-report: in a file it is report = false
    return (
        []
        if argument.children
        else [name.removeprefix("--").lower() for name in named if name not in opposites]
    )


app = App(
    name="advfrontier",
    help="Robustness curves from ensembles of minimum-norm attacks, in four norms, at a query budget you choose.",
    version=__version__,
    suppress_keyboard_interrupt=False,  # `main` says what an interruption means
    config=read_config,
)
app.register_install_completion_command(
    help="Complete commands and options with the tab key: writes a file for your shell, named in its start-up file."
)

# The file of each command, where it is called NAME_command, and what it does. Files are imported when a command is
# called: torch takes seconds, and nobody waits seconds for --help.
COMMANDS = {
    "evaluate": ("evaluating", "Measure the robustness curve of a model."),
    "extend": (
        "evaluating",
        "Go on with a finished evaluation to a larger tier. No query is repeated.",
    ),
    "demo": (
        "evaluating",
        "Evaluate an embedded model in four norms and write the report: nothing is downloaded.",
    ),
    "certify": (
        "results",
        "Prove for every sample of an evaluation how near no adversarial example can be.",
    ),
    "verify": (
        "results",
        "Check a record that came from someone else: every point, and some units once more.",
    ),
    "report": (
        "results",
        "Write the HTML report of one model's records, with other models beside it.",
    ),
    "compare": (
        "results",
        "Compare two models on whole curves: is one rejected already, or what should be run next?",
    ),
    "rank": ("results", "Rank models by DOI, in every norm and over all of them."),
    "trace": (
        "pool",
        "Run every attack of the pool, and record how its distances fall with the queries it spends.",
    ),
    "allocate": (
        "pool",
        "Allocate a budget of queries on traced models: nested ensembles, and what none can pass.",
    ),
    "baseline": ("pool", "Run AutoAttack at several radii, every pass counted, to compare with."),
    "aoi": (
        "pool",
        "How close an evaluation came to the frontier of a traced pool, and what each of its runs added.",
    ),
    "bench": ("bench", "Whole benchmarks: many models, four norms, tables and figures."),
    "zoo": ("embedded", "The embedded models."),
    "pool": ("embedded", "List the runs of a pool."),
}
for _name, (_file, _help) in COMMANDS.items():
    app.command(f"advfrontier.cli.{_file}:{_name}_command", name=_name, help=_help)


def _check_text(words: Sequence[str]) -> None:
    """Refuse bytes that are no text: a record notes the command, and could not."""
    if any("\ud800" <= letter <= "\udfff" for letter in "".join(words)):
        raise FrontierError(
            "an argument is not UTF-8: expected names in UTF-8; rename the file or folder"
        )


def main(arguments: Sequence[str] | None = None) -> None:
    """Run one command.

    What does not hold ends with exit code 1, a mistake with one message and 2, time that is up with 75, and an
    interruption with 130.
    """
    words = list(sys.argv[1:] if arguments is None else arguments)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(
                errors="replace"
            )  # where it is a pipe that has no ε, such as one of cp1252
    try:
        _check_text(words)
        with typed(shlex.join(["advfrontier", *words])):
            app(words, exit_on_error=False, print_error=True, result_action="return_none")
    except CycloptsError:
        sys.exit(2)
    except BrokenPipeError:
        sys.stderr.close()  # the reader of the output has gone: there is nobody to tell
    except Unfinished as left:
        print(f"advfrontier: {left}", file=sys.stderr)
        sys.exit(75)  # EX_TEMPFAIL of sysexits.h: try again
    except (
        FrontierError,
        OSError,
    ) as error:  # a full disk or a path that cannot be written is no bug either
        print(f"advfrontier: {error}", file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:
        print(
            "advfrontier: stopped; what was finished is stored, the same command goes on",
            file=sys.stderr,
        )
        sys.exit(130)
