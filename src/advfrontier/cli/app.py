"""The program: its commands, and what happens when one cannot go on."""

from __future__ import annotations

import shlex
import sys
from typing import TYPE_CHECKING

from cyclopts import App, CycloptsError

from advfrontier import __version__
from advfrontier.errors import FrontierError

if TYPE_CHECKING:
    from collections.abc import Sequence

app = App(
    name="advfrontier",
    help="Robustness curves from ensembles of minimum-norm attacks, in four norms, at a query budget you choose.",
    version=__version__,
    suppress_keyboard_interrupt=False,  # `main` says what an interruption means
)

_MODULES = ("evaluating", "reading", "benching", "embedded")  # each adds its commands to the app


def main(arguments: Sequence[str] | None = None) -> None:
    """Run one command. Mistakes end with one message and exit code 2, an interruption with 130."""
    from importlib import import_module  # noqa: PLC0415

    for module in _MODULES:
        import_module(f"advfrontier.cli.{module}")
    words = list(sys.argv[1:] if arguments is None else arguments)
    try:
        app(words, exit_on_error=False, print_error=True, result_action="return_none")
    except CycloptsError:
        sys.exit(2)
    except BrokenPipeError:
        sys.stderr.close()  # who reads the output has gone, and wants no complaint
    except (FrontierError, OSError) as error:  # a full disk or a path that cannot be written is no bug either
        print(f"advfrontier: {error}", file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:
        print("advfrontier: stopped; what was finished is stored, the same command goes on", file=sys.stderr)
        sys.exit(130)


def typed() -> str:
    """The command as it was typed, for the record."""
    return shlex.join(["advfrontier", *sys.argv[1:]])
