"""One small evaluation that several files look at; files with a problem of their own have a fixture
of that name.
"""

import pytest
from small_evaluation import LARGER, SMALL
from support.models import conv_problem

from advfrontier import evaluate


@pytest.fixture(scope="session")
def problem():
    return conv_problem(11, wrong=4)


@pytest.fixture(scope="session")
def evaluation(problem, tmp_path_factory):
    return evaluate(
        *problem, norm="l2", ensemble=SMALL, batch_size=4, out=tmp_path_factory.mktemp("run") / "a"
    )


@pytest.fixture(scope="session")
def longer(problem):
    """The larger ensemble at once: what other ways of getting there are compared with."""
    return evaluate(*problem, norm="L2", ensemble=LARGER, batch_size=4)
