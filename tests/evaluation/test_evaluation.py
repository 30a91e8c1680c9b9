"""The record of an evaluation: read in another process, by other programs, exported, damaged,
unfinished.
"""

import csv
import gc
import json
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from small_evaluation import LARGER, SMALL, same
from support.faults import failing, noting
from support.models import SHAPE

from advfrontier import Evaluation, FrontierError, evaluate
from advfrontier.report.export import export, parse_formats


def test_saved_record_is_loaded_and_extended_with_the_model(problem, evaluation, longer, tmp_path):
    evaluation.save(tmp_path / "copy")
    with pytest.raises(FrontierError, match="copy/L2 holds a record already"):
        evaluation.save(tmp_path / "copy")
    copy = Evaluation.load(tmp_path / "copy")
    same(copy, evaluation)
    with pytest.raises(FrontierError, match=r"given as an object.*model=model"):
        copy.extend(LARGER)
    copy = copy.extend(LARGER, model=problem[0])
    same(copy, longer)


def test_temporary_record_lives_as_long_as_its_evaluation(problem, tmp_path):
    grown = evaluate(*problem, norm="L2", ensemble="fmn@20").extend("fmn@40", model=problem[0])
    gc.collect()
    assert grown.adversarials.shape == problem[1].shape
    grown.save(tmp_path / "kept")
    place = Path(grown.place)
    del grown
    gc.collect()
    assert not place.exists()
    same(Evaluation.load(tmp_path / "kept"), Evaluation.load(tmp_path / "kept"))


def test_removed_record_cannot_be_saved(problem, tmp_path):
    held = evaluate(*problem, norm="L2", ensemble="fmn@20", out=tmp_path / "r")
    shutil.rmtree(tmp_path / "r")
    with pytest.raises(FrontierError, match="r/L2 is gone: there is nothing to copy"):
        held.save(tmp_path / "kept")


def test_distances_are_read_only(evaluation):
    with pytest.raises(ValueError, match="read-only"):
        evaluation.distances[0] = 1.0


def test_damaged_unit_is_named_and_computed_again(problem, evaluation, tmp_path):
    evaluation.save(tmp_path / "a" / "L2")
    victim = next((tmp_path / "a" / "L2" / "units" / "ensemble").iterdir())
    victim.write_bytes(victim.read_bytes()[:-9])
    with pytest.raises(
        FrontierError,
        match=rf"lacks .*ensemble on samples.*units/ensemble/{victim.name.replace('+', '.')}",
    ):
        Evaluation.load(tmp_path / "a" / "L2").distances  # noqa: B018
    assert victim.exists()  # who only reads removes nothing
    again = evaluate(*problem, norm="L2", ensemble=SMALL, batch_size=4, out=tmp_path / "a" / "L2")
    same(again, evaluation)
    same(Evaluation.load(tmp_path / "a" / "L2"), evaluation)


def test_unit_that_is_damaged_later_is_computed_again(problem, evaluation, tmp_path):
    held = evaluate(*problem, norm="L2", ensemble=SMALL, batch_size=4, out=tmp_path / "a" / "L2")
    victim = next((tmp_path / "a" / "L2" / "units" / "ensemble").iterdir())
    content = bytearray(victim.read_bytes())
    content[-20] ^= 1
    victim.write_bytes(content)
    same(held, evaluation)


def test_unfinished_record_says_how_far_it_is(problem, tmp_path):
    options = {"norm": "L2", "ensemble": SMALL, "batch_size": 4, "out": tmp_path / "a" / "L2"}
    with pytest.raises(
        FrontierError, match=r"1 of 3 units failed.*MemoryError: no room for this one"
    ):
        evaluate(*problem, machine=failing(lambda k, _: k == 1), **options)
    half = Evaluation.load(tmp_path / "a" / "L2")
    assert not half.finished
    for figure in (
        "distances",
        "winners",
        "adversarials",
        "predictions",
        "trajectory",
        "refined_by",
        "found_by_run",
        "counts",
        "queries",
        "flags",
    ):
        with pytest.raises(
            FrontierError, match=r"small \(500 queries per sample\) is not finished: 2 of 3 units"
        ):
            getattr(half, figure)
    evaluate(*problem, machine=noting(tasks := []), **options)
    assert len(tasks) == 1


RELOADED = """
import sys, numpy as np, torch
sys.path.insert(0, {tests!r})
torch.set_num_threads(1)
from support.models import conv_net
from advfrontier import Evaluation
from advfrontier.threat.norms import make_norm
found = Evaluation.load({out!r})
model = conv_net({shape}, classes=10, seed=5)
points, images = found.adversarials, found.images()
broken = found.distances > 0
assert broken.sum() == 10
with torch.no_grad():
    for size in (1, 3, len(points)):
        classes = torch.cat([model(part).argmax(1) for part in points.split(size)])
        assert (classes != found.labels).numpy()[broken].all()
assert points.min() >= 0 and points.max() <= 1
norm = make_norm(found.norm, tuple(images.shape[1:]))
measured = norm.distance(points.double().flatten(1), images.double().flatten(1)).numpy()
assert (measured == found.distances).all()
"""


def test_stored_points_hold_in_a_new_process(evaluation):
    code = RELOADED.format(
        tests=str(Path(__file__).parent.parent), shape=SHAPE, out=evaluation.place
    )
    subprocess.run([sys.executable, "-c", code], check=True)  # noqa: S603


def test_record_is_readable_with_json_and_safetensors_alone(evaluation):
    from safetensors.numpy import load_file  # noqa: PLC0415

    place = Path(evaluation.place)
    record = json.loads((place / "record.json").read_text())
    assert record["terms"]["norm"] == "L2"
    best = np.where(load_file(place / "clean.safetensors")["correct"], np.inf, 0.0)
    correct = load_file(place / "clean.safetensors")["correct"]
    for path in (place / "units").rglob("*.safetensors"):
        first, count = map(int, path.name.split("-")[0].split("+"))
        rows = first + np.flatnonzero(correct[first : first + count])
        best[rows] = np.minimum(best[rows], load_file(path)["trajectory"][-1])
    assert (best == evaluation.distances).all()


@pytest.mark.parametrize("kind", ["csv", "npz", "card"])
def test_exports(evaluation, tmp_path, kind):
    (path,) = export(evaluation, kind, tmp_path / f"table.{kind}", radii=(("0.5", 0.5),))
    if kind == "csv":
        with path.open() as file:
            rows = list(csv.DictReader(file))
        assert [int(row["row"]) for row in rows] == list(range(len(rows)))
        assert [float(row["distance"]) for row in rows] == evaluation.distances.tolist()
        assert [row["winner"] or None for row in rows] == list(evaluation.winners)
    elif kind == "npz":
        with np.load(path, allow_pickle=False) as table:
            assert (table["distance"] == evaluation.distances).all()
            assert (table["adversarials"] == evaluation.adversarials.numpy()).all()
    else:
        card = json.loads(path.read_text())
        assert card["clean_acc"] == "90.91"
        assert card["eps"] == "0.5"
        assert float(card["advfrontier_acc"]) == pytest.approx(
            100 * evaluation.robust_accuracy(0.5), abs=0.01
        )


def test_parquet(evaluation, tmp_path):
    parquet = pytest.importorskip("pyarrow.parquet")
    (path,) = export(evaluation, "parquet", tmp_path / "table.parquet")
    assert parquet.read_table(path).column("distance").to_pylist() == evaluation.distances.tolist()


def test_unknown_exports_are_refused():
    with pytest.raises(
        FrontierError, match=r"cannot export 'xls': expected some of csv, parquet, npz, card"
    ):
        parse_formats("csv,xls")
    assert parse_formats(" csv, latex ,csv") == ("csv", "latex")


def test_stored_images_come_back_in_any_order(problem, evaluation):
    rows = torch.tensor([9, 0, 4, 4, 10, 1, 3, 0])
    assert torch.equal(evaluation.images(rows), problem[1][rows])


def test_samples_are_chosen_by_their_numbers_or_by_a_mask(evaluation):
    mask = torch.zeros(len(evaluation.labels), dtype=torch.bool)
    mask[[1, 4]] = True
    assert torch.equal(evaluation.points(mask), evaluation.points([1, 4]))
    assert len(evaluation.images([])) == 0
    for rows in ([-1], [len(mask)]):
        with pytest.raises(
            FrontierError, match=f"rows from {rows[0]} to {rows[0]}: expected some of 0 to"
        ):
            evaluation.images(rows)


@pytest.mark.parametrize("rows", [3, [0.5], [True, False], [[0, 1]], slice(3)], ids=str)
def test_rows_of_another_type_are_refused(rows, evaluation):
    with pytest.raises(
        FrontierError, match=r"expected numbers of samples, such as .*, or a mask of 11"
    ):
        evaluation.points(rows)


def test_8_bit_images_are_stored_as_bytes(tmp_path, problem):
    from safetensors.torch import load_file  # noqa: PLC0415

    model, images, _ = problem
    images = (images * 255).round() / 255
    done = evaluate(
        model, images, model(images).argmax(1), norm="L2", ensemble=20, out=tmp_path / "a" / "L2"
    )
    stored = load_file(tmp_path / "a" / "L2" / "images" / "00000+011.safetensors")["images"]
    assert stored.dtype == torch.uint8
    assert torch.equal(done.images(), images)


def test_folder_of_norms_says_which_it_holds(problem, tmp_path):
    done = evaluate(*problem, norm="L2", ensemble=100, out=tmp_path / "L2", name="mine")
    assert (Evaluation.load(tmp_path).distances == done.distances).all()
    evaluate(*problem, norm="Linf", ensemble=100, out=tmp_path, name="mine")
    with pytest.raises(
        FrontierError, match=r"holds several norms \(L2, Linf\): open one, such as .*/L2"
    ):
        Evaluation.load(tmp_path)
    assert repr(done) == f"<Evaluation of mine in L2, {len(done.samples)} samples, 100 queries>"
    with pytest.raises(FrontierError, match="2 radii at once: expected one"):
        done.robust_accuracy([0.1, 0.2])
