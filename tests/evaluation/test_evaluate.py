"""Evaluating: what comes back, what is stored, and that stopping and going on changes nothing."""

import csv
import json
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from support.faults import failing, noting
from support.models import SHAPE, Watch, conv_net, conv_problem, samples
from torch import nn

from advfrontier import Ensemble, Evaluation, FrontierError, Machine, compare, evaluate, rank
from advfrontier.autoattack_api import AutoAttack
from advfrontier.frontier.trajectories import Trajectories
from advfrontier.pool import find_ensemble, paper_ensemble
from advfrontier.report.export import export, parse_formats
from advfrontier.threat.norms import get_norm

SMALL = Ensemble.of("small", "L2", {"fmn": 200, "ddn": 100, "alma": 60, "fmn:restart1": 100, "ddn:target1": 40})
LARGER = Ensemble.of("larger", "L2", {**SMALL.queries, "fmn": 300, "ddn": 1000, "apgd_min-ce": 50, "ddn:target1": 90})


@pytest.fixture(scope="module")
def problem():
    return conv_problem(11, wrong=4)


@pytest.fixture(scope="module")
def evaluation(problem, tmp_path_factory):
    return evaluate(*problem, norm="l2", ensemble=SMALL, batch_size=4, out=tmp_path_factory.mktemp("run") / "a")


def same(one, two):
    assert (one.distances == two.distances).all()
    assert torch.equal(one.adversarials, two.adversarials)
    assert one.winners == two.winners
    for run, table in one.trajectories.items():
        assert (table == two.trajectories[run]).all()


def test_what_comes_back(problem, evaluation):
    model, images, labels = problem
    assert evaluation.norm == "L2"
    assert evaluation.distances.shape == (11,)
    assert evaluation.distances[4] == 0
    assert evaluation.winners[4] is None
    assert np.isfinite(evaluation.distances).all()
    assert set(evaluation.winners) <= {*SMALL.runs, None}
    assert evaluation.queries.tolist() == [0 if row == 4 else SMALL.total for row in range(11)]
    assert evaluation.counts == {"checks": 11 * 8 + 6, "setup": 22, "attack": 10 * SMALL.total, "verification": 90}
    assert torch.equal(evaluation.originals, images)
    points = evaluation.adversarials
    assert points.min() >= 0
    assert points.max() <= 1
    assert torch.equal(points[4], images[4])
    measured = get_norm("L2").distance(points.double().flatten(1), images.double().flatten(1)).numpy()
    assert (measured == evaluation.distances).all()
    with torch.no_grad():
        assert torch.equal(model(points).argmax(1), evaluation.predictions)
    assert (evaluation.predictions != labels).all()
    assert evaluation.robust_accuracy(0) == 10 / 11
    assert evaluation.curve().at(evaluation.distances.max()) == 0
    assert evaluation.aurec().value == pytest.approx(evaluation.distances.mean())
    assert evaluation.flags == ()


def test_the_minimum_over_the_runs_and_who_found_it(evaluation):
    finals = {run: table[-1] for run, table in evaluation.trajectories.items()}
    assert (np.min(list(finals.values()), axis=0) == evaluation.distances).all()
    for row, winner in enumerate(evaluation.winners):
        assert winner is None or finals[winner][row] == evaluation.distances[row]


def test_a_prefix_of_the_budget_is_what_a_smaller_budget_finds(problem, evaluation):
    for budget in (100, 200, 330, SMALL.total):
        smaller = evaluate(*problem, norm="L2", ensemble=SMALL.at(budget), batch_size=4)
        assert smaller.ensemble.total == budget
        assert (smaller.distances == evaluation.distances_at(budget)).all()


def test_extending_equals_running_at_once_and_repeats_no_query(problem, tmp_path):
    model, images, labels = problem
    watch = Watch.on(model)
    short = evaluate(model, images, labels, norm="L2", ensemble=SMALL, batch_size=4, out=tmp_path / "a" / "L2")
    first = watch.total
    short = short.extend(LARGER)
    spent = short.counts
    assert watch.total == sum(spent.values())
    assert spent["attack"] == 10 * LARGER.total
    assert watch.total - first == 10 * (LARGER.total - SMALL.total) + spent["verification"] - 90
    long = evaluate(model, images, labels, norm="L2", ensemble=LARGER, batch_size=4)
    same(short, long)
    same(Evaluation.load(tmp_path / "a" / "L2"), long)
    assert short.ensemble == LARGER


@pytest.mark.parametrize("norm", ["Linf", *(pytest.param(norm, marks=pytest.mark.slow) for norm in ("L0", "L1", "L2"))])
def test_the_three_tiers_extended_equal_the_largest_at_once(norm, tmp_path):
    model = conv_net((1, 4, 4), classes=10, seed=2)
    images, labels = samples(model, 2, (1, 4, 4), seed=2)
    watch = Watch.on(model)
    grown = evaluate(model, images, labels, norm=norm, ensemble="4k", out=tmp_path / "a" / "L2")
    grown = grown.extend("8k").extend("12k")
    others = sum(grown.counts[key] for key in ("checks", "setup", "verification"))
    assert watch.total - others == 2 * 12_000
    assert grown.counts["attack"] == 2 * 12_000
    same(grown, evaluate(model, images, labels, norm=norm, ensemble="12k"))


def test_fewer_classes_have_fewer_targets_and_the_total_says_so(tmp_path):
    model = conv_net((1, 4, 4), classes=2, seed=2)
    images, labels = samples(model, 3, (1, 4, 4), seed=2)
    watch = Watch.on(model)
    evaluation = evaluate(model, images, labels, norm="L2", ensemble="paper-8k")
    expected = paper_ensemble("paper-8k", "L2", classes=2).total
    assert evaluation.ensemble.total == expected < 8000
    assert evaluation.counts["attack"] == 3 * expected
    assert watch.total == sum(evaluation.counts.values())


def test_without_states_extension_replays_to_the_same_result(problem, tmp_path):
    short = evaluate(*problem, norm="L2", ensemble=SMALL, batch_size=4, out=tmp_path / "a" / "L2",
                     machine=Machine(keep_state=False))  # fmt: skip
    for unit, queries in short.record.units().items():
        assert not [name for name in short.record.read_unit(unit, queries).tensors if name.startswith("state.")]
    short = short.extend(LARGER)
    same(short, evaluate(*problem, norm="L2", ensemble=LARGER, batch_size=4))
    assert short.counts["attack"] > 10 * LARGER.total  # what was repeated is counted


def test_the_same_call_again_spends_nothing_but_a_look_at_the_model(problem, tmp_path):
    model, images, labels = problem
    options = {"norm": "L2", "ensemble": SMALL, "batch_size": 4, "out": tmp_path / "a" / "L2"}
    one = evaluate(model, images, labels, **options)
    watch = Watch.on(model)
    two = evaluate(model, images, labels, **options)
    assert watch.total == 11  # one forward pass on each of the few samples that it is recognised by
    assert two.counts == {**one.counts, "checks": one.counts["checks"] + 11}
    same(one, two)


def test_more_samples_after_the_same_first_ones_are_added(problem, tmp_path):
    model, images, labels = problem
    options = {"norm": "L2", "ensemble": SMALL, "batch_size": 4}
    evaluate(model, images[:8], labels[:8], out=tmp_path / "a" / "L2", **options)
    watch = Watch.on(model)
    grown = evaluate(model, images, labels, out=tmp_path / "a" / "L2", **options)
    # The three new ones, and beside their attack a look at the 8 old, their clean pass, and verification.
    assert watch.total == 3 * SMALL.total + 8 + 6 + 3 * len(SMALL.runs)
    same(grown, evaluate(model, images, labels, **options))


def test_two_workers_give_the_same_bits(problem, tmp_path, evaluation):
    script = tmp_path / "net.py"
    script.write_text(
        "import sys\n"
        f"sys.path.insert(0, {str(Path(__file__).parent.parent)!r})\n"
        "from support.models import conv_net\n"
        f"def net():\n    return conv_net({SHAPE}, classes=10, seed=5)\n"
    )
    _, images, labels = problem
    options = {"norm": "L2", "ensemble": SMALL, "batch_size": 4, "machine": Machine(threads=1, workers=2)}
    parallel = evaluate(f"{script}:net", images, labels, out=tmp_path / "a" / "L2", **options)
    same(parallel, evaluation)
    assert parallel.counts == {**evaluation.counts, "checks": evaluation.counts["checks"] + 2 * 11}  # one per worker


def refusals():
    other = conv_net(SHAPE, classes=10, seed=6)
    return [
        ("another model: Sequential", lambda _, x, y: (other, x, y), {}),
        ("another seed: 42, not 7", lambda m, x, y: (m, x, y), {"seed": 7}),
        ("another norm: L2, not Linf", lambda m, x, y: (m, x, y), {"norm": "Linf", "ensemble": "4k"}),
        ("another batch size: 4, not 5", lambda m, x, y: (m, x, y), {"batch_size": 5}),
        ("11 other samples", lambda m, x, y: (m, 1 - x, y), {}),
        ("11 other samples", lambda m, x, y: (m, x, (y + 1) % 10), {}),
        ("11 other samples.*10 were given", lambda m, x, y: (m, x[:10], y[:10]), {}),
    ]


@pytest.mark.parametrize(("message", "change", "options"), refusals())
def test_a_record_of_something_else_is_refused(problem, evaluation, message, change, options):
    before = {path: path.stat().st_mtime_ns for path in Path(evaluation.place).rglob("*")}
    asked = {"norm": "L2", "ensemble": SMALL, "batch_size": 4, "out": evaluation.place} | options
    with pytest.raises(FrontierError, match=message):
        evaluate(*change(*problem), **asked)
    assert {path: path.stat().st_mtime_ns for path in Path(evaluation.place).rglob("*")} == before


def test_a_folder_that_is_removed_and_used_again_starts_afresh(problem, tmp_path):
    model, images, labels = problem
    other = conv_net(SHAPE, classes=10, seed=6)
    options = {"norm": "L2", "ensemble": SMALL, "batch_size": 4}
    evaluate(other, 1 - images, other(1 - images).argmax(1), out=tmp_path / "a" / "L2", **options).adversarials  # noqa: B018
    shutil.rmtree(tmp_path / "a" / "L2")
    same(
        evaluate(model, images, labels, out=tmp_path / "a" / "L2", **options),
        evaluate(model, images, labels, **options),
    )


def test_an_ensemble_that_does_not_go_further_is_refused(problem, evaluation):
    with pytest.raises(FrontierError, match="expected an ensemble that goes further"):
        evaluate(*problem, norm="L2", ensemble=SMALL.at(100), batch_size=4, out=evaluation.place)


def test_a_record_can_be_saved_loaded_and_extended_with_the_model(problem, evaluation, tmp_path):
    evaluation.save(tmp_path / "copy")
    with pytest.raises(FrontierError, match="a record is never started among other files"):
        evaluation.save(tmp_path / "copy")
    copy = Evaluation.load(tmp_path / "copy")
    same(copy, evaluation)
    with pytest.raises(FrontierError, match=r"given as an object.*model=model"):
        copy.extend(LARGER)
    copy = copy.extend(LARGER, model=problem[0])
    same(copy, evaluate(*problem, norm="L2", ensemble=LARGER, batch_size=4))


def test_a_damaged_unit_is_named_and_computed_again(problem, evaluation, tmp_path):
    evaluation.save(tmp_path / "a" / "L2")
    victim = next((tmp_path / "a" / "L2" / "units" / "ddn").iterdir())
    victim.write_bytes(victim.read_bytes()[:-9])
    with pytest.raises(FrontierError, match=rf"lacks ddn on samples.*units/ddn/{victim.name.replace('+', '.')}"):
        Evaluation.load(tmp_path / "a" / "L2").distances  # noqa: B018
    assert victim.exists()  # who only reads removes nothing
    again = evaluate(*problem, norm="L2", ensemble=SMALL, batch_size=4, out=tmp_path / "a" / "L2")
    same(again, evaluation)
    same(Evaluation.load(tmp_path / "a" / "L2"), evaluation)


def test_a_unit_damaged_under_the_hands_of_an_evaluation_is_done_again(problem, tmp_path):
    held = evaluate(*problem, norm="L2", ensemble=SMALL, batch_size=4, out=tmp_path / "a" / "L2")
    victim = next((tmp_path / "a" / "L2" / "units" / "fmn").iterdir())
    content = bytearray(victim.read_bytes())
    content[-20] ^= 1
    victim.write_bytes(content)
    same(held, evaluate(*problem, norm="L2", ensemble=SMALL, batch_size=4))


def test_an_unfinished_record_says_how_far_it_is(problem, tmp_path):
    options = {"norm": "L2", "ensemble": SMALL, "batch_size": 4, "out": tmp_path / "a" / "L2"}
    with pytest.raises(FrontierError, match=r"1 of 15 units failed.*MemoryError: no room for this one"):
        evaluate(*problem, machine=failing(lambda k, _: k == 3), **options)
    half = Evaluation.load(tmp_path / "a" / "L2")
    assert not half.finished
    for figure in ("distances", "winners", "adversarials", "predictions", "trajectories", "counts", "queries", "flags"):
        with pytest.raises(FrontierError, match=r"small \(500 queries per sample\) is not finished: 14 of 15 units"):
            getattr(half, figure)
    evaluate(*problem, machine=noting(tasks := []), **options)
    assert len(tasks) == 1


RELOADED = """
import sys, numpy as np, torch
sys.path.insert(0, {tests!r})
torch.set_num_threads(1)
from support.models import conv_net
from advfrontier import Evaluation
from advfrontier.threat.norms import get_norm
found = Evaluation.load({out!r})
model = conv_net({shape}, classes=10, seed=5)
points, images = found.adversarials, found.originals
broken = found.distances > 0
assert broken.sum() == 10
with torch.no_grad():
    for size in (1, 3, len(points)):
        classes = torch.cat([model(part).argmax(1) for part in points.split(size)])
        assert (classes != found.labels).numpy()[broken].all()
assert points.min() >= 0 and points.max() <= 1
measured = get_norm(found.norm).distance(points.double().flatten(1), images.double().flatten(1)).numpy()
assert (measured == found.distances).all()
"""


def test_every_stored_point_is_what_the_record_says_in_a_new_process(evaluation):
    code = RELOADED.format(tests=str(Path(__file__).parent.parent), shape=SHAPE, out=evaluation.place)
    subprocess.run([sys.executable, "-c", code], check=True)  # noqa: S603


def test_a_record_can_be_read_with_json_and_safetensors_alone(evaluation):
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


def test_any_budget_works(problem):
    evaluation = evaluate(*problem, norm="Linf", ensemble=2500)
    assert evaluation.ensemble.total == 2500
    assert evaluation.counts["attack"] == 25_000


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ("13k", "13000 queries are more than the largest tier: expected at most 12000"),
        ("many", "many: no such ensemble or run: expected a budget such as 4k or 6500, a kind"),
        ("4x", "'4x' is not a budget"),
        (["fmn", "ddn"], "ddn does not run in Linf"),
        ("square_min@5", "5 queries are too few to run anything"),
        ("nowhere.toml", "no ensemble file nowhere.toml"),
        ("paper-13k", "13000 queries are more than the largest tier"),
        (SMALL, "ensemble small is for L2, the evaluation in Linf"),
    ],
)
def test_ensembles_that_are_refused(asked, message):
    with pytest.raises(FrontierError, match=message):
        find_ensemble(asked, "Linf", 10)


def test_runs_take_turns_so_that_a_smaller_budget_is_shared_and_contained():
    whole = find_ensemble(["fmn", "ddn"], "L2", 10)
    assert (whole.name, whole.queries) == ("runs", {"fmn": 1000, "ddn": 1000})
    small, larger = find_ensemble("fmn,ddn@300", "L2", 10), find_ensemble("fmn,ddn@500", "L2", 10)
    assert (small.queries, larger.queries) == ({"fmn": 200, "ddn": 100}, {"fmn": 300, "ddn": 200})
    assert larger.contains(small)
    assert set(find_ensemble("black-box", "L0", 10).queries) == {
        "sparse_min",
        *(f"sparse_min:restart{k}" for k in range(1, 6)),
    }


def test_an_ensemble_file(tmp_path):
    SMALL.save(tmp_path / "small.toml")
    assert find_ensemble(str(tmp_path / "small.toml"), "L2", 10) == SMALL


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
        assert float(card["advfrontier_acc"]) == pytest.approx(100 * evaluation.robust_accuracy(0.5), abs=0.01)


def test_parquet(evaluation, tmp_path):
    parquet = pytest.importorskip("pyarrow.parquet")
    (path,) = export(evaluation, "parquet", tmp_path / "table.parquet")
    assert parquet.read_table(path).column("distance").to_pylist() == evaluation.distances.tolist()


def test_exports_that_do_not_exist():
    with pytest.raises(FrontierError, match=r"cannot export 'xls': expected some of csv, parquet, npz, card"):
        parse_formats("csv,xls")
    assert parse_formats(" csv, latex ,csv") == ("csv", "latex")


def test_comparing_and_ranking_evaluations(problem, evaluation):
    _, images, labels = problem
    other = nn.Sequential(problem[0], nn.Identity())
    weaker = evaluate(other, images, labels, norm="L2", ensemble=LARGER, batch_size=4, name="weaker")
    result = compare(evaluation, weaker)
    assert result.lower in ("weaker", None)
    assert (weaker.distances <= evaluation.distances).all()
    if (weaker.distances < evaluation.distances).any():
        assert result.lower == "weaker"
    with pytest.raises(FrontierError, match="Sequential was evaluated in L1, weaker in L2"):
        compare(evaluate(*problem, norm="L1", ensemble=100), weaker)
    assert [row.model for row in rank([evaluation]).norms[0].rows] == ["Sequential"]


def test_the_door_for_users_of_autoattack(problem, capsys):
    model, images, labels = problem
    whole = evaluate(model, images, labels, norm="Linf", ensemble="4k", batch_size=250)
    eps = float(np.median(whole.distances[whole.distances > 0]))
    adversary = AutoAttack(model, norm="Linf", eps=eps, version="standard")
    points, classes = adversary.run_standard_evaluation(images, labels, bs=250, return_labels=True)
    assert ((points - images).abs().flatten(1).amax(1) <= eps * (1 + 1e-6)).all()
    with torch.no_grad():
        assert torch.equal(model(points).argmax(1), classes)
    assert int((classes == labels).sum()) == int((whole.distances > eps).sum())
    assert f"robust accuracy at Linf {eps:g}" in capsys.readouterr().out
    assert adversary.clean_accuracy(images, labels) == 10 / 11
    single = AutoAttack(model, "Linf", eps, verbose=False).run_standard_evaluation_individual(images, labels)
    paper = evaluate(model, images, labels, norm="Linf", ensemble="paper-4k", batch_size=250)
    assert set(single) == set(paper.ensemble.runs)
    best = torch.stack([(model(p).argmax(1) != labels) for p in single.values()]).any(0)
    assert best.tolist() == (paper.distances <= eps).tolist()
    with pytest.raises(FrontierError, match="version 'ranked'"):
        AutoAttack(model, version="ranked")


def test_trajectories_of_an_evaluation_obey_the_rules(evaluation):
    for run, table in evaluation.trajectories.items():
        Trajectories((run,), np.arange(10, 10 * len(table) + 1, 10), table[None], evaluation.samples, "L2")


def test_stored_images_come_back_in_any_order(problem, evaluation):
    rows = torch.tensor([9, 0, 4, 4, 10, 1, 3, 0])
    assert torch.equal(evaluation.images(rows), problem[1][rows])


def test_images_of_eight_bits_are_stored_as_bytes(tmp_path, problem):
    from safetensors.torch import load_file  # noqa: PLC0415

    model, images, _ = problem
    images = (images * 255).round() / 255
    done = evaluate(model, images, model(images).argmax(1), norm="L2", ensemble=20, out=tmp_path / "a" / "L2")
    stored = load_file(tmp_path / "a" / "L2" / "images" / "00000+011.safetensors")["images"]
    assert stored.dtype == torch.uint8
    assert torch.equal(done.originals, images)


def test_a_budget_that_runs_nothing_is_refused_before_anything_is_written(problem, tmp_path):
    with pytest.raises(FrontierError, match="5 queries are too few to run anything: expected at least 10"):
        evaluate(*problem, norm="L2", ensemble=5, out=tmp_path / "r")
    assert not (tmp_path / "r").exists()


def test_a_folder_of_norms_says_which_it_holds(problem, tmp_path):
    done = evaluate(*problem, norm="L2", ensemble=100, out=tmp_path / "L2", name="mine")
    assert (Evaluation.load(tmp_path).distances == done.distances).all()
    evaluate(*problem, norm="Linf", ensemble=100, out=tmp_path, name="mine")
    with pytest.raises(FrontierError, match=r"holds several norms \(L2, Linf\): open one, such as .*/L2"):
        Evaluation.load(tmp_path)
    assert repr(done) == f"<Evaluation of mine in L2, {len(done.samples)} samples, 100 queries>"
    with pytest.raises(FrontierError, match="2 radii at once: expected one"):
        done.robust_accuracy([0.1, 0.2])
