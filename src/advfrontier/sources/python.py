"""`file.py:factory` and `package.module:factory`: the user's own Python, which is run.

The factory is called without arguments and returns the model. It may also be a class, or the model
itself.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from types import ModuleType
from typing import Any

from torch import Tensor, nn

from advfrontier.errors import FrontierError
from advfrontier.imports import import_file, import_here
from advfrontier.sources.reading import existing


class Callback(nn.Module):
    """Plain function from images to logits, as a module.

    Args:
        function: Takes images (n, …), returns logits (n, classes).
    """

    def __init__(self, function: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.function = function

    def forward(self, images: Tensor) -> Tensor:
        """Return the function's logits.

        Args:
            images: Images (n, …).
        """
        return self.function(images)


def load(spec: str) -> nn.Module:
    """Import the module, call the factory and return the model.

    Args:
        spec: `file.py:factory` or `package.module:factory`.
    """
    place, _, name = (spec, "", "") if spec.endswith(".py") else spec.rpartition(":")
    is_file = place.endswith(".py") or "/" in place
    try:
        module = import_file(existing(place, spec)) if is_file else import_here(place)
    except FrontierError:
        raise
    except ModuleNotFoundError as error:
        if is_file or not f"{place}.".startswith(f"{error.name}."):
            raise FrontierError(
                f"{spec}: {place} needs the module {error.name}, which is not installed"
            ) from error
        raise FrontierError(
            f"{spec}: no module {error.name!r}: expected an importable package.module, or a file "
            "as path/to/file.py"
        ) from error
    except (Exception, SystemExit) as error:
        raise FrontierError(
            f"{spec}: running {place} raised {type(error).__name__}: {error}"
        ) from error
    return _as_model(spec, _find_attribute(spec, module, name))


def _find_attribute(spec: str, module: ModuleType, name: str) -> Any:
    try:
        return functools.reduce(getattr, name.split("."), module)
    except AttributeError as error:
        candidates = []
        for key, value in vars(module).items():
            defined_here = getattr(value, "__module__", module.__name__) == module.__name__
            if key.startswith("_") or not callable(value):
                continue
            if defined_here or isinstance(value, nn.Module):
                candidates.append(key)
        rest = "and nothing else there could be one"
        if candidates:
            rest = f"it has {', '.join(candidates)}"
        problem = f"{spec} alone names no factory"
        if name:
            problem = f"{spec.rpartition(':')[0]} has no {name!r}"
        raise FrontierError(f"{problem}: expected a factory or a model; {rest}") from error


def _as_model(spec: str, value: Any) -> nn.Module:
    if isinstance(value, nn.Module):
        return value
    if not callable(value):
        raise FrontierError(f"{spec} is a {type(value).__name__}: expected a factory or a model")
    missing = _required_arguments(value)
    factory = inspect.isroutine(value) or isinstance(value, (type, functools.partial))
    if len(missing) == 1 and not factory:
        return Callback(value)  # an object that is called with images: the model itself
    if missing:
        raise FrontierError(
            f"{spec} needs the arguments {', '.join(missing)}: expected a factory that takes none; "
            "write one that fills them in"
        )
    try:
        model = value()
    except (Exception, SystemExit) as error:
        raise FrontierError(
            f"{spec}: the factory raised {type(error).__name__}: {error}"
        ) from error
    if isinstance(model, nn.Module):
        return model
    if callable(model) and not isinstance(model, type):
        return Callback(model)
    raise FrontierError(
        f"{spec} returned {type(model).__name__}: expected an nn.Module or a function of images"
    )


def _required_arguments(function: Any) -> list[str]:
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):  # some built-in callables have none
        return []
    bare = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return [p.name for p in parameters if p.default is p.empty and p.kind not in bare]
