"""Gates: they fail where the samples show a shortfall, or are too few to show one, and nowhere
else.
"""

import re
from functools import cache

import numpy as np
import pytest
import torch
from torch import nn

from advfrontier import Evaluation, evaluate
from advfrontier.errors import FrontierError
from advfrontier.evaluation.gate import Demand, not_worse, parse_demands
from advfrontier.flags import Flag, Kind
from advfrontier.record import HeaderChange

AT = 0.03


def plane(weights, threshold):
    """Return a linear model of four pixels that says 1 where their weighted sum is above a
    threshold.
    """
    layer = nn.Linear(4, 2)
    with torch.no_grad():
        layer.weight.copy_(torch.tensor([[0.0] * 4, weights]))
        layer.bias.copy_(torch.tensor([0.0, -threshold]))
    return nn.Sequential(nn.Flatten(), layer).eval()


EVEN = (0.25, 0.25, 0.25, 0.25)


@cache
def evaluation(weights=EVEN, threshold=0.3, *, n=200, seed=1, ensemble="fmn@100"):
    """Evaluate a plane on random images above it; the distance in Linf is the margin."""
    generator = torch.Generator().manual_seed(seed)
    images = 0.45 + 0.5 * torch.rand(n, 1, 2, 2, generator=generator)
    labels = torch.ones(n, dtype=torch.long)
    model = plane(weights, threshold)
    return evaluate(model, images, labels, norm="Linf", ensemble=ensemble, batch_size=n)


@cache
def share(robust, n):
    """Return an evaluation in which so many of n samples are robust at AT."""
    distances = torch.where(torch.arange(n) < robust, 2 * AT, AT / 2)
    jitter = 1e-3 * torch.rand(n, 4, generator=torch.Generator().manual_seed(0))
    images = 0.5 + distances[:, None] + jitter - jitter.mean(1, keepdim=True)
    labels = torch.ones(n, dtype=torch.long)
    found = evaluate(
        plane(EVEN, 0.5),
        images.view(n, 1, 2, 2),
        labels,
        norm="Linf",
        ensemble="fmn@100",
        batch_size=n,
    )
    assert (found.distances > AT).sum() == robust
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
        with pytest.raises(
            FrontierError,
            match=r"is no requirement|is not a radius|unknown norm|demands no accuracy",
        ):
            parse_demands([wrong])


@pytest.mark.parametrize(
    ("robust", "n", "holds", "words"),
    [
        (
            30,
            100,
            False,
            "95 % on other samples) on 100 samples, and the whole interval lies below",
        ),
        (32, 100, True, "the interval includes it"),
        (60, 100, True, "the whole interval lies above"),
        (9, 10, True, "the whole interval lies above"),  # few, but enough to show it
        (5, 10, False, "10 samples are too few to decide"),
        (0, 10, False, "the whole interval lies below"),
    ],
)
def test_rule_of_a_demand(robust, n, holds, words):
    ruling = parse_demands([f"Linf@{AT}>=0.40"])[0].rule(share(robust, n))
    assert ruling.holds is holds
    assert words in str(ruling)
    assert str(ruling).startswith(f"Linf@{AT}>=0.4 {'holds' if holds else 'fails'}")


@pytest.mark.parametrize("least", [0.4, 0.9])
def test_rule_names_the_number_of_samples_that_would_tell(least):
    """A model a little below the demand fails with one sample fewer, and holds with as many."""
    demand = Demand("Linf", str(AT), AT, least)
    few = demand.rule(share(round(10 * (least - 0.05)), 10))
    assert not few.holds
    enough = int(re.search(r"(\d+) samples are enough to notice a shortfall", few.text)[1])
    for n, holds in ((enough - 1, False), (enough, True)):
        ruling = demand.rule(share(round(n * least) - 1, n))
        assert ruling.holds is holds, ruling.text


def doubted(found, place):
    """Return a copy of an evaluation with a flag that puts its distances in doubt."""
    found.save(place)
    copy = Evaluation.load(place)
    flag = Flag(Kind.MISLEADING_GRADIENTS, "the gradients mislead")
    copy.record.change(HeaderChange(add_flags=(flag,)))
    return Evaluation.load(place)


def test_distances_in_doubt_meet_no_demand(tmp_path):
    found = doubted(share(100, 100), tmp_path)
    ruling = Demand("Linf", "8/255", 8 / 255, 0.4).rule(found)
    assert not ruling.holds
    assert "the gradients mislead" in ruling.text
    ruling = not_worse(found, share(50, 100))
    assert not ruling.holds
    assert "are in doubt: the gradients mislead" in ruling.text


def test_equal_model_is_not_worse():
    before = evaluation()
    ruling = not_worse(before, before)
    assert ruling.holds
    assert ruling.text == "Linf holds: no sample is nearer to an error than before"


def test_worse_model_fails_with_the_change_of_the_area():
    before, worse = evaluation(threshold=0.3), evaluation(threshold=0.38)
    ruling = not_worse(worse, before)
    assert not ruling.holds
    assert re.fullmatch(
        r"Linf fails: the area changes by -\d+\.\d % \(-\S+ % to -\S+ %, 95 % on other samples\) "
        r"on "
        r"200 samples, and the whole interval is a loss",
        ruling.text,
    )
    assert not_worse(before, worse).holds


def test_noise_is_no_loss():
    before = evaluation(n=1000)
    after = evaluation((0.28, 0.22, 0.3, 0.2), n=1000)
    ruling = not_worse(after, before)
    assert ruling.holds
    assert "which shows no loss" in ruling.text


def test_few_samples_show_nothing():
    before = evaluation(n=8)
    after = evaluation((0.85, 0.05, 0.05, 0.05), n=8)
    worse, better = sorted((before, after), key=lambda one: one.distances.mean())
    ruling = not_worse(worse, better)
    assert not ruling.holds
    assert "8 samples are too few to decide" in ruling.text


def test_models_are_compared_at_the_smaller_budget():
    before = evaluation(ensemble="fmn@20")
    after = evaluation(threshold=0.31, ensemble="fmn@20")
    longer = evaluation(threshold=0.31, ensemble="fmn@100")
    assert np.any(longer.distances < after.distances)
    assert not_worse(longer, before).text == not_worse(after, before).text
