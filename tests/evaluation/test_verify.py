"""A record from someone else: an honest one is proved, and each way of forging one is found."""

import re

import numpy as np
import pytest
import torch
from support.models import conv_net, samples
from support.races import small_race
from torch import nn

from advfrontier import Evaluation, FrontierError, Machine, evaluate, verify
from advfrontier.evaluation import claims
from advfrontier.evaluation.claims import figures_digest
from advfrontier.evaluation.verify import parse_rerun
from advfrontier.flags import Flag, Kind
from advfrontier.pool import RACE
from advfrontier.solvers.fmn import Fmn

SHAPE = (1, 6, 6)
RUNS = "fmn,ddn@200"


def net():
    return conv_net(SHAPE, classes=10, seed=5)


def data():
    images, labels = samples(net(), 8, SHAPE, seed=5)
    labels[3] = (labels[3] + 1) % 10  # one that is misclassified as it is
    return images, labels


@pytest.fixture
def ensemble(tmp_path):
    return evaluate(
        net(),
        *data(),
        norm="L2",
        ensemble=RUNS,
        out=tmp_path / "e",
        batch_size=5,
        machine=Machine(threads=1),
    )


@pytest.fixture
def race(tmp_path):
    race = small_race("Linf", total=300)
    return evaluate(
        net(), *data(), norm="Linf", ensemble=race, out=tmp_path / "r", machine=Machine(threads=1)
    )


def forge(evaluation, run, change):
    """Rewrite the first unit of a run with whole checksums and the right marks, as one who knows the program would."""
    record = evaluation.record
    unit = next(unit for unit in sorted(record.units()) if unit.run == run)
    queries = record.units()[unit]
    stored = record.read_unit(unit, queries)
    change(stored.tensors)
    attack = record.header.solvers[run.split(":")[0]]
    record.write_file(
        unit.file(queries), stored.tensors, stored.words, record.unit_mark(unit, attack)
    )
    return Evaluation.load(evaluation.place)


def lower(tensors):
    tensors["trajectory"][-1, 1] *= 0.9


def leave_the_box(tensors):
    tensors["best_point"][1, 0] = -0.25


def not_adversarial(images):
    def change(tensors):
        tensors["best_point"][1] = images[1].flatten()
        tensors["trajectory"][-1, 1] = 0.0

    return change


def claim(tensors):
    tensors["trajectory"][-1, 1] = float("nan")


def another_class(tensors):
    tensors["classes"][1] = (tensors["classes"][1] + 1) % 10


def wider(tensors):
    tensors["trajectory"][:, 1] = (
        torch.inf
    )  # a point that is not told: only doing the unit again can find it


def test_an_ensemble_is_proved(ensemble):
    result = verify(ensemble.place, net(), *data(), rerun=3, seed=1)
    assert result.false == ()
    assert (result.points, result.proved) == (14, 14)  # two runs on seven samples
    assert (result.units, result.again, result.same) == (4, 3, 3)
    assert str(result) == (
        "L2: 14 of 14 points proved: inside the box, at their distance, misclassified; 3 of 4 units came out the same "
        "bit for bit (drawn with seed 1)."
    )


def test_a_seed_that_nothing_can_be_drawn_with_is_refused(ensemble):
    for seed, expected in {-1: "0 or more", 1.5: "a whole number"}.items():
        with pytest.raises(FrontierError, match=f"seed of the draw is {seed}: expected {expected}"):
            verify(ensemble.place, net(), *data(), seed=seed)


def test_a_race_is_proved(race):
    result = verify(race, net(), *data(), rerun="100%")
    assert result.holds
    assert (result.points, result.proved, result.units, result.same) == (7, 7, 1, 1)


@pytest.mark.parametrize(
    ("name", "tensor"),
    [
        ("trajectory", torch.zeros(())),
        ("held", None),
        ("classes", torch.zeros(2, 2)),
        ("best_point", torch.zeros(3)),
    ],
    ids=["trajectory", "held", "classes", "points"],
)
def test_tensors_that_are_none_of_a_unit_end_in_one_message(ensemble, name, tensor):
    def change(tensors):
        tensors.pop(name)
        tensors.update({} if tensor is None else {name: tensor})

    forged = forge(ensemble, "fmn", change)
    assert not verify(forged, net(), *data(), rerun=0).holds
    with pytest.raises(
        FrontierError, match="the file of fmn on samples 0–4 holds something else than a unit"
    ):
        _ = forged.distances, forged.of_run("fmn")


def test_reading_changes_nothing(ensemble, tmp_path):
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "e").rglob("*")}
    verify(ensemble.place, net(), *data())
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "e").rglob("*")} == before


FORGED = {
    "a distance lowered": (lower, r"sample 1: its point is at \S+, not at \S+ \("),
    "a distance that is none": (claim, r"sample 1: its point is at \S+, not at nan \("),
    "a point out of the box": (
        leave_the_box,
        r"sample 1: its point is not inside the box: it has values from -0.25 to",
    ),
    "a point that is not adversarial": (
        not_adversarial(data()[0]),
        r"sample 1: its point is not misclassified: it is",
    ),
    "another class": (another_class, r"sample 1: its point is taken for class \d, not for \d"),
}


@pytest.mark.parametrize(("change", "words"), FORGED.values(), ids=FORGED)
@pytest.mark.parametrize("kind", ["ensemble", "race"])
def test_a_forged_point_is_found(request, kind, change, words):
    run = {"ensemble": "fmn", "race": RACE}[kind]
    forged = forge(request.getfixturevalue(kind), run, change)
    result = verify(forged, net(), *data(), rerun=0)
    assert not result.holds
    assert len(result.false) == 1
    assert re.search(words, result.false[0]), result.false
    assert result.proved == result.points - 1
    assert "1 false" in str(result)


@pytest.mark.parametrize("kind", ["ensemble", "race"])
def test_a_point_that_is_kept_back_is_found_by_doing_the_unit_again(request, kind):
    run = {"ensemble": "fmn", "race": RACE}[kind]
    forged = forge(request.getfixturevalue(kind), run, wider)
    assert verify(forged, net(), *data(), rerun=0).holds  # no point says otherwise
    result = verify(forged, net(), *data(), rerun="100%")
    assert len(result.false) == 1
    assert re.search(
        r"samples 0–\d did not come out again: .*trajectory.* differ in their bits", result.false[0]
    )


def test_other_images_are_found(ensemble):
    images, labels = data()
    images[6] = images[6].flip(-1)
    result = verify(ensemble, net(), images, labels)
    assert len(result.false) == 1
    assert re.match(r"sample 6: its image is another than that of \w", result.false[0])
    assert "no unit was done again" in str(result)


def test_other_labels_are_found(ensemble):
    images, labels = data()
    was = int(labels[6])
    labels[6] = (was + 1) % 10
    assert (
        f"sample 6: its label is {was} in the record, and {(was + 1) % 10} in the data"
        in verify(ensemble, net(), images, labels).false
    )


def test_another_model_is_found(ensemble):
    other = net()
    with torch.no_grad():
        other[-1].weight *= 0.5  # the same classes everywhere, but for the biases
    result = verify(ensemble, other, *data())
    assert re.match(
        r"the record is of another model \(Sequential, \w{8}\) than Sequential", result.false[0]
    )
    assert result.again == 0


def test_clean_errors_that_are_none_are_found(ensemble):
    """Who calls a sample misclassified saves himself the attack."""
    record = ensemble.record
    record.clean.correct[3] = True
    record.write_clean(record.clean)
    result = verify(Evaluation.load(ensemble.place), net(), *data(), rerun=0)
    assert (
        "sample 3: its image is misclassified by this model, and classified correctly in the record"
        in result.false
    )


def test_flags_that_are_kept_back_are_found(tmp_path):
    model = torch.nn.Sequential(net(), torch.nn.Softmax(1))
    told = evaluate(
        model, *data(), norm="L2", ensemble=["fmn"], out=tmp_path, machine=Machine(threads=1)
    )
    assert verify(told, model, *data()).holds
    told.record.change(lambda _: {"flags": ()})
    found = verify(Evaluation.load(told.place), model, *data()).false
    assert any(
        "the record does not tell this" in what and "probabilities" in what for what in found
    )


def test_a_damaged_unit_is_found(ensemble, tmp_path):
    unit = next((tmp_path / "e").rglob("units/fmn/*.safetensors"))
    content = bytearray(unit.read_bytes())
    content[-5] ^= 1
    unit.write_bytes(content)
    result = verify(ensemble.place, net(), *data(), rerun=0)
    assert re.search(
        r"the record does not hold what it claims, .* fmn on samples 0–4: .*checksum",
        result.false[0],
    )


def test_a_unit_of_other_queries_is_found(ensemble, tmp_path):
    unit = next((tmp_path / "e").rglob("units/fmn/*.safetensors"))
    unit.rename(unit.with_name(unit.name.replace("0100", "0050")))
    with pytest.raises(FrontierError, match="is not finished"):
        verify(ensemble.place, net(), *data())


def test_other_versions_are_held_to_a_tolerance(ensemble, monkeypatch):
    record = ensemble.record
    record.change(lambda header: {"versions": header.versions.model_copy(update={"torch": "1.0"})})
    result = verify(ensemble.place, net(), *data(), rerun="100%")
    assert (result.same, result.close) == (0, 4)
    assert "4 of 4 units came out within 5%" in str(result)
    assert "no more than 5% in the median" in result.notes[0]
    monkeypatch.setattr(claims, "_deviation", lambda *_: 0.06)
    assert len(verify(ensemble.place, net(), *data(), rerun="100%").false) == 4


def test_deviation():
    inf = float("inf")
    said, found = torch.tensor([1.0, 2.0, inf, inf, 4.0]), torch.tensor([1.0, 1.8, inf, 3.0, 4.0])
    assert claims._deviation(said, found) == 0.0
    assert claims._deviation(said[1:2], found[1:2]) == pytest.approx(0.1)
    assert claims._deviation(said[3:4], found[3:4]) == 1.0


def test_how_many_units():
    assert [parse_rerun("5%")(n) for n in (0, 1, 40, 41)] == [0, 1, 2, 3]
    assert [parse_rerun(3)(n) for n in (2, 9)] == [2, 3]
    assert parse_rerun("0")(9) == 0
    for wrong in ("five", "-1", "120%", "0.5", "nan", "inf"):
        with pytest.raises(
            FrontierError, match=re.escape(f"cannot do {wrong!r} of the units again")
        ):
            parse_rerun(wrong)


def test_the_digest_is_of_the_figures(ensemble):
    digest = figures_digest(ensemble)
    assert figures_digest(Evaluation.load(ensemble.place)) == digest
    assert figures_digest(forge(ensemble, "fmn", lower)) != digest
    assert len(np.unique(ensemble.distances)) > 1


def test_too_few_samples(ensemble):
    images, labels = data()
    with pytest.raises(FrontierError, match=r"is a record of 8 samples, and .* has 5"):
        verify(ensemble, net(), images[:5], labels[:5])
    assert verify(ensemble, net(), torch.cat((images, images)), torch.cat((labels, labels))).holds


class Noisy(nn.Module):
    """Adds noise to its images, so that points near the boundary are misclassified in most passes only."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, x):
        return self.model(x + 0.05 * torch.randn_like(x))


def test_points_of_a_random_model_are_judged_by_many_passes():
    model = Noisy(conv_net((1, 6, 6), classes=4, seed=1))
    images, labels = samples(model.model, 4, (1, 6, 6), seed=1)
    found = evaluate(model, images, labels, norm="L2", ensemble="fmn@60", eot=3)
    assert (found.shares[found.distances > 0] < 0.95).any()
    assert all(verify(found, model, images, labels, rerun=0).holds for _ in range(5))


def test_a_noise_flag_that_is_kept_back_is_found(ensemble, monkeypatch):
    monkeypatch.setattr(
        "advfrontier.evaluation.evaluate.noise_check",
        lambda *_, **__: Flag(Kind.BEATEN, "noise breaks all"),
    )
    assert verify(ensemble, net(), *data(), rerun=0).false == (
        "the record does not tell this: noise breaks all",
    )
    ensemble.record.replace_flag(Kind.BEATEN, Flag(Kind.BEATEN, "noise breaks all"))
    assert verify(Evaluation.load(ensemble.place), net(), *data(), rerun=0).holds


def test_certified_radii_beyond_a_point_are_found(ensemble):
    radii = ensemble.distances / 2
    ensemble.record.write_certified(radii)
    honest = verify(ensemble.place, net(), *data(), rerun=0)
    assert honest.holds
    assert "certified radii are only compared with the distances" in honest.notes[0]
    radii[1] *= 3
    ensemble.record.write_certified(radii)
    (false,) = verify(ensemble.place, net(), *data(), rerun=0).false
    assert re.fullmatch(r"sample 1: it is certified up to .*, and broken at .*", false)


def test_solvers_of_one_s_own_are_needed_to_do_a_unit_again(tmp_path):
    solvers = {"fmn": Fmn(alpha=2.0)}
    done = evaluate(net(), *data(), norm="L2", ensemble="fmn@100", solvers=solvers, out=tmp_path)
    without = verify(done.place, net(), *data(), rerun=1)
    assert without.holds
    assert without.again == 0
    assert "in Python, verify(…, solvers={…}) takes others" in without.notes[0]
    assert verify(done.place, net(), *data(), rerun=1, solvers=solvers).same == 1
