import pytest
from support.models import conv_problem


@pytest.fixture(scope="module")
def problem():
    return conv_problem(8)
