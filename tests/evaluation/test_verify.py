"""`verify`: an honest record holds, and each way of forging one is found."""

import re
from dataclasses import replace

import pytest
import torch
from support.ensembles import small_ensemble
from support.models import conv_net, samples
from torch import nn

from advfrontier import Evaluation, FrontierError, Machine, evaluate, verify
from advfrontier.evaluation.verify import parse_rerun
from advfrontier.flags import Flag, Kind
from advfrontier.record import HeaderChange
from advfrontier.solvers import FMN

SHAPE = (1, 6, 6)
RUNS = "fmn,ddn@200"


def net():
    return conv_net(SHAPE, classes=10, seed=5)


def data():
    images, labels = samples(net(), 8, SHAPE, seed=5)
    labels[3] = (labels[3] + 1) % 10  # one that is misclassified as it is
    return images, labels


ONE_THREAD = Machine(threads=1)
BOTH = pytest.mark.parametrize("kind", ["runs", "refined"])


@pytest.fixture(scope="module")
def honest(tmp_path_factory):
    """Return the folder of two evaluations, one of runs and one with refinements."""
    folder = tmp_path_factory.mktemp("honest")
    common = {"batch_size": 5, "machine": ONE_THREAD}
    evaluate(net(), *data(), norm="L2", ensemble=RUNS, out=folder / "runs", **common)
    ensemble = small_ensemble("Linf").at(330)
    evaluate(net(), *data(), norm="Linf", ensemble=ensemble, out=folder / "refined", **common)
    return folder


@pytest.fixture
def runs(honest, tmp_path):
    """Return an evaluation of two runs that a test may change."""
    Evaluation.load(honest / "runs").save(tmp_path / "runs")
    return Evaluation.load(tmp_path / "runs")


@pytest.fixture
def refined(honest, tmp_path):
    """Return an evaluation with refinements that a test may change."""
    Evaluation.load(honest / "refined").save(tmp_path / "refined")
    return Evaluation.load(tmp_path / "refined")


def forge(evaluation, change):
    """Rewrite the first unit with whole checksums and the right mark, as a forger would."""
    record = evaluation.record
    unit, queries = min(record.units().items())
    stored = record.read_unit(unit, queries)
    content = change(stored).to_bytes({"belongs": record.unit_mark(unit, queries)})
    record.folder.write(unit.file(queries), content)
    return Evaluation.load(evaluation.place)


def lower(stored):
    stored.trajectory[-1, 1] *= 0.9
    return stored


def not_adversarial(stored):
    stored.best_point[1] = data()[0][1].flatten()
    stored.trajectory[-1, 1] = 0.0
    return stored


def another_class(stored):
    label = int(data()[1][1])
    others = [k for k in range(10) if k not in {label, int(stored.classes[1])}]
    stored.classes[1] = others[0]
    return stored


def kept_back(stored):
    """Claim that a sample was never broken: only repeating the unit can tell."""
    stored.trajectory[:, 1] = torch.inf
    stored.classes[1] = -1
    return stored


def not_a_number(stored):
    stored.trajectory[-1, 1] = float("nan")
    return stored


def outside_the_box(stored):
    stored.best_point[1, 0] = -0.25
    return stored


def scalar_trajectory(stored):
    return replace(stored, trajectory=torch.zeros((), dtype=torch.float64))


def square_classes(stored):
    return replace(stored, classes=torch.zeros((2, 2), dtype=torch.int64))


def short_points(stored):
    return replace(stored, best_point=torch.zeros(3))


def test_honest_record_holds(runs):
    result = verify(runs.place, net(), *data(), rerun=3, seed=1)
    assert result.false == ()
    assert (result.points, result.proved) == (7, 7)
    assert (result.units, result.again, result.same) == (2, 2, 2)
    assert str(result) == (
        "L2: 7 of 7 points proved: inside the box, at their distance, misclassified; 2 of 2 units "
        "reproduced bit for bit (drawn with seed 1); gradients diagnosed again at the "
        "images and at the points found."
    )


def test_record_with_refinements_holds(refined):
    result = verify(refined, net(), *data(), rerun="100%")
    assert result.holds
    assert (result.points, result.proved, result.units, result.same) == (7, 7, 2, 2)


@pytest.mark.parametrize(("seed", "expected"), [(-1, "0 or more"), (1.5, "a whole number")])
def test_seed_that_is_refused(runs, seed, expected):
    with pytest.raises(FrontierError, match=f"seed of the draw is {seed}: expected {expected}"):
        verify(runs.place, net(), *data(), seed=seed)


@pytest.mark.parametrize(
    "change", [not_a_number, outside_the_box, scalar_trajectory, square_classes, short_points]
)
def test_unit_of_another_form_is_one_message(runs, change):
    forged = forge(runs, change)
    (false,) = verify(forged, net(), *data(), rerun=0).false
    assert false.startswith(
        "the record does not hold what it claims, 200 queries of the ensemble on samples 0–4: "
    )
    with pytest.raises(FrontierError, match="lacks the ensemble on samples 0–4"):
        _ = forged.adversarials


def test_reading_changes_nothing(runs, tmp_path):
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}
    verify(runs.place, net(), *data())
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")} == before


FORGED = [
    (lower, r"sample 1: its point is at \S+, not at \S+ \("),
    (not_adversarial, r"sample 1: its point is not misclassified: it is"),
    (another_class, r"sample 1: its point is taken for class \d, not for \d"),
]


@pytest.mark.parametrize(("change", "words"), FORGED)
@BOTH
def test_forged_point_is_found(request, kind, change, words):
    forged = forge(request.getfixturevalue(kind), change)
    result = verify(forged, net(), *data(), rerun=0)
    assert not result.holds
    assert len(result.false) == 1
    assert re.search(words, result.false[0]), result.false
    assert result.proved == result.points - 1
    assert "1 false" in str(result)


@BOTH
def test_point_that_is_kept_back_is_found_by_repeating_the_unit(request, kind):
    forged = forge(request.getfixturevalue(kind), kept_back)
    assert verify(forged, net(), *data(), rerun=0).holds  # no point says otherwise
    (false,) = verify(forged, net(), *data(), rerun="100%").false
    assert re.search(r"samples 0–4 was not reproduced: .*trajectory.* differ in their bits", false)


def test_other_images_are_found(runs):
    images, labels = data()
    images[6] = images[6].flip(-1)
    result = verify(runs, net(), images, labels)
    assert len(result.false) == 1
    assert re.match(r"sample 6: its image is another than that of \w", result.false[0])
    assert "no unit was run again" in str(result)


def test_other_labels_are_found(runs):
    images, labels = data()
    was = int(labels[6])
    labels[6] = (was + 1) % 10
    assert (
        f"sample 6: its label is {was} in the record, and {(was + 1) % 10} in the data"
        in verify(runs, net(), images, labels).false
    )


def test_another_model_is_found(runs):
    other = net()
    with torch.no_grad():
        other[-1].weight *= 0.5  # the same classes everywhere, but for the biases
    result = verify(runs, other, *data())
    assert re.match(
        r"the record is of another model \(Sequential, \w{8}\) than Sequential", result.false[0]
    )
    assert result.again == 0


def test_clean_errors_that_are_none_are_found(runs):
    """A sample that is called misclassified needs no attack."""
    record = runs.record
    record.clean.correct[3] = True
    record.write_clean(record.clean)
    result = verify(Evaluation.load(runs.place), net(), *data(), rerun=0)
    assert (
        "sample 3: its image is misclassified by this model, and classified correctly in the record"
        in result.false
    )


def test_flags_that_are_kept_back_are_found(tmp_path):
    model = torch.nn.Sequential(net(), torch.nn.Softmax(1))
    told = evaluate(model, *data(), norm="L2", ensemble="fmn@100", out=tmp_path, machine=ONE_THREAD)
    assert verify(told, model, *data()).holds
    kinds = {flag.kind for flag in told.record.header.flags}
    told.record.change(HeaderChange(set_flags=dict.fromkeys(kinds)))
    found = verify(Evaluation.load(told.place), model, *data()).false
    assert any("the record lacks the flag" in what and "probabilities" in what for what in found)


def test_damaged_unit_is_found(runs, tmp_path):
    unit = min((tmp_path / "runs").rglob("units/ensemble/*.safetensors"))
    content = bytearray(unit.read_bytes())
    content[-5] ^= 1
    unit.write_bytes(content)
    result = verify(runs.place, net(), *data(), rerun=0)
    assert re.search(
        r"the record does not hold what it claims, .* the ensemble on samples 0–4: .*checksum",
        result.false[0],
    )


def test_unit_of_other_queries_is_found(runs, tmp_path):
    unit = min((tmp_path / "runs").rglob("units/ensemble/*.safetensors"))
    unit.rename(unit.with_name(unit.name.replace("0200", "0050")))
    with pytest.raises(FrontierError, match="is not finished"):
        verify(runs.place, net(), *data())


def test_other_versions_are_held_to_a_tolerance(runs):
    later = runs.record.header.versions.model_copy(update={"torch": "1.0"})
    runs.record.change(HeaderChange(later=later))
    result = verify(runs.place, net(), *data(), rerun="100%")
    assert (result.same, result.close) == (0, 2)
    assert "2 of 2 units reproduced within 5%" in str(result)
    assert "no more than 5% in the median" in result.notes[0]


def test_other_versions_do_not_excuse_distances_beyond_the_tolerance(runs):
    """Half of the samples of the first unit are claimed to be unbroken."""

    def half_kept_back(stored):
        stored.trajectory[:, :3] = torch.inf
        stored.classes[:3] = -1
        return stored

    forge(runs, half_kept_back)
    later = runs.record.header.versions.model_copy(update={"torch": "1.0"})
    runs.record.change(HeaderChange(later=later))
    (false,) = verify(runs.place, net(), *data(), rerun="100%").false
    assert "samples 0–4 was not reproduced: its distances differ by 100% in the median" in false


def test_rerun_is_a_share_or_a_number():
    assert [parse_rerun("5%")(n) for n in (0, 1, 40, 41)] == [0, 1, 2, 3]
    assert [parse_rerun(3)(n) for n in (2, 9)] == [2, 3]
    assert parse_rerun("0")(9) == 0
    for wrong in ("five", "-1", "120%", "0.5", "nan", "inf"):
        with pytest.raises(
            FrontierError, match=re.escape(f"cannot do {wrong!r} of the units again")
        ):
            parse_rerun(wrong)


def test_too_few_samples(runs):
    images, labels = data()
    with pytest.raises(FrontierError, match=r"is a record of 8 samples, and .* has 5"):
        verify(runs, net(), images[:5], labels[:5])
    assert verify(runs, net(), torch.cat((images, images)), torch.cat((labels, labels))).holds


class Noisy(nn.Module):
    """Adds noise to its images, so that points near the boundary are misclassified in most passes
    only.
    """

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


def test_noise_flag_that_is_kept_back_is_found(runs, monkeypatch):
    monkeypatch.setattr(
        "advfrontier.evaluation.evaluate.noise_check",
        lambda *_, **__: Flag(Kind.NOISE, "noise breaks all"),
    )
    assert verify(runs, net(), *data(), rerun=0).false == (
        "the record lacks the flag: noise breaks all",
    )
    noise = Flag(Kind.NOISE, "noise breaks all")
    runs.record.change(HeaderChange(set_flags={Kind.NOISE: noise}))
    assert verify(Evaluation.load(runs.place), net(), *data(), rerun=0).holds


def test_certified_radii_beyond_a_point_are_found(runs):
    radii = runs.distances / 2
    runs.record.write_certified(radii)
    honest = verify(runs.place, net(), *data(), rerun=0)
    assert honest.holds
    assert "certified radii are only compared with the distances" in honest.notes[0]
    radii[1] *= 3
    runs.record.write_certified(radii)
    (false,) = verify(runs.place, net(), *data(), rerun=0).false
    assert re.fullmatch(r"sample 1: it is certified up to .*, and broken at .*", false)


def test_own_solvers_are_needed_to_repeat_a_unit(tmp_path):
    solvers = {"fmn": FMN(alpha=2.0)}
    done = evaluate(net(), *data(), norm="L2", ensemble="fmn@100", solvers=solvers, out=tmp_path)
    without = verify(done.place, net(), *data(), rerun=1)
    assert without.holds
    assert without.again == 0
    assert "in Python, verify(…, solvers={…}) takes others" in without.notes[0]
    assert verify(done.place, net(), *data(), rerun=1, solvers=solvers).same == 1
