"""The command as typed: known inside the block, and nowhere else."""

import pytest

from advfrontier.command import current_command, typed


def test_command_is_known_inside_the_block():
    assert current_command() == ""
    with typed("advfrontier evaluate a"):
        assert current_command() == "advfrontier evaluate a"
        with typed("advfrontier extend b"):
            assert current_command() == "advfrontier extend b"
        assert current_command() == "advfrontier evaluate a"
    assert current_command() == ""


def test_command_is_forgotten_after_an_error():
    with pytest.raises(ValueError, match="stop"), typed("advfrontier evaluate a"):
        raise ValueError("stop")
    assert current_command() == ""
