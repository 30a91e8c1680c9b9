"""Criteria of success against their definitions, class by class."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from support.examples import EXAMPLES

from advfrontier.errors import FrontierError
from advfrontier.threat.criteria import Aim, Rejecting, Targeted, TopK, gap_of, read_criterion
from advfrontier.threat.losses import LOSSES, margin


def drawn(seed, classes, n=12):
    """Return logits, labels, and targets that are other classes."""
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(n, classes, generator=generator, dtype=torch.float64)
    labels = torch.randint(classes, (n,), generator=generator)
    goals = (labels + torch.randint(1, classes, (n,), generator=generator)) % classes
    return logits, labels, goals


@EXAMPLES
@given(seed=st.integers(0, 10_000), classes=st.integers(2, 7))
def test_targeted_succeeds_where_the_target_is_the_likeliest(seed, classes):
    logits, labels, goals = drawn(seed, classes)
    gap = Aim(Targeted(goals), labels, goals).gap(logits)
    assert torch.equal(gap < 0, logits.argmax(1) == goals)
    torch.testing.assert_close(gap, margin(logits, labels, goals))


@EXAMPLES
@given(seed=st.integers(0, 10_000), classes=st.integers(2, 7), k=st.integers(1, 6))
def test_top_k_succeeds_where_the_label_is_not_among_the_k_likeliest(seed, classes, k):
    logits, labels, _ = drawn(seed, classes)
    if k >= classes:
        with pytest.raises(FrontierError, match=f"always among the {k} likeliest"):
            TopK(k).check(labels, None, classes)
        return
    gap = Aim(TopK(k), labels).gap(logits)
    assert torch.equal(gap < 0, (logits.topk(k).indices != labels[:, None]).all(1))
    if k == 1:
        assert torch.equal(gap, margin(logits, labels))


@EXAMPLES
@given(seed=st.integers(0, 10_000), classes=st.integers(3, 7))
def test_rejecting_succeeds_where_another_class_is_taken_and_accepted(seed, classes):
    logits, labels, _ = drawn(seed, classes)
    labels = labels % (classes - 1)
    for criterion, reject in ((Rejecting(), classes - 1), (Rejecting(classes - 1), classes - 1)):
        seen = logits.argmax(1)
        gap = Aim(criterion, labels).gap(logits)
        assert torch.equal(gap < 0, (seen != labels) & (seen != reject))


@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize("criterion", [Targeted(1), TopK(2), Rejecting()])
def test_every_loss_has_a_finite_gradient(name, criterion):
    logits, labels, _ = drawn(0, 5)
    labels = labels % 4
    labels[labels == 1] = 0
    logits.requires_grad_()
    aim = Aim(criterion, labels, torch.ones_like(labels))
    loss = aim.loss(name, logits, torch.ones(12, dtype=torch.float64))
    gradient = torch.autograd.grad(loss.sum(), logits)[0]
    assert loss.isfinite().all()
    assert gradient.isfinite().all()
    assert (gradient != 0).any(1).all()


def test_an_aim_of_some_rows_is_that_of_these_rows():
    logits, labels, goals = drawn(0, 4)
    rows = torch.tensor([3, 1])
    aim = Aim(Targeted(goals), labels, goals)
    assert torch.equal(aim.select(rows).gap(logits[rows]), aim.gap(logits)[rows])
    assert torch.equal(gap_of(None, logits, labels), margin(logits, labels))


def test_one_target_leaves_its_own_class_out():
    rows, goals = Targeted(2).rows(torch.tensor([0, 2, 1, 2]))
    assert (rows.tolist(), goals.tolist()) == ([0, 2], [2, 2])


def test_every_other_class_in_turn():
    rows, goals = Targeted(every=3).rows(torch.tensor([0, 2]))
    assert (rows.tolist(), goals.tolist()) == ([0, 0, 1, 1], [1, 2, 0, 1])


@pytest.mark.parametrize(
    "criterion",
    [
        Targeted(3),
        Targeted(every=10),
        Targeted(torch.tensor([1, 2])),
        TopK(5),
        Rejecting(),
        Rejecting(7),
    ],
)
def test_names_are_read_back(criterion):
    read = read_criterion(criterion.name)
    assert (read.name, read.words) == (criterion.name, criterion.words)
    assert read_criterion("untargeted") is None


def test_targets_per_sample_have_a_name_of_their_own():
    first, second = Targeted(torch.tensor([1, 2])), Targeted(torch.tensor([1, 3]))
    assert first.name == Targeted(torch.tensor([1, 2], dtype=torch.int32)).name != second.name


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (Targeted, "either classes or every"),
        (lambda: Targeted(1, every=3), "either classes or every"),
        (lambda: Targeted(-1), "target"),
        (lambda: Targeted(torch.tensor([0.5])), "one whole number per sample"),
        (lambda: Targeted(every=1), "every"),
        (lambda: TopK(0), "k"),
        (lambda: Rejecting(-2), "rejects"),
        (lambda: read_criterion("top-x"), "unknown criterion 'top-x'"),
        (lambda: Targeted(torch.tensor([1])).rows(torch.tensor([0, 2])), "1 targets for 2 samples"),
        (lambda: Targeted(5).check(torch.tensor([0]), torch.tensor([5]), 5), "classes from 0 to 4"),
        (lambda: Targeted(1).check(torch.tensor([1]), torch.tensor([1]), 5), "their own class"),
        (lambda: Targeted(1).check(torch.tensor([1]), None, 5), "no targets for targeted-1"),
        (lambda: Rejecting(5).check(torch.tensor([1]), None, 5), "rejects is 5, with 5 classes"),
        (lambda: Rejecting().check(torch.tensor([4]), None, 5), "labelled with the class that"),
    ],
)
def test_criteria_that_make_no_sense_are_refused(make, message):
    with pytest.raises(FrontierError, match=message):
        make()


@EXAMPLES
@given(seed=st.integers(0, 10_000), k=st.integers(1, 4))
def test_a_class_that_must_win_makes_the_criterion_stricter(seed, k):
    logits, labels, goals = drawn(seed, 6)
    strict = Aim(TopK(k), labels, goals).gap(logits)
    above = logits > logits.gather(1, labels[:, None])
    wanted = (above.sum(1) >= k) & above.gather(1, goals[:, None]).squeeze(1)
    assert torch.equal(strict < 0, wanted)
    assert (strict >= Aim(TopK(k), labels).gap(logits)).all()
    labels, goals = labels % 5, (labels + 1) % 5
    strict = Aim(Rejecting(), labels, goals).gap(logits)
    best = torch.maximum(logits.gather(1, labels[:, None]).squeeze(1), logits[:, 5])
    assert torch.equal(strict < 0, logits.gather(1, goals[:, None]).squeeze(1) > best)
    assert (strict >= Aim(Rejecting(), labels).gap(logits)).all()
