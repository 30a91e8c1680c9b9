"""Results as JSON: what is infinite or not known, names of kinds, and damaged files."""

import json
import math
from dataclasses import dataclass

import numpy as np

from advfrontier.flags import Flag, Kind
from advfrontier.jsonable import json_text, jsonable


@dataclass
class Result:
    distances: object
    secret: int = 3


def test_numbers_that_json_has_not_are_text_or_null():
    assert jsonable([1.5, math.inf, -math.inf, math.nan, None]) == [1.5, "inf", "-inf", None, None]
    assert jsonable(np.array([[0.5, math.inf]])) == [[0.5, "inf"]]
    assert jsonable({1: (np.int64(3), np.float32(math.nan))}) == {"1": [3, None]}


def test_dataclasses_are_their_fields():
    assert jsonable(Result(np.arange(2))) == {"distances": [0, 1], "secret": 3}
    nested = {"a": [Result(Result(1.0))]}
    assert jsonable(nested, without=["secret"]) == {"a": [{"distances": {"distances": 1.0}}]}
    assert jsonable(Flag(Kind.BEATEN, "text")) == {"kind": "beaten", "text": "text"}


def test_text_that_acts_on_a_terminal_is_escaped_and_read_back():
    value = {"name": "ℓ₂ \x1b[31m\u202e"}
    text = json_text(value)
    assert "ℓ₂" in text
    assert text.replace("\n", "").isprintable()
    assert json.loads(text) == value
