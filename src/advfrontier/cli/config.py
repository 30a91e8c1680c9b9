"""Options in a file: `--config FILE` takes what the command line does not say from a TOML file.

It works for every command that has the option `--config`. Nothing here may import torch: it runs before `--help`.
"""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

from cyclopts import App, Argument, ArgumentCollection, Token
from cyclopts.config import Dict

from advfrontier.errors import FrontierError

# Of these only one can be given: if one is typed, it wins over all of them in the file.
_ALTERNATIVES = ({"tier", "queries", "ensemble"}, {"runs", "pool"}, {"workers", "ray"})


def read_config(app: App, commands: tuple[str, ...], arguments: ArgumentCollection) -> None:
    """Fill in what a file says, where a command was given one; what was typed stays."""
    named = {key: argument for argument in arguments for key in _keys(argument)}
    if "config" not in named or not named["config"].tokens:
        return
    path = str(named["config"].tokens[-1].value)
    content = {key.replace("_", "-"): value for key, value in _read(path).items()}
    possible = sorted(set(named) - {"config"})
    for key, value in content.items():
        if key not in possible:
            raise FrontierError(f"{path}: unknown key {key!r}: expected one of {', '.join(possible)}")
        if isinstance(value, dict):
            raise FrontierError(f"{path}: {key} is a table: expected a value, as in {key} = …")
    typed = {key for key, argument in named.items() if argument.tokens}
    hidden = set[str]().union(*(group for group in _ALTERNATIVES if group & typed))
    left = {key: _text(value) for key, value in content.items() if key not in typed | hidden}
    for key in [key for key in left if named[key].field_info.is_positional_only]:
        named[key].append(Token(value=str(left.pop(key)), source=path))
    tree: dict[str, Any] = left
    for command in reversed(commands):
        tree = {command: tree}
    Dict(data=tree, source=path)(app, commands, arguments)


def _keys(argument: Argument) -> list[str]:
    """What an option or a positional argument is called in a file; nothing for groups of options."""
    if argument.children:
        return []
    return [
        name.removeprefix("--").lower()
        for name in argument.names
        if name.startswith("--") or (argument.field_info.is_positional_only and name != "*")
    ]


def _read(path: str) -> dict[str, Any]:
    try:
        return tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise FrontierError(f"{path}: cannot be read ({error.strerror}): expected a TOML file") from error
    except (ValueError, RecursionError) as error:
        raise FrontierError(f'{path}: not TOML ({error}): expected lines such as norm = "L2"') from error


def _text(value: Any) -> Any:
    """A list as options have it: with commas."""
    return ",".join(map(str, value)) if isinstance(value, list) else value
