"""Expectation over transformation: distances of random models that hold when the models are asked
again.
"""

import re

import numpy as np
import pytest
import torch
from scipy.stats import binom
from support.models import Watch, conv_net, samples
from torch import nn
from torch.nn.functional import dropout

from advfrontier import Evaluation, FrontierError, Machine, evaluate, trace
from advfrontier.engine import Oracle, vote, votes
from advfrontier.engine.expectation import ask, mean, typical
from advfrontier.evaluation.summary import summarise_all
from advfrontier.report.summary import summary_tables
from advfrontier.report.words import averaged_text, details

NET = conv_net()
IMAGES, LABELS = samples(NET, 12, (1, 8, 8))
EOT = 20


class Noisy(nn.Module):
    """Noise on the input, and dropout whatever the mode."""

    def __init__(self, noise=0.05, drop=0.1):
        super().__init__()
        self.net, self.noise, self.drop = NET, noise, drop
        self.eval()

    def forward(self, images):
        return self.net(dropout(images + self.noise * torch.randn_like(images), self.drop))


def attack(norm="Linf", ensemble=100, eot=EOT, *, model=None, count=12, **options):
    return evaluate(
        model or Noisy(),
        IMAGES[:count],
        LABELS[:count],
        norm=norm,
        ensemble=ensemble,
        eot=eot,
        **options,
    )


def shares(points, labels, passes=1000, model=None):
    """How often fresh passes misclassify."""
    torch.manual_seed(7)
    model = model or Noisy()
    with torch.no_grad():
        return sum((model(points).argmax(1) != labels).double() for _ in range(passes)) / passes


def check_that_distances_hold(norm, ensemble):
    found = attack(norm, ensemble)
    broken = np.isfinite(found.distances)
    assert broken.sum() >= 10
    again = shares(found.adversarials, found.labels).numpy()
    assert (again[broken] > 1 / 2).all()  # those that are misclassified anyway, too
    points = broken & (found.distances > 0)
    assert np.isnan(found.shares[~points]).all()
    assert (
        np.abs(found.shares[points] - again[points]).max() < 0.1
    )  # as the record says: four deviations and more
    assert [flag.kind for flag in found.flags] == ["eot"]
    return found


def test_distances_hold_in_1000_fresh_passes_and_flags_say_how_they_were_judged():
    found = check_that_distances_hold("Linf", 60)
    flag = found.flags[0]
    assert (
        "mean of 20 passes, and a point counts if at least two thirds of 100 fresh passes "
        "misclassify it" in flag.text
    )
    assert not flag.doubtful


@pytest.mark.slow
@pytest.mark.parametrize("norm", ["L0", "L1", "L2", "Linf"])
@pytest.mark.parametrize("ensemble", [2000, "fmn,fmn:target1,pdpgd", "black-box@1000"])
def test_distances_hold_for_ensembles_and_lists_of_runs_in_every_norm(norm, ensemble):
    check_that_distances_hold(norm, ensemble)


def test_without_it_distances_do_not_hold_and_the_flag_says_what_to_type():
    found = attack(eot=1)
    again = shares(found.adversarials, found.labels).numpy()
    assert (again[found.distances > 0] < 1 / 2).sum() >= 4
    (flag,) = [flag for flag in found.flags if flag.kind == "random"]
    assert "--eot 20 (eot=20)" in flag.text
    assert flag.doubtful
    assert found.shares is None


def test_a_point_that_is_right_half_of_the_time_hardly_ever_counts():
    """The reasons given for the rule, by the binomial distribution."""
    fair = binom.sf(66, votes(EOT), 0.5)
    assert fair < 0.0005
    assert fair * binom.sf(14, EOT, 0.5) * 2000 < 0.02
    assert binom.sf(66, votes(EOT), 0.75) > 0.97


def test_every_pass_is_counted():
    model = Noisy()
    watch = Watch.on(model)
    found = trace(model, IMAGES, LABELS, norm="L2", runs=["fmn", "square_min"], queries=20, eot=5)
    assert sum(found.counts.values()) == watch.total
    attacked = int((found.distances[0, -1] > 0).sum())
    assert found.counts["attack"] == 2 * 20 * attacked * 5
    assert found.counts["setup"] == 12 * (2 * 5 + votes(5))
    kept = int(np.isfinite(found.distances[:, -1][:, found.distances[0, -1] > 0]).sum())
    assert (
        found.counts["verification"] >= kept * 1000
    )  # beside those that were looked at on the way


def test_queries_and_tiers():
    """A tier counts steps as ever; what is spent is told in passes."""
    found = attack(ensemble="fmn@50", count=4, eot=3)
    assert found.ensemble.total == 50
    attacked = found.distances > 0
    assert (found.queries == np.where(attacked, 150, 0)).all()
    assert found.counts["attack"] == 150 * attacked.sum()
    (summary,) = summarise_all([found], radii="0.1")
    assert (summary.averaged.eot, summary.averaged.passes, summary.queries_per_sample) == (
        3,
        1000,
        150,
    )
    assert summary.averaged.lowest == pytest.approx(np.nanmin(found.shares), abs=1e-4)
    (table,) = summary_tables([summary])
    assert "at most 50 queries per sample, each the mean of 3 passes, seed 42" in table.title
    said = averaged_text(summary)
    assert re.fullmatch(
        r"every query is the mean of 3 passes; of 1,000 fresh passes, [\d.]+ % misclassify the "
        r"median .*",
        said,
    )
    assert f"EOT in Linf: {said}" in table.notes
    assert f"In ℓ∞ {said}." in details([summary])


@pytest.mark.parametrize("workers", [0, pytest.param(1, marks=pytest.mark.slow)])
def test_results_do_not_depend_on_interruptions_workers_or_the_state_of_the_generator(
    tmp_path, workers
):
    torch.manual_seed(1)
    whole = attack(ensemble=80, count=4, eot=3, batch_size=2)
    torch.manual_seed(2)
    first = attack(ensemble=40, count=4, eot=3, batch_size=2, out=tmp_path)
    longer = Evaluation.load(tmp_path).extend(80, model=Noisy(), machine=Machine(workers=workers))
    for found in (longer, Evaluation.load(tmp_path)):
        assert found.eot == 3
        assert np.array_equal(found.distances, whole.distances)
        assert torch.equal(found.adversarials, whole.adversarials)
        assert np.array_equal(found.shares, whole.shares, equal_nan=True)
    assert np.array_equal(whole.distances_at(40), first.distances)


def test_a_record_goes_on_only_with_the_same_number_of_passes(tmp_path):
    attack(ensemble=20, count=2, eot=3, out=tmp_path)
    words = r"another number of passes per query: 3, not 1.*to resume it, add --eot 3"
    with pytest.raises(FrontierError, match=words):
        attack(ensemble=20, count=2, eot=1, out=tmp_path)
    assert attack(ensemble=30, count=2, eot=3, out=tmp_path).eot == 3


@pytest.mark.parametrize("eot", [0, -1, 1001])
def test_numbers_of_passes_that_make_no_sense(eot):
    limit = "greater than or equal to 1" if eot < 1 else "less than or equal to 1000"
    with pytest.raises(
        FrontierError, match=rf"--eot \(in Python eot=\) is {eot}: expected {limit};"
    ):
        attack(eot=eot)


def test_a_steady_model_is_found_at_the_same_distances():
    """All passes are the same, so that only their mean is rounded."""
    plain, averaged = (attack("L2", "ddn@100", eot, model=NET).distances for eot in (1, 3))
    assert np.allclose(plain, averaged, rtol=0.02)
    assert np.isfinite(plain).all()


def test_a_query_is_the_mean_of_passes_and_its_values_are_those_of_three_quarters():
    answers = iter(torch.tensor([[[4.0, 0.0]], [[3.0, 0.0]], [[1.0, 0.0]], [[2.0, 0.0]]]))
    images = torch.full((1, 2), 0.5, requires_grad=True)
    with Oracle(lambda x: next(answers) * x, eot=4) as oracle:
        reply = ask(oracle, images, lambda logits: logits[:, 0])
        assert oracle.counts.checks == 8
    assert torch.equal(mean(reply.passes), torch.tensor([[1.25, 0.0]]))
    assert reply.loss.item() == 1.5  # three of four are no larger
    assert torch.equal(reply.gradient, torch.tensor([[2.5, 0.0]]))
    assert typical(torch.arange(20.0)[:, None]).item() == 14


def test_votes():
    """Four passes: a share, the class most of the mistakes agree on, and none where it is right
    half of the time.
    """
    nothing = [float("nan")] * 3
    rows = (
        ([0, 1, 0], [0, 0, 1], [0, 1, 0], [1, 0, 0]),
        ([1, 0, 0], [0, 1, 0], [1, 0, 0], [0, 0, 1]),
        [nothing] * 4,
    )
    answers = iter(torch.tensor(rows).float().transpose(0, 1))
    with Oracle(lambda _: next(answers), eot=2) as oracle:
        share, classes = vote(oracle, torch.rand(3, 2), torch.tensor([0, 0, 1]), "test", 4)
    assert share.tolist() == [0.75, 0.5, 0]
    assert classes.tolist() == [1, 0, 1]


def test_streams_of_random_numbers_are_independent():
    images, before = torch.rand(2, 1, 8, 8), torch.get_rng_state()
    with Oracle(Noisy(), eot=2) as oracle:
        first, second = (ask(oracle, images, lambda z: z[:, 0]).passes for _ in range(2))
        assert torch.equal(first, second)
        assert not torch.equal(first[0], first[1])
        assert not torch.equal(ask(oracle, images / 2, lambda z: z[:, 0]).passes, first)
        looks = [
            vote(oracle, images, LABELS[:2], stream, 50)[0]
            for stream in ("search", "search", "last look")
        ]
    assert torch.equal(looks[0], looks[1])
    assert not torch.equal(looks[0], looks[2])
    assert torch.equal(torch.get_rng_state(), before)
