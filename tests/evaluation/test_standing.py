"""Where an evaluation stands among the embedded models, or why it does not."""

import numpy as np
import pytest
import torch
from torch import nn

from advfrontier import Ensemble, FrontierError, evaluate
from advfrontier.evaluation.compare import common_pool, reference_pool
from advfrontier.evaluation.summary import summarise_all
from advfrontier.flags import Flag
from advfrontier.report import summary_tables
from advfrontier.report.render import as_text
from advfrontier.zoo import images_and_labels


def linear():
    """Return a linear model of the mean image of each class, quick to attack."""
    images, labels = images_and_labels()
    layer = nn.Linear(784, 10)
    with torch.no_grad():
        for label in range(10):
            mean = images[labels == label].flatten(1).mean(0)
            layer.weight[label] = mean
            layer.bias[label] = -0.5 * mean.square().sum()
    return nn.Sequential(nn.Flatten(), layer).eval()


def embedded(count):
    images, labels = images_and_labels()
    return images[:count], labels[:count]


@pytest.fixture(scope="module")
def stages():
    """Return the budget to the evaluation and its summary, extended from each to the next."""
    found = evaluate(linear(), *embedded(4), norm="Linf", ensemble=4000, name="mine")
    stages = {4000: (found, summarise_all([found])[0])}
    for queries in (4100, 8100):
        found = found.extend(queries)
        stages[queries] = found, summarise_all([found])[0]
    return stages


def text_of(summary):
    return as_text(*summary_tables([summary]))


def test_shipped_flags_have_kinds():
    for norm in ("L0", "L1", "L2", "Linf"):
        flags = reference_pool(norm, 12000).flags
        assert list(flags) == ["F16"]
        assert all(isinstance(flag, Flag) for flag in flags["F16"])
        assert "no-gradients" in [flag.kind for flag in flags["F16"]]


@pytest.mark.parametrize(("queries", "tier"), [(4000, 4000), (4100, 4000), (8100, 8000)])
def test_evaluation_stands_at_the_largest_tier_it_has_passed(stages, queries, tier):
    evaluation, summary = stages[queries]
    assert common_pool([evaluation], "Linf", name="fashion-mnist").queries == tier
    assert summary.standing.table.queries == tier
    assert summary.no_standing is None
    assert ("DOI and rank in Linf after" in text_of(summary)) == (queries != tier)


def test_several_evaluations_stand_at_the_common_tier(stages):
    both = [stages[8100][0], stages[4100][0]]
    assert common_pool(both, "Linf", name="fashion-mnist").queries == 4000
    assert common_pool([], "Linf", name="fashion-mnist").queries == 12000
    with pytest.raises(FrontierError, match="no reference pool 'mnist'"):
        common_pool(both, "Linf", name="mnist")


def test_too_few_queries_are_a_reason_for_no_standing():
    found = evaluate(linear(), *embedded(2), norm="Linf", ensemble=300, name="mine")
    check_no_standing(found, "with 4k, 8k, 12k queries per sample, mine with 300: expected tiers")


def test_another_ensemble_is_a_reason_for_no_standing():
    own = Ensemble.of("own", "Linf", {"fmn": 50})
    found = evaluate(linear(), *embedded(3), norm="Linf", ensemble=own, name="mine")
    check_no_standing(found, "mine with 50: expected tiers in common; type --tier 4k")


def test_other_samples_are_a_reason_for_no_standing():
    images, labels = embedded(100)
    images = torch.cat((images, (images + 1 / 255).clamp(0, 1)))
    labels = torch.cat((labels, labels))
    options = {"norm": "Linf", "ensemble": "fmn@20", "name": "mine"}
    found = evaluate(linear(), images, labels, **options)
    check_no_standing(found, r"first 100 samples .* 100 of the 200 of mine .* --samples 100")


def check_no_standing(evaluation, why):
    """Check that the summary says why, and that asking for a pool raises the same."""
    (found,) = summarise_all([evaluation])
    assert found.standing is None
    with pytest.raises(FrontierError, match=why):
        common_pool([evaluation], "Linf", name="fashion-mnist")
    assert f"no DOI in Linf: {found.no_standing}" in text_of(found)


def test_other_data_need_no_reason():
    images, labels = embedded(3)
    found = evaluate(linear(), 1 - images, labels, norm="Linf", ensemble="fmn@20", name="mine")
    (summary,) = summarise_all([found])
    assert (summary.standing, summary.no_standing) == (None, None)
    assert np.isfinite(summary.median)
