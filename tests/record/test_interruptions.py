"""Evaluations and extensions that were interrupted: what they show, and how they go on."""

import time

import pytest
import torch
from record_cases import LARGER, OPTIONS, SMALL, same
from support.faults import interrupted
from support.models import Watch

from advfrontier import Evaluation, FrontierError, Machine, certify, evaluate
from advfrontier.command import typed
from advfrontier.errors import Unfinished
from advfrontier.execution import Outcome
from advfrontier.execution.tasks import attempt
from advfrontier.flags import Kind
from advfrontier.record import Record


@pytest.mark.parametrize("after", [0, 1])
def test_an_interrupted_extend_shows_the_tier_before_and_goes_on(problem, tmp_path, after):
    model, images, labels = problem
    watch = Watch.on(model)
    held = evaluate(model, images, labels, out=tmp_path / "a" / "L2", **OPTIONS)
    before = held.distances
    with typed("advfrontier extend a --tier 8k"), pytest.raises(KeyboardInterrupt, match=r"^$"):
        held.extend(LARGER, machine=interrupted(after))
    half = Evaluation.load(tmp_path / "a" / "L2")
    assert not half.finished
    assert half.ensemble == SMALL
    assert half.distances.tobytes() == before.tobytes()
    (flag,) = half.flags
    assert flag.kind == Kind.INTERRUPTED
    assert not flag.doubtful
    assert (
        f"to 100 queries was interrupted ({after} of 2 units are done). Distances and curves are "
        "those of the first 40 queries" in flag.text
    )
    assert (
        "their classes and the distances of each run may be those of units that went further"
        in flag.text
    )
    assert "to resume, type advfrontier extend a --tier 8k" in flag.text
    with torch.no_grad():  # the points may be nearer by now, and are misclassified all the same
        assert (model(half.adversarials).argmax(1) != labels).all()
    whole = half.extend(LARGER, model=model)
    assert whole.finished
    assert whole.flags == ()
    assert whole.counts["attack"] == 8 * LARGER.total
    assert watch.total - 8 == sum(whole.counts.values())  # the points were looked at above
    same(whole, evaluate(*problem, **OPTIONS | {"ensemble": LARGER}))
    assert (whole.distances <= before).all()


def test_an_interrupted_extend_also_goes_on_by_evaluating_further(problem, tmp_path):
    evaluate(*problem, out=tmp_path / "a" / "L2", **OPTIONS)
    with pytest.raises(KeyboardInterrupt, match=r"^$"):
        Evaluation.load(tmp_path / "a" / "L2").extend(
            LARGER, model=problem[0], machine=interrupted(1)
        )
    with pytest.raises(
        FrontierError,
        match=r"holds 100 queries per sample of larger, unfinished \(to resume, repeat the same "
        r"call\), and small with 40 does not contain all of their steps",
    ):
        evaluate(*problem, out=tmp_path / "a" / "L2", **OPTIONS)
    done = evaluate(*problem, out=tmp_path / "a" / "L2", **OPTIONS | {"ensemble": LARGER})
    same(done, evaluate(*problem, **OPTIONS | {"ensemble": LARGER}))


def test_an_extend_that_did_nothing_yet_can_be_taken_back(problem, tmp_path):
    held = evaluate(*problem, out=tmp_path / "a" / "L2", **OPTIONS)
    with pytest.raises(KeyboardInterrupt, match=r"^$"):
        held.extend(LARGER, machine=interrupted(0))
    same(evaluate(*problem, out=tmp_path / "a" / "L2", **OPTIONS), evaluate(*problem, **OPTIONS))
    assert Evaluation.load(tmp_path / "a" / "L2").ensemble == SMALL


def test_more_samples_that_were_interrupted_are_no_extension_of_queries(problem, tmp_path):
    model, images, labels = problem
    evaluate(model, images[:4], labels[:4], out=tmp_path, **OPTIONS)
    with pytest.raises(KeyboardInterrupt, match=r"^$"):
        evaluate(model, images, labels, out=tmp_path, machine=interrupted(0), **OPTIONS)
    half = Evaluation.load(tmp_path)
    with pytest.raises(
        FrontierError, match=r"\(40 queries per sample\) is not finished: 1 of 2 units are done"
    ):
        half.distances  # noqa: B018
    same(evaluate(*problem, out=tmp_path, **OPTIONS), evaluate(*problem, **OPTIONS))


def test_certifying_what_was_interrupted_leaves_the_command_that_resumes_last(problem, tmp_path):
    model, images, labels = problem
    with typed("advfrontier evaluate net"):
        held = evaluate(model, images[:2], labels[:2], out=tmp_path, **OPTIONS)
    with typed("advfrontier extend a"), pytest.raises(KeyboardInterrupt, match=r"^$"):
        held.extend(LARGER, machine=interrupted(0))
    with typed("advfrontier certify a"):
        certify(Evaluation.load(tmp_path), model=model)
    half = Evaluation.load(tmp_path)
    assert half.commands == (
        "advfrontier evaluate net",
        "advfrontier certify a",
        "advfrontier extend a",
    )
    assert half.flags[-1].text.endswith("to resume, type advfrontier extend a")
    with typed("advfrontier extend a"):
        half.extend(LARGER, model=model)
    with typed("advfrontier certify a -f"):
        certify(Evaluation.load(tmp_path), model=model)
    assert Evaluation.load(tmp_path).commands[-1] == "advfrontier certify a -f"


def test_all_commands_that_made_a_record_are_kept(problem, tmp_path):
    with typed("advfrontier evaluate"):
        held = evaluate(*problem, out=tmp_path / "a" / "L2", **OPTIONS)
    with typed("advfrontier extend a"):
        held.extend(LARGER)
        again = Evaluation.load(tmp_path / "a" / "L2").extend(LARGER, model=problem[0])
    assert again.commands == ("advfrontier evaluate", "advfrontier extend a")


def test_an_interrupted_evaluate_says_its_command(problem, tmp_path):
    with typed("advfrontier evaluate net"), pytest.raises(KeyboardInterrupt, match=r"^$"):
        evaluate(*problem, out=tmp_path / "a" / "L2", machine=interrupted(1), **OPTIONS)
    with pytest.raises(
        FrontierError, match="1 of 2 units are done; to resume, type advfrontier evaluate net"
    ):
        Evaluation.load(tmp_path / "a" / "L2").aurec()
    evaluate(*problem, out=tmp_path / "a" / "L2", **OPTIONS)
    assert Evaluation.load(tmp_path / "a" / "L2").commands == ("advfrontier evaluate net",)


def test_points_of_a_record_that_was_extended_meanwhile_are_not_shown_for_the_shorter_ones(
    problem, tmp_path
):
    evaluate(*problem, out=tmp_path / "a" / "L2", **OPTIONS)
    reader = Evaluation.load(tmp_path / "a" / "L2")
    expected = reader.distances
    reader = Evaluation.load(tmp_path / "a" / "L2")
    Evaluation.load(tmp_path / "a" / "L2").extend(LARGER, model=problem[0])
    assert (reader.distances == expected).all()  # a prefix of what is there now
    with pytest.raises(FrontierError, match="was extended since it was opened"):
        reader.adversarials  # noqa: B018


def test_units_that_were_not_begun_in_time_are_not_called_stored(problem, tmp_path):
    machine = Machine(
        until=0.0, executor=lambda _, tasks: iter([Outcome(tasks[0], None, "no room")])
    )
    with pytest.raises(
        FrontierError, match=r"1 of 2 units failed, and what was done is stored.*no room"
    ):
        evaluate(*problem, out=tmp_path, machine=machine, **OPTIONS)


def test_units_that_another_clock_has_stopped_are_not_taken_for_finished(problem, tmp_path):
    machine = Machine(
        until=time.time() + 9999, executor=lambda work, tasks: iter([attempt(work, tasks[0])])
    )
    with pytest.raises(Unfinished, match="time is up"):
        evaluate(*problem, out=tmp_path, machine=machine, **OPTIONS)
    assert Record.find(tmp_path / "L2").header.finished is None
