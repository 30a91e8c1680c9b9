"""Errors of users: numbers, text on terminals, and errors of the operating system."""

import errno
import os

import numpy as np
import pytest

from advfrontier.errors import (
    FrontierError,
    explain_os_errors,
    os_error_cure,
    printable,
    whole_number,
)


def test_whole_numbers_are_of_any_integer_type():
    assert whole_number(np.int64(7), "queries") == 7
    for wrong in (200.0, "7", None):
        with pytest.raises(FrontierError, match=r"queries is .*: expected a whole number"):
            whole_number(wrong, "queries")
    with pytest.raises(FrontierError, match="queries is 9: expected 10 or more"):
        whole_number(9, "queries", least=10)


def test_text_that_acts_on_a_terminal_is_shown():
    text = printable("net\x1b[31m\u202e ℓ₂")
    assert "ℓ₂" in text
    assert text.isprintable()
    assert str(FrontierError("a\x07b")).isprintable()


@pytest.mark.parametrize(
    ("number", "reason"),
    [
        (errno.ENOSPC, "the disk is full"),
        (errno.EROFS, "read-only"),
        (errno.EACCES, "permission denied"),
        (errno.ENAMETOOLONG, "the name is too long"),
    ],
)
def test_errors_of_the_system_say_what_to_do(number, reason):
    error = OSError(number, os.strerror(number))
    assert reason in os_error_cure(error)
    with pytest.raises(FrontierError, match=reason), explain_os_errors("written", "a/b"):
        raise error


def test_names_that_no_system_takes_are_explained():
    with (
        pytest.raises(FrontierError, match="cannot be read: its name holds a NUL character"),
        explain_os_errors("read", "a\0b"),
    ):
        open("a\0b")  # noqa: PTH123, SIM115
    with pytest.raises(ValueError, match="other"), explain_os_errors("read", "a"):
        raise ValueError("other")
