"""Results as JSON can hold them."""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from typing import Any

import numpy as np

from advfrontier.errors import FrontierError


def jsonable(value: Any, *, without: Collection[str] = ()) -> Any:
    """Reduce to dicts, lists, text, numbers and None; fields named in `without` are left out at any depth.

    JSON has no infinite numbers: they become "inf" or "-inf". NaN, which here only ever means "not known", becomes
    null, as None does.
    """
    if is_dataclass(value) and not isinstance(value, type):
        parts = {
            field.name: getattr(value, field.name)
            for field in fields(value)
            if field.name not in without
        }
        return {name: jsonable(part, without=without) for name, part in parts.items()}
    if isinstance(value, Mapping):
        return {str(key): jsonable(part, without=without) for key, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [jsonable(part, without=without) for part in value]
    if isinstance(value, (np.ndarray, np.generic)):
        return jsonable(value.tolist())
    if isinstance(value, float) and not math.isfinite(value):
        return None if math.isnan(value) else "inf" if value > 0 else "-inf"
    return value.value if isinstance(value, Enum) else value


def read_object(content: bytes, place: str) -> dict[str, Any]:
    """What a JSON file of ours tells; refuses one that is damaged or somebody else's."""
    try:
        found = json.loads(content)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise FrontierError(f"{place} is damaged, or was not written by advfrontier: move it away")
    return found
