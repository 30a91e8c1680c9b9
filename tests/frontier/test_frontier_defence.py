import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from advfrontier.errors import FrontierError
from advfrontier.frontier import Curve, ReferencePool, defence_frontier, doi, epsilon_min

SAMPLES = ("s0", "s1", "s2", "s3")


def pool(**changes):
    fields = {
        "norm": "L2",
        "dataset": "fashion-mnist",
        "queries": 12000,
        "samples": SAMPLES,
        "distances": {"a": np.array([4.0, 0.0, 2.0, 1.0]), "b": np.array([1.0, 3.0, 2.0, 0.0])},
    }
    return ReferencePool(**(fields | changes))


@given(
    hnp.arrays(np.float64, (3, 12), elements=st.one_of(st.floats(0.01, 9), st.just(0.0), st.integers(1, 4).map(float)))
)
def test_doi_is_the_papers_ratio_of_areas(d):
    models = dict(zip("abc", d, strict=True))
    frontier = defence_frontier(models)
    end = epsilon_min(frontier).value
    whole = Curve.of(frontier).area(end)
    for row in d:
        if whole:
            assert doi(row, frontier).value == pytest.approx(Curve.of(row).area(end) / whole, rel=1e-12, abs=1e-12)
            assert doi(row, frontier).value <= 1 + 1e-12
        else:
            assert doi(row, frontier).value == 1
            assert doi(row, frontier).flags
    assert doi(frontier, frontier).value == pytest.approx(1)


def test_rank_table():
    first, second = pool().rank()
    assert (first.rank, first.model, first.position) == (1, "a", "1")
    assert first.doi.value == pytest.approx(7 / 10)
    assert first.aurec == pytest.approx(7 / 4)
    assert (second.rank, second.model) == (2, "b")
    assert second.doi.value == pytest.approx(6 / 10)


def test_equal_models_share_a_rank():
    twins = pool(distances={"a": np.ones(4), "b": np.ones(4), "c": np.full(4, 0.5)})
    assert [(row.rank, row.model) for row in twins.rank()] == [(1, "a"), (1, "b"), (3, "c")]


def test_a_newcomer_needs_no_other_model_run_again():
    new = pool().add("new", [2.0, 4.0, 1.0, 1.0], samples=SAMPLES, norm="L2", queries=12000)
    np.testing.assert_array_equal(new.frontier(), np.maximum(pool().frontier(), [2.0, 4.0, 1.0, 1.0]))
    assert new.doi("new").value == pytest.approx(8 / 11)
    assert new.rank()[0].model == "new"
    assert set(pool().distances) == {"a", "b"}


def test_flagged_models_are_in_brackets_and_out_of_the_frontier():
    wild = pool().add("wild", [np.inf, 9.0, 9.0, 9.0], samples=SAMPLES, norm="L2", queries=12000)
    np.testing.assert_array_equal(wild.frontier(), pool().frontier())
    table = wild.rank()
    assert [row.position for row in table] == ["(1)", "1", "2"]
    assert table[0].model == "wild"
    assert "1 of 4 samples were never broken" in table[0].doi.flags
    masked = pool().add(
        "masked", np.full(4, 9.0), samples=SAMPLES, norm="L2", queries=12000, flags=("masked gradients",)
    )
    np.testing.assert_array_equal(masked.frontier(), pool().frontier())
    assert masked.doi("masked").flags[0] == "masked gradients"


def test_a_part_of_a_pool_has_a_frontier_of_its_own():
    whole = pool().add("masked", np.full(4, 9.0), samples=SAMPLES, norm="L2", queries=12000, flags=("masked",))
    part = whole.only(["b"])
    np.testing.assert_array_equal(part.frontier(), part.distances["b"])
    assert part.doi("b").value == 1
    assert whole.only(["masked", "a"]).flagged == {"masked": ("masked",)}
    with pytest.raises(FrontierError, match="no model z in the pool"):
        whole.only(["a", "z"])


def test_only_comparable_newcomers_are_taken():
    with pytest.raises(FrontierError, match="extend"):
        pool().add("new", np.ones(4), samples=SAMPLES, norm="L2", queries=4000)
    with pytest.raises(FrontierError, match="across norms"):
        pool().add("new", np.ones(4), samples=SAMPLES, norm="L1", queries=12000)
    with pytest.raises(FrontierError, match="different samples"):
        pool().add("new", np.ones(4), samples=("x", *SAMPLES[1:]), norm="L2", queries=12000)
    with pytest.raises(FrontierError, match="another order"):
        pool().add("new", np.ones(4), samples=SAMPLES[::-1], norm="L2", queries=12000)
    with pytest.raises(FrontierError, match="already"):
        pool().add("a", np.ones(4), samples=SAMPLES, norm="L2", queries=12000)


def test_nobody_trustworthy_or_nobody_correct():
    with pytest.raises(FrontierError, match="all 1 models are flagged"):
        pool(distances={"a": np.full(4, np.inf)}).rank()
    nobody = pool(distances={"a": np.zeros(4)}).rank()[0]
    assert nobody.doi.value == 1
    assert "DOI set to 1" in nobody.doi.flags[0]


def test_inconsistent_pools_are_refused():
    with pytest.raises(FrontierError, match="different numbers"):
        pool(distances={"a": np.ones(4), "b": np.ones(3)})
    with pytest.raises(FrontierError, match="for 4 samples"):
        pool(distances={"a": np.ones(3)})
    with pytest.raises(FrontierError, match="does not hold"):
        pool(flags={"z": ("odd",)})
    with pytest.raises(FrontierError, match="no model z"):
        pool().doi("z")
    with pytest.raises(FrontierError, match="no distances given"):
        pool(distances={})
    with pytest.raises(FrontierError, match="same samples"):
        doi([1.0], [1.0, 2.0])
