"""Results in the form that JSON can hold."""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from typing import Any

import numpy as np

from advfrontier.errors import acts_on_terminals


def jsonable(value: Any, *, without: Collection[str] = ()) -> Any:
    """Return the value as dicts, lists, text, numbers and None.

    JSON has no infinite numbers: they become "inf" or "-inf". NaN, which here only ever means
    "not known", becomes null, as None does.

    Args:
        value: A number, text, array, dataclass, or a mapping or sequence of these.
        without: Names of dataclass fields to leave out, at any depth.
    """
    if is_dataclass(value) and not isinstance(value, type):
        parts = {}
        for field in fields(value):
            if field.name not in without:
                parts[field.name] = jsonable(getattr(value, field.name), without=without)
        return parts
    if isinstance(value, Mapping):
        return {str(key): jsonable(part, without=without) for key, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [jsonable(part, without=without) for part in value]
    if isinstance(value, (np.ndarray, np.generic)):
        return jsonable(value.tolist())
    if isinstance(value, float):
        return _finite(value)
    return value.value if isinstance(value, Enum) else value


def json_text(value: Any) -> str:
    r"""Return JSON that can be shown on a terminal.

    Letters of all languages stay. Characters that act on a terminal or reorder a line are escaped,
    as in `\u202e`, which JSON reads back as they were.

    Args:
        value: Value of any type that `jsonable` takes.
    """
    text = json.dumps(value, indent=2, ensure_ascii=False)
    return "\n".join(map(_escaped, text.split("\n")))


def _escaped(line: str) -> str:
    if line.isprintable():
        return line
    letters = []
    for letter in line:
        letters.append(json.dumps(letter)[1:-1] if acts_on_terminals(letter) else letter)
    return "".join(letters)


def _finite(value: float) -> float | str | None:
    """Return a number, or what stands for it in JSON."""
    if math.isnan(value):
        return None
    if math.isinf(value):
        return "inf" if value > 0 else "-inf"
    return value
