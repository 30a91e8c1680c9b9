"""What the tests of records share: small ensembles, and what is to stay as it is."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import torch

from advfrontier import FrontierError
from advfrontier.pool import make_ensemble
from advfrontier.record import Record

if TYPE_CHECKING:
    from collections.abc import Callable

STEPS = [
    {"run": "fmn", "queries": 20},
    {"run": "ddn", "queries": 20},
    {"run": "fmn", "queries": 40},
    {"run": "ddn", "queries": 40},
    {"run": "alma", "queries": 20},
]
SMALL = make_ensemble(name="small", norm="L2", steps=STEPS, total=40)
LARGER = make_ensemble(name="larger", norm="L2", steps=STEPS)
OPTIONS = {"norm": "L2", "ensemble": SMALL, "batch_size": 4}


def contents(place):
    return {path: path.read_bytes() for path in Path(place).rglob("*") if path.is_file()}


def same(one, two):
    assert one.distances.tobytes() == two.distances.tobytes()
    assert torch.equal(one.adversarials, two.adversarials)
    assert one.winners == two.winners


def refused(message, place, function: Callable[[], object]):
    """The call raises, and has changed no file."""
    before = contents(place)
    with pytest.raises(FrontierError, match=message):
        function()
    assert contents(place) == before


def edit_record(place, **changes):
    """Write another header, with the checksum that belongs to it."""
    record = Record.find(place)
    header = record.header.model_copy(update=changes)
    record.folder.write("record.json", header.to_bytes())
    return Record.find(place)
