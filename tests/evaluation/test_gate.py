"""Gates: they fail where the samples show a shortfall, or are too few to show one, and nowhere else."""

import re

import numpy as np
import pytest
from support.records import record

from advfrontier.errors import FrontierError
from advfrontier.evaluation.gate import Demand, _enough, _notices, not_worse, parse_demands
from advfrontier.flags import Flag, Kind
from advfrontier.frontier.confidence import wilson

AT = 0.03


def share(robust, n):
    """An evaluation in which so many of n samples are robust at AT."""
    found = record(n=n)
    found.full = np.where(np.arange(n) < robust, 2 * AT, AT / 2)
    found.first = np.zeros(n)
    return found


def test_demands_are_read():
    found = parse_demands(["Linf@8/255>=0.40, l2@0.5 >= 35%", "2@1>=1"])
    assert [str(each) for each in found] == ["Linf@8/255>=0.4", "L2@0.5>=0.35", "L2@1>=1"]
    assert found[0].epsilon == 8 / 255
    for wrong in (
        "Linf>=0.4",
        "Linf@8/255>0.4",
        "Linf@8/255<=0.4",
        "Linf@x>=0.4",
        "L7@1>=0.4",
        "L2@1>=0",
        "L2@1>=1.2",
    ):
        with pytest.raises(FrontierError):
            parse_demands([wrong])


@pytest.mark.parametrize(
    ("robust", "n", "holds", "words"),
    [
        (
            30,
            100,
            False,
            "30.0 % (21.9–39.6 %, 95 % on other samples) on 100 samples, and all of the interval lies below",
        ),
        (32, 100, True, "does not show the contrary"),
        (60, 100, True, "all of the interval lies above"),
        (9, 10, True, "all of the interval lies above"),  # few, but enough to show it
        (5, 10, False, "10 samples cannot tell"),
        (0, 10, False, "all of the interval lies below"),
    ],
)
def test_the_rule(robust, n, holds, words):
    ruling = parse_demands([f"Linf@{AT}>=0.40"])[0].rule(share(robust, n))
    assert ruling.holds is holds
    assert words in str(ruling)
    assert str(ruling).startswith(f"Linf@{AT}>=0.4 {'holds' if holds else 'fails'}")


def test_enough_samples_is_where_a_shortfall_of_ten_points_shows():
    for least in (0.02, 0.1, 0.4, 0.9, 1.0):
        enough = _enough(2, least)
        assert _notices(enough, least)
        assert not _notices(enough - 1, least)
        draws = np.random.default_rng(0).binomial(enough, max(least - 0.1, 0), 400)
        assert np.mean([wilson(int(count), enough).high < least for count in draws]) > 0.4
    assert [_notices(n, 0.4) for n in (8, 40, 100, 1000)] == [False, False, True, True]
    assert str(_enough(10, 0.4)) in str(Demand("Linf", "8/255", 8 / 255, 0.4).rule(share(5, 10)))


def test_distances_in_doubt_meet_no_demand():
    found = share(100, 100)
    found.flags = (Flag(Kind.MISLEADING_GRADIENTS, "the gradients mislead"),)
    ruling = Demand("Linf", "8/255", 8 / 255, 0.4).rule(found)
    assert (ruling.holds, "the gradients mislead" in str(ruling)) == (False, True)
    assert not not_worse(found, share(50, 100)).holds


def test_not_worse():
    before = record(n=200, seed=1)
    assert (
        not_worse(before, before).text == "Linf holds: no sample is nearer to an error than before"
    )
    worse = record(n=200, seed=1, strength=0.8)
    ruling = not_worse(worse, before)
    assert not ruling.holds
    assert re.fullmatch(
        r"Linf fails: the area changes by -2\d\.\d % \(-\S+ % to -\S+ %, 95 % on other samples\) on 200 samples, "
        r"and all of the interval is a loss",
        ruling.text,
    )
    assert not_worse(before, worse).holds


def test_noise_is_no_loss_but_few_samples_show_nothing():
    before, after = record(n=1000, seed=1), record(n=1000, seed=1)
    after.full = after.full * np.random.default_rng(0).normal(1.0, 0.1, 1000)
    assert "which shows no loss" in not_worse(after, before).text
    few, others = record(n=8, seed=1), record(n=8, seed=2)
    ruling = not_worse(few, others)
    assert "8 samples cannot tell" in ruling.text
    assert not ruling.holds


def test_equal_queries():
    """A model that had more queries is read back to those of the other."""
    before, after = record(n=200, seed=1, tier="paper-4k"), record(n=200, seed=1, tier="paper-12k")
    assert not_worse(after, before).text.startswith("Linf")
    asked = []
    distances_at = after.distances_at
    after.distances_at = lambda budget: asked.append(budget) or distances_at(budget)
    not_worse(after, before)
    assert asked == [4000]
