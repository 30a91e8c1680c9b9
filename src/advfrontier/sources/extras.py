"""Libraries that only some sources need, imported when one of those is used."""

from __future__ import annotations

import warnings
from importlib import import_module
from typing import Any

from advfrontier.errors import FrontierError


def need(module: str, *, extra: str, source: str) -> Any:
    """Import an optional library, or say what to type to get it."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # what they warn of while importing each other is not the user's doing
            return import_module(module)
    except ModuleNotFoundError as error:
        raise FrontierError(
            f"{source}: needs the package {error.name}, which is not installed; pip install 'advfrontier[{extra}]'"
        ) from error
    except Exception as error:
        raise FrontierError(
            f"{source}: {module} is installed but cannot be imported ({type(error).__name__}: {error}); "
            f"its version may not fit: pip install --upgrade 'advfrontier[{extra}]'"
        ) from error
