"""What the tests of records share: small ensembles, and what is to stay as it is."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import torch

from advfrontier import Ensemble, FrontierError
from advfrontier.record import Record

if TYPE_CHECKING:
    from collections.abc import Callable

SMALL = Ensemble.of("small", "L2", {"fmn": 20, "ddn": 20})
LARGER = Ensemble.of("larger", "L2", {"fmn": 40, "ddn": 40, "alma": 20})
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
    record.change(lambda _: changes)
    return record
