"""The same call again: on more samples, with workers, after an interruption. Nothing is
repeated.
"""

import shutil
from pathlib import Path

import pytest
import torch
from small_evaluation import SMALL, same
from support.models import SHAPE, Watch, conv_net, samples
from torch import nn

from advfrontier import Evaluation, FrontierError, Machine, evaluate
from advfrontier.evaluation.verify import verify
from advfrontier.flags import Kind
from advfrontier.record import HeaderChange


def test_same_call_again_only_recognises_the_model(problem, evaluation, tmp_path):
    model, images, labels = problem
    options = {"norm": "L2", "ensemble": SMALL, "batch_size": 4, "out": tmp_path / "a" / "L2"}
    evaluation.save(tmp_path / "a" / "L2")
    spent = evaluation.counts
    watch = Watch.on(model)
    two = evaluate(model, images, labels, **options)
    assert watch.total == 11  # one forward pass on each of the few samples that it is recognised by
    assert two.counts == {**spent, "checks": spent["checks"] + 11}
    same(evaluation, two)


def test_same_call_again_with_another_name_renames_the_model(problem, evaluation, tmp_path):
    evaluation.save(tmp_path)
    options = {"norm": "L2", "ensemble": SMALL, "batch_size": 4, "out": tmp_path}
    assert evaluate(*problem, name="mine", **options).model == "mine"
    assert evaluate(*problem, **options).model == "mine"
    same(Evaluation.load(tmp_path), evaluation)


def test_more_samples_are_added_to_the_record(problem, evaluation, tmp_path):
    model, images, labels = problem
    options = {"norm": "L2", "ensemble": SMALL, "batch_size": 4}
    evaluate(model, images[:8], labels[:8], out=tmp_path / "a" / "L2", **options)
    watch = Watch.on(model)
    grown = evaluate(model, images, labels, out=tmp_path / "a" / "L2", **options)
    # The three new ones, and beside their attack a look at the 8 old, their clean pass,
    # verification, noise on all, and the model is tried as it would have been on all at once,
    # also at the points found.
    tried = evaluation.counts["checks"]
    assert watch.total == 3 * SMALL.total + 8 + 6 + 3 + 4 * 10 + tried
    same(grown, evaluation)


class Backwards(nn.Module):
    """Its gradients point away from the boundary, so that noise beats the attacks."""

    def __init__(self):
        super().__init__()
        self.net, self.most = conv_net(SHAPE, classes=10, seed=5), 0

    def forward(self, images):
        self.most = max(self.most, len(images))
        return self.net(2 * images.detach() - images)


@pytest.fixture(scope="module")
def misled():
    model = Backwards()
    return model, *samples(model, 24, SHAPE, seed=5)


MISLED = {"norm": "Linf", "ensemble": "fmn@20", "batch_size": 8}


def is_beaten_by_noise(evaluation):
    return Kind.NOISE in {flag.kind for flag in evaluation.record.header.flags}


def test_noise_is_tested_on_added_samples_in_batches_of_the_same_size(misled, tmp_path):
    model, images, labels = misled
    model.most = 0
    options = MISLED | {"batch_size": 20}  # more than the model is tried on
    assert not is_beaten_by_noise(evaluate(model, images[:1], labels[:1], out=tmp_path, **options))
    assert is_beaten_by_noise(evaluate(model, images, labels, out=tmp_path, **options))
    assert model.most == 20


def test_gradients_are_tested_on_added_samples(tmp_path):
    net = conv_net(SHAPE, classes=10, seed=5)

    def partly(images):
        return torch.where(
            images.flatten(1)[:, :1] > 0.5, net(2 * images.detach() - images), net(images)
        )

    images, labels = samples(net, 24, SHAPE, seed=5)
    order = images.flatten(1)[:, 0].argsort()
    images, labels = images[order], labels[order]
    first = int((images.flatten(1)[:, 0] <= 0.5).sum())
    at_once = evaluate(partly, images, labels, **MISLED)
    assert Kind.MISLEADING_GRADIENTS in {flag.kind for flag in at_once.record.header.flags}
    few = evaluate(partly, images[:first], labels[:first], out=tmp_path, **MISLED)
    assert Kind.MISLEADING_GRADIENTS not in {flag.kind for flag in few.record.header.flags}
    grown = evaluate(partly, images, labels, out=tmp_path, **MISLED)
    assert {flag.kind for flag in grown.record.header.flags} == {
        flag.kind for flag in at_once.record.header.flags
    }
    assert verify(grown, partly, images, labels, rerun=0).holds


@pytest.mark.parametrize(
    ("first", "at"),
    [
        (0, "evaluation.evaluate.noise_check"),
        (8, "evaluation.evaluate.noise_check"),
        (8, "jobs.setup.tidy"),
    ],
    ids=["new", "more samples", "before they are attacked"],
)
def test_noise_is_tested_again_after_an_interruption(first, at, misled, tmp_path, monkeypatch):
    model, images, labels = misled
    if first:
        few = evaluate(model, images[:first], labels[:first], out=tmp_path, **MISLED)
        few.record.change(HeaderChange(set_flags={Kind.NOISE: None}))

    def stopped(*_, **__):
        raise KeyboardInterrupt

    with monkeypatch.context() as here:
        here.setattr(f"advfrontier.{at}", stopped)
        with pytest.raises(KeyboardInterrupt, match=r"^$"):
            evaluate(model, images, labels, out=tmp_path, **MISLED)
    assert not is_beaten_by_noise(Evaluation.load(tmp_path))
    assert is_beaten_by_noise(evaluate(model, images, labels, out=tmp_path, **MISLED))


def test_workers_give_the_same_bits(problem, tmp_path, evaluation):
    script = tmp_path / "net.py"
    script.write_text(
        "import sys\n"
        f"sys.path.insert(0, {str(Path(__file__).parent.parent)!r})\n"
        "from support.models import conv_net\n"
        f"def net():\n    return conv_net({SHAPE}, classes=10, seed=5)\n"
    )
    _, images, labels = problem
    options = {
        "norm": "L2",
        "ensemble": SMALL,
        "batch_size": 4,
        "machine": Machine(threads=1, workers=2),
    }
    parallel = evaluate(f"{script}:net", images, labels, out=tmp_path / "a" / "L2", **options)
    same(parallel, evaluation)
    assert parallel.counts == {
        **evaluation.counts,
        "checks": evaluation.counts["checks"] + 2 * 11,
    }  # one per worker


def refusals():
    other = conv_net(SHAPE, classes=10, seed=6)
    return [
        ("another model: Sequential", lambda _, x, y: (other, x, y), {}),
        ("another seed: 42, not 7", lambda m, x, y: (m, x, y), {"seed": 7}),
        (
            "another norm: L2, not Linf",
            lambda m, x, y: (m, x, y),
            {"norm": "Linf", "ensemble": "4k"},
        ),
        ("another batch size: 4, not 5", lambda m, x, y: (m, x, y), {"batch_size": 5}),
        ("11 other samples", lambda m, x, y: (m, 1 - x, y), {}),
        ("11 other samples", lambda m, x, y: (m, x, (y + 1) % 10), {}),
        ("11 other samples.*10 were given", lambda m, x, y: (m, x[:10], y[:10]), {}),
    ]


@pytest.mark.parametrize(("message", "change", "options"), refusals())
def test_record_of_something_else_is_refused(problem, evaluation, message, change, options):
    before = {path: path.stat().st_mtime_ns for path in Path(evaluation.place).rglob("*")}
    asked = {"norm": "L2", "ensemble": SMALL, "batch_size": 4, "out": evaluation.place} | options
    with pytest.raises(FrontierError, match=message):
        evaluate(*change(*problem), **asked)
    assert {path: path.stat().st_mtime_ns for path in Path(evaluation.place).rglob("*")} == before


def test_folder_that_was_removed_starts_anew(problem, evaluation, tmp_path):
    model, images, labels = problem
    other = conv_net(SHAPE, classes=10, seed=6)
    options = {"norm": "L2", "ensemble": SMALL, "batch_size": 4}
    evaluate(  # noqa: B018
        other, 1 - images, other(1 - images).argmax(1), out=tmp_path / "a" / "L2", **options
    ).adversarials
    shutil.rmtree(tmp_path / "a" / "L2")
    same(evaluate(model, images, labels, out=tmp_path / "a" / "L2", **options), evaluation)


def test_smaller_ensemble_is_refused(problem, evaluation):
    with pytest.raises(FrontierError, match="does not contain all of their steps"):
        evaluate(*problem, norm="L2", ensemble=SMALL.at(100), batch_size=4, out=evaluation.place)
