"""The paper's own figures, as they are printed beside those of a benchmark."""

import numpy as np
import pytest

from advfrontier.bench.published import published


def test_published_figures_are_those_of_the_paper():
    table = published().set_index(["norm", "split", "budget"])
    assert len(table) == 4 * 2 * 3
    row = table.loc["L2", "held-out", 8000]
    assert row["models"] == 13
    assert row["aoi"] == pytest.approx(0.99358)
    assert (row["matched"], row["accuracy"]) == (12, 13)
    assert row["gain"] == pytest.approx(0.01438)


def test_there_is_no_autoattack_in_l0():
    table = published().set_index(["norm", "split", "budget"])
    assert table.loc["L0", "train", 4000]["aoi"] == pytest.approx(0.97465)
    assert np.isnan(table.loc["L0", "train", 4000]["gain"])
