"""`file.py:factory` and `package.module:factory`: the user's own Python, run because the user names it.

The factory is called without arguments and returns the model. It may also be a class, or the model itself.
"""

from __future__ import annotations

import functools
import importlib
import importlib.util
import inspect
import sys
from collections.abc import Callable
from hashlib import blake2b
from pathlib import Path
from types import ModuleType
from typing import Any

from torch import Tensor, nn

from advfrontier.errors import FrontierError
from advfrontier.sources.reading import existing


class Callback(nn.Module):
    """A plain function from images to logits, as a module."""

    def __init__(self, function: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.function = function

    def forward(self, images: Tensor) -> Tensor:
        """Return the function's logits."""
        return self.function(images)


def load(spec: str) -> nn.Module:
    """Import the module and make the model."""
    place, _, name = (spec, "", "") if spec.endswith(".py") else spec.rpartition(":")
    is_file = place.endswith(".py") or "/" in place
    try:
        if not is_file and (here := str(Path.cwd())) not in sys.path:
            sys.path.append(
                here
            )  # a console command, unlike `python -m`, does not look here by itself
        module = _from_file(existing(place, spec)) if is_file else importlib.import_module(place)
    except FrontierError:
        raise
    except ModuleNotFoundError as error:
        if is_file or not f"{place}.".startswith(f"{error.name}."):
            raise FrontierError(
                f"{spec}: {place} needs the module {error.name}, which is not installed"
            ) from error
        raise FrontierError(
            f"{spec}: no module {error.name!r}: expected an importable package.module, or a file as path/to/file.py"
        ) from error
    except (Exception, SystemExit) as error:
        raise FrontierError(
            f"{spec}: running {place} raised {type(error).__name__}: {error}"
        ) from error
    return _model(spec, _attribute(spec, module, name))


def _from_file(path: Path) -> ModuleType:
    path = path.resolve()
    if str(path.parent) not in sys.path:
        sys.path.append(
            str(path.parent)
        )  # its neighbours can be imported, as when it is run as a script
    name = f"{path.stem}_{blake2b(str(path).encode(), digest_size=4).hexdigest()}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise FrontierError(f"{path} cannot be imported: expected a Python file ending in .py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def _attribute(spec: str, module: ModuleType, name: str) -> Any:
    try:
        return functools.reduce(getattr, name.split("."), module)
    except AttributeError as error:
        own = module.__name__  # what was imported from elsewhere is no factory of this module
        found = [
            key
            for key, value in vars(module).items()
            if callable(value) and not key.startswith("_")
            if isinstance(value, nn.Module) or getattr(value, "__module__", own) == own
        ]
        there = f"it has {', '.join(found)}" if found else "and nothing else there could be one"
        asked = f"has no {name!r}" if name else "alone names no factory"
        place = spec.rpartition(":")[0] if name else spec
        raise FrontierError(f"{place} {asked}: expected a factory or a model; {there}") from error


def _model(spec: str, found: Any) -> nn.Module:
    if isinstance(found, nn.Module):
        return found
    if not callable(found):
        raise FrontierError(f"{spec} is a {type(found).__name__}: expected a factory or a model")
    if missing := _required_arguments(found):
        if (
            len(missing) == 1
            and not inspect.isroutine(found)
            and not isinstance(found, (type, functools.partial))
        ):
            return Callback(found)  # an object that is called with images: the model itself
        raise FrontierError(
            f"{spec} needs the arguments {', '.join(missing)}: expected a factory that takes none; "
            f"write one that fills them in"
        )
    try:
        made = found()
    except (Exception, SystemExit) as error:
        raise FrontierError(
            f"{spec}: the factory raised {type(error).__name__}: {error}"
        ) from error
    if isinstance(made, nn.Module):
        return made
    if callable(made) and not isinstance(made, type):
        return Callback(made)
    raise FrontierError(
        f"{spec} returned {type(made).__name__}: expected an nn.Module or a function of images"
    )


def _required_arguments(function: Any) -> list[str]:
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):  # some built-in callables have none
        return []
    bare = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return [p.name for p in parameters if p.default is p.empty and p.kind not in bare]
