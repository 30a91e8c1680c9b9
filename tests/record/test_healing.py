"""Files of another record are named, and done again; what is damaged is healed where that is
possible.
"""

import shutil

import pytest
import torch
from record_cases import LARGER, OPTIONS, refused, same
from support.models import SHAPE, conv_net

from advfrontier import Evaluation, FrontierError, Machine, evaluate


def test_units_without_their_record_are_refused(problem, tmp_path):
    evaluate(*problem, out=tmp_path / "a" / "L2", **OPTIONS)
    (tmp_path / "a" / "L2" / "record.json").unlink()
    other = conv_net(SHAPE, classes=10, seed=6)
    refused(
        r"holds clean.safetensors and 2 more, but no record\.json: expected an empty folder",
        tmp_path / "a" / "L2",
        lambda: evaluate(other, *problem[1:], out=tmp_path / "a" / "L2", **OPTIONS),
    )


def foreign(problem):
    model, images, labels = problem
    other = conv_net(SHAPE, classes=10, seed=6)
    return {
        "another model": ((other, images, other(images).argmax(1)), {}),
        "other images": ((model, 1 - images, model(1 - images).argmax(1)), {}),
        "another seed": (problem, {"seed": 7}),
        "another precision": (
            (conv_net(SHAPE, classes=10, seed=5).double(), images, labels),
            {"machine": Machine(dtype="float64")},
        ),
    }


@pytest.mark.parametrize(
    "what", ["another model", "other images", "another seed", "another precision"]
)
def test_a_unit_of_another_record_is_named_and_done_again(problem, tmp_path, what):
    own = evaluate(*problem, out=tmp_path / "a" / "L2", **OPTIONS)
    arguments, options = foreign(problem)[what]
    evaluate(*arguments, out=tmp_path / "b" / "L2", **OPTIONS, **options)
    file = "units/ensemble/00004+004-0040.safetensors"
    right = (tmp_path / "a" / "L2" / file).read_bytes()
    shutil.copy(tmp_path / "b" / "L2" / file, tmp_path / "a" / "L2" / file)
    refused(
        r"lacks the ensemble on samples 4–7 .*00004.004-0040\.safetensors belongs to another record",
        tmp_path / "a" / "L2",
        lambda: Evaluation.load(tmp_path / "a" / "L2").distances,
    )
    same(evaluate(*problem, out=tmp_path / "a" / "L2", **OPTIONS), evaluate(*problem, **OPTIONS))
    assert len((tmp_path / "a" / "L2" / file).read_bytes()) == len(right)
    same(Evaluation.load(tmp_path / "a" / "L2"), own)


def test_a_unit_of_another_record_is_not_gone_on_with(problem, tmp_path):
    other = conv_net(SHAPE, classes=10, seed=6)
    held = evaluate(*problem, out=tmp_path / "a" / "L2", **OPTIONS)
    evaluate(other, problem[1], other(problem[1]).argmax(1), out=tmp_path / "b" / "L2", **OPTIONS)
    for path in (tmp_path / "b" / "L2" / "units").rglob("*.safetensors"):
        shutil.copy(path, tmp_path / "a" / "L2" / path.relative_to(tmp_path / "b" / "L2"))
    same(held.extend(LARGER), evaluate(*problem, **OPTIONS | {"ensemble": LARGER}))


@pytest.mark.parametrize("damage", ["lost", "cut", "changed", "of another record"])
def test_images_that_are_damaged_are_healed_when_the_images_are_at_hand(problem, tmp_path, damage):
    model, pixels, labels = problem
    evaluate(*problem, out=tmp_path / "a" / "L2", **OPTIONS)
    evaluate(model, 1 - pixels, labels, out=tmp_path / "b" / "L2", **OPTIONS)
    victim = tmp_path / "a" / "L2" / "images" / "00004+004.safetensors"
    right = victim.read_bytes()
    if damage == "lost":
        victim.unlink()
    elif damage == "cut":
        victim.write_bytes(right[:-7])
    elif damage == "changed":
        victim.write_bytes(right[:-7] + bytes([right[-7] ^ 1]) + right[-6:])
    else:
        shutil.copy(tmp_path / "b" / "L2" / "images" / victim.name, victim)
    with pytest.raises(
        FrontierError, match=r"does not hold the images of samples 4–7|gives other images"
    ):
        Evaluation.load(tmp_path / "a" / "L2").adversarials  # noqa: B018
    evaluate(*problem, out=tmp_path / "a" / "L2", **OPTIONS)
    assert victim.stat().st_size == len(right)
    assert torch.equal(Evaluation.load(tmp_path / "a" / "L2").images(), pixels)


def test_a_clean_pass_of_another_record_is_not_taken_for_its_own(problem, tmp_path):
    model, pixels, _ = problem
    own = evaluate(*problem, out=tmp_path / "a" / "L2", **OPTIONS)
    evaluate(model, 1 - pixels, model(1 - pixels).argmax(1), out=tmp_path / "b" / "L2", **OPTIONS)
    shutil.copy(
        tmp_path / "b" / "L2" / "clean.safetensors", tmp_path / "a" / "L2" / "clean.safetensors"
    )
    with pytest.raises(FrontierError, match=r"lacks its clean pass .*belongs to another record"):
        Evaluation.load(tmp_path / "a" / "L2").distances  # noqa: B018
    same(evaluate(*problem, out=tmp_path / "a" / "L2", **OPTIONS), own)


def test_points_that_are_damaged_are_done_again_once_their_file_is_removed(problem, tmp_path):
    done = evaluate(*problem, out=tmp_path, **OPTIONS)
    unit = min(done.record.units())
    file, before = tmp_path / "L2" / unit.file(40), done.adversarials
    content = file.read_bytes()
    points = done.record.read_unit(unit, 40).best_point.numpy().tobytes()
    file.write_bytes(content.replace(points, points[::-1]))
    evaluate(*problem, out=tmp_path, **OPTIONS)  # which reads no points
    with pytest.raises(
        FrontierError, match=r"checksum of best_point.*; remove that file; to resume, repeat"
    ):
        _ = Evaluation.load(tmp_path).adversarials
    file.unlink()
    evaluate(*problem, out=tmp_path, **OPTIONS)
    assert torch.equal(Evaluation.load(tmp_path).adversarials, before)
