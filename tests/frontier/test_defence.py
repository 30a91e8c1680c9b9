import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from advfrontier.errors import FrontierError
from advfrontier.flags import Flag, Kind
from advfrontier.frontier import Curve, Evaluated, ReferencePool, defence_frontier, doi, epsilon_min

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
    hnp.arrays(
        np.float64,
        (3, 12),
        elements=st.one_of(st.floats(0.01, 9), st.just(0.0), st.integers(1, 4).map(float)),
    )
)
def test_doi_is_the_papers_ratio_of_areas(d):
    models = dict(zip("abc", d, strict=True))
    frontier = defence_frontier(models)
    end = epsilon_min(frontier).value
    whole = Curve.of(frontier).area(end)
    for row in d:
        if whole:
            assert doi(row, frontier).value == pytest.approx(
                Curve.of(row).area(end) / whole, rel=1e-12, abs=1e-12
            )
            assert doi(row, frontier).value <= 1 + 1e-12
        else:
            assert np.isnan(doi(row, frontier).value)
            assert doi(row, frontier).flags
    assert not whole or doi(frontier, frontier).value == pytest.approx(1)


def newcomer(model, distances, *, samples=SAMPLES, norm="L2", queries=12000, flags=()):
    return Evaluated(model, norm, samples, np.asarray(distances, dtype=float), queries, flags)


MASKED = Flag(Kind.ZERO_GRADIENTS, "masked gradients")


def test_a_newcomer_needs_no_other_model_run_again():
    new = pool().add(newcomer("new", [2.0, 4.0, 1.0, 1.0]))
    np.testing.assert_array_equal(new.frontier, np.maximum(pool().frontier, [2.0, 4.0, 1.0, 1.0]))
    assert new.doi("new").value == pytest.approx(8 / 11)
    assert set(pool().distances) == {"a", "b"}


def test_a_newcomer_brings_its_samples_and_replaces_the_model_of_its_name():
    new = pool().add(newcomer("zoo:a", [9.0, 8.0], samples=("s3", "s0")))
    assert new.samples == ("s3", "s0")
    assert {name: d.tolist() for name, d in new.distances.items()} == {
        "b": [0.0, 1.0],
        "zoo:a": [9.0, 8.0],
    }


def test_two_models_of_one_name_are_refused():
    with pytest.raises(FrontierError, match="a comes more than once in L2"):
        ReferencePool.of([newcomer("a", [1, 2, 3, 4]), newcomer("zoo:a", [2, 3, 4, 5])])


def test_models_in_doubt_are_out_of_the_frontier():
    wild = pool().add(newcomer("wild", [np.inf, 9.0, 9.0, 9.0]))
    np.testing.assert_array_equal(wild.frontier, pool().frontier)
    assert wild.flagged == {"wild": (Flag(Kind.UNBROKEN, "1 of 4 samples were never broken"),)}
    masked = pool().add(newcomer("masked", np.full(4, 9.0), flags=(MASKED,)))
    np.testing.assert_array_equal(masked.frontier, pool().frontier)
    assert masked.flagged == {"masked": (MASKED,)}


@pytest.mark.parametrize("kind", Kind)
def test_in_doubt_is_what_the_kind_of_a_flag_says_and_not_its_text(kind):
    flag = Flag(kind, "never broken, training, several versions")
    found = pool(flags={"a": (flag,)}).flagged
    harmless = {Kind.TRAINING, Kind.VERSIONS, Kind.UNBROKEN, Kind.INTERRUPTED, Kind.EOT}
    harmless.add(Kind.RESOLUTION)
    assert found == ({} if kind in harmless else {"a": (flag,)})


def test_a_part_of_a_pool_has_a_frontier_of_its_own():
    whole = pool().add(newcomer("masked", np.full(4, 9.0), flags=(MASKED,)))
    part = whole.only(["b"])
    np.testing.assert_array_equal(part.frontier, part.distances["b"])
    assert part.doi("b").value == 1
    assert whole.only(["masked", "a"]).flagged == {"masked": (MASKED,)}
    with pytest.raises(FrontierError, match="no model z in the pool"):
        whole.only(["a", "z"])


def test_only_comparable_newcomers_are_taken():
    with pytest.raises(FrontierError, match="extend"):
        pool().add(newcomer("new", np.ones(4), queries=4000))
    with pytest.raises(FrontierError, match="across norms"):
        pool().add(newcomer("new", np.ones(4), norm="L1"))
    with pytest.raises(
        FrontierError, match="1 of 4 samples are not among the 4 of the reference pool"
    ):
        pool().add(newcomer("new", np.ones(4), samples=("x", *SAMPLES[1:])))
    with pytest.raises(FrontierError, match="3 distances of new for 4 samples"):
        newcomer("new", np.ones(3))


def test_nobody_trustworthy_or_nobody_correct():
    with pytest.raises(FrontierError, match="all 1 models are flagged"):
        _ = pool(distances={"a": np.full(4, np.inf)}).frontier
    nobody = pool(distances={"a": np.zeros(4)}).doi("a")
    assert np.isnan(nobody.value)
    assert "there is no DOI" in nobody.flags[0]
    never = pool().add(newcomer("never", [np.inf, np.inf, np.inf, 0.0])).doi("never")
    assert np.isnan(never.value)
    assert "no run broke any sample, so there is no DOI" in never.flags


def test_inconsistent_pools_are_refused():
    with pytest.raises(FrontierError, match="different numbers"):
        pool(distances={"a": np.ones(4), "b": np.ones(3)})
    with pytest.raises(FrontierError, match="for 4 samples"):
        pool(distances={"a": np.ones(3)})
    with pytest.raises(FrontierError, match="no model z"):
        pool(flags={"z": (MASKED,)})
    with pytest.raises(FrontierError, match="no model z"):
        pool().doi("z")
    with pytest.raises(FrontierError, match="no distances given"):
        pool(distances={})
    with pytest.raises(FrontierError, match="same samples"):
        doi([1.0], [1.0, 2.0])
