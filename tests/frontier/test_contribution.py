import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from advfrontier.frontier import aoi, attack_frontier, contributions

DISTANCES = {
    "fmn": [0.0, 1.0, 2.0, 5.0, np.inf],
    "fmn:restart1": [0.0, 1.0, 3.0, 6.0, np.inf],
    "ddn": [0.0, 4.0, 4.0, 4.0, np.inf],
}


def test_wins_and_losses():
    fmn, restart, ddn = contributions(DISTANCES)
    assert (fmn.wins, fmn.alone) == (2, 1)
    assert (restart.wins, restart.alone, restart.loss) == (1, 0, 0.0)
    assert (ddn.wins, ddn.alone, ddn.loss) == (
        1,
        1,
        0.0,
    )  # it sets E, up to which its own sample adds nothing
    assert fmn.loss == pytest.approx(1 / 5)
    assert contributions(DISTANCES, E=6.0)[2].loss == pytest.approx(1 / 11)


@given(
    hnp.arrays(
        np.float64,
        (3, 10),
        elements=st.one_of(st.integers(1, 5).map(float), st.floats(0.5, 5), st.just(np.inf)),
    )
)
def test_loss_is_what_leaving_the_run_out_costs(d):
    frontier = attack_frontier(d)
    for run, found in enumerate(contributions(dict(zip("abc", d, strict=True)))):
        without = aoi(attack_frontier(np.delete(d, run, axis=0)), frontier).value
        assert found.loss == pytest.approx(1 - without, abs=1e-12)


def test_one_run_or_nothing_to_break():
    (only,) = contributions({"fmn": [1.0, 2.0]})
    assert (only.wins, only.alone, only.loss) == (2, 2, 1.0)
    (nothing,) = contributions({"fmn": [0.0, np.inf]})
    assert (nothing.wins, nothing.alone, nothing.loss) == (0, 0, 0.0)
