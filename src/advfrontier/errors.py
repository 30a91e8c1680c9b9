"""What the library raises when a result cannot be right: one root, messages a person can act on."""

from operator import index
from typing import Any


class FrontierError(Exception):
    """Bad input. The message says what was found, what was expected and what to type instead."""


class NoGradientError(FrontierError):
    """The model has no gradient with respect to its images."""


class Unfinished(FrontierError):  # noqa: N818  # a state of the work, not a mistake
    """The time given is up. The message says how much is done and stored, and what to type to go on."""


def whole_number(value: Any, what: str, *, least: int | None = None) -> int:
    """A whole number of any type as an int. Raises if it is none: 200.0 would be stored, and never read again."""
    try:
        number = index(value)
    except TypeError:
        raise FrontierError(f"{what} is {value!r}: expected a whole number, such as 100") from None
    if least is not None and number < least:
        raise FrontierError(f"{what} is {number}: expected {least} or more, such as 100")
    return number
