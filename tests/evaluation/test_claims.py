"""Claims of a record, one by one: each false point has its reason, and a list names what held."""

import json

import pytest
import torch

from advfrontier import Evaluation
from advfrontier.engine import Oracle
from advfrontier.errors import FrontierError
from advfrontier.evaluation.claims import (
    false_points,
    figures_digest,
    only_verified,
    same_bits,
    write_verified,
)
from advfrontier.evaluation.verify import Verification
from advfrontier.flags import Flag, Kind
from advfrontier.record import HeaderChange, Record


@pytest.fixture
def unit(problem, evaluation):
    """Return what `false_points` needs of the first unit, which a test may change."""
    model, images, labels = problem
    record = evaluation.record
    name, queries = min(record.units().items())
    rows = record.clean.attacked(name.first, name.count)
    return model, images[rows], labels[rows], record.read_unit(name, queries)


def checked(model, images, labels, stored):
    with Oracle(model) as oracle:
        return false_points(oracle, images, labels, "L2", stored)


def outside(stored, *_):
    stored.best_point[0] = 1.5 * torch.linspace(0, 1, len(stored.best_point[0]))
    return "its point is not inside the box: it has values from 0 to 1.5"


def too_near(stored, *_):
    said = float(stored.trajectory[-1, 0])
    stored.trajectory[-1, 0] = said / 2
    return f"its point is at {said:.6g}, not at {said / 2:.6g}"


def at_the_image(stored, images, labels):
    stored.best_point[0] = images[0].flatten()
    stored.trajectory[-1, 0] = 0.0
    return f"its point is not misclassified: it is taken for {int(labels[0])}, its label"


def of_another_class(stored, _, labels):
    right = int(stored.classes[0])
    wrong = next(k for k in range(10) if k not in (right, int(labels[0])))
    stored.classes[0] = wrong
    return f"its point is taken for class {right}, not for {wrong}"


def of_no_class(stored, *_):
    right = int(stored.classes[0])
    stored.classes[0] = 10
    return f"its point is taken for class {right}, not for 10"


def test_true_points_have_no_reason(unit):
    found, wrong = checked(*unit)
    assert found == int(torch.isfinite(unit[3].trajectory[-1]).sum()) > 1
    assert wrong == {}


@pytest.mark.parametrize("change", [outside, too_near, at_the_image, of_another_class, of_no_class])
def test_false_point_is_named_with_its_reason(unit, change):
    model, images, labels, stored = unit
    expected = change(stored, images, labels)
    _, wrong = checked(model, images, labels, stored)
    assert wrong == {0: expected}


def test_unbroken_sample_claims_no_point(unit):
    model, images, labels, stored = unit
    before, _ = checked(model, images, labels, stored)
    stored.trajectory[-1, 0] = torch.inf
    stored.best_point[0] = 7.0  # nobody looks there
    assert checked(model, images, labels, stored) == (before - 1, {})


def test_points_of_another_shape_are_an_error(unit):
    model, images, labels, stored = unit
    with pytest.raises(ValueError, match=r"its points have the shape \(.*\): expected"):
        checked(model, images[:, :, :-1], labels, stored)


def test_bits_should_repeat_only_under_equal_terms_and_clean_passes(evaluation, tmp_path):
    evaluation.save(tmp_path)
    record = evaluation.record
    unit = min(record.units())
    copy = Record.open(tmp_path / "L2", "evaluation")
    assert same_bits(record, copy, unit)
    terms = copy.header.terms.model_copy(update={"threads": copy.header.terms.threads + 1})
    copy.header = copy.header.model_copy(update={"terms": terms})
    assert not same_bits(record, copy, unit)
    other = Record.open(tmp_path / "L2", "evaluation")
    other.clean.logits[unit.first, 0] += 1e-6
    assert not same_bits(record, other, unit)


def test_digest_changes_with_every_figure(evaluation):
    digest = figures_digest(evaluation)
    assert figures_digest(Evaluation.load(evaluation.place)) == digest
    longer = Evaluation.load(evaluation.place)
    longer.distances.setflags(write=True)
    longer.distances[0] += 1e-9
    assert figures_digest(longer) != digest


def verification(evaluation, **changes):
    known = {
        "norm": evaluation.norm,
        "place": evaluation.place,
        "model": evaluation.model,
        "digest": figures_digest(evaluation),
        "diagnosis": "",
        "false": (),
        "notes": (),
    }
    counts = dict.fromkeys(
        ("samples", "points", "proved", "units", "again", "same", "close", "seed"), 1
    )
    return Verification(**(known | counts | changes))


def test_list_grows_by_what_holds_and_splits_evaluations(evaluation, tmp_path):
    evaluation.save(tmp_path / "copy")
    flagged = Evaluation.load(tmp_path / "copy")
    doubt = Flag(Kind.NOISE, "noise breaks it, too")
    flagged.record.change(HeaderChange(add_flags=(doubt,)))
    path = str(tmp_path / "verified.json")
    write_verified(path, [verification(evaluation), verification(flagged, false=("a lie",))])
    assert only_verified([evaluation, flagged], path) == ([evaluation], [flagged])
    write_verified(path, [verification(flagged)])  # the first entry stays
    assert only_verified([flagged, evaluation], path) == ([flagged, evaluation], [])
    entries = json.loads((tmp_path / "verified.json").read_text())["verified"]
    assert {entry["norm"] for entry in entries.values()} == {"L2"}


def test_file_that_is_no_list_is_refused(evaluation, tmp_path):
    path = tmp_path / "mine.json"
    with pytest.raises(FrontierError, match=r"no file .*mine.json: expected one that"):
        only_verified([evaluation], str(path))
    for content in ("[]", '{"verified": 3}', "{"):
        path.write_text(content)
        with pytest.raises(FrontierError, match=r"mine.json is no list of verified records"):
            only_verified([evaluation], str(path))
        with pytest.raises(FrontierError, match=r"mine.json is no list of verified records"):
            write_verified(str(path), [])
        assert path.read_text() == content
