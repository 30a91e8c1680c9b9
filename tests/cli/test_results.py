"""`advfrontier certify`: a lower distance for every sample, stored with the record and shown beside
what was found.
"""

import json

import numpy as np
import pytest

from advfrontier import Evaluation, evaluate, zoo


@pytest.fixture
def records(tmp_path):
    images, labels = (tensor[:12] for tensor in zoo.images_and_labels())
    for norm in ("L0", "Linf"):
        evaluate("zoo:F17", images, labels, norm=norm, ensemble=200, out=tmp_path / "runs" / norm)
    return tmp_path / "runs"


def test_certified_radii_are_stored_and_shown(records, run, capsys):
    assert run("certify", str(records), "--json", "--radii", "0.03,0.06") == 0
    l0, linf = json.loads(capsys.readouterr().out)
    assert l0["certified"] is None
    evaluation = Evaluation.load(records / "Linf")
    radii = evaluation.certified
    assert linf["certified"]["radii"] == radii.tolist()
    assert ((radii > 0) == (evaluation.distances > 0)).all()
    assert (radii <= evaluation.distances).all()
    assert any("certify" in command for command in evaluation.commands)
    page = (records / "report.html").read_text()
    assert "Certified accuracy %" in page
    assert '<path class="certified ' in page
    assert run("report", str(records), "--radii", "0.03") == 0
    assert "certified in Linf: median radius" in capsys.readouterr().out


def test_bounds_are_not_computed_twice_and_copied_with_the_record(
    records, run, monkeypatch, tmp_path
):
    assert run("certify", str(records / "Linf")) == 0
    monkeypatch.setattr("advfrontier.evaluation.certify.certified_radius", None)
    assert run("certify", str(records / "Linf")) == 0
    Evaluation.load(records / "Linf").save(tmp_path / "copy")
    np.testing.assert_array_equal(
        Evaluation.load(tmp_path / "copy").certified, Evaluation.load(records / "Linf").certified
    )


def test_file_of_another_record_is_not_taken(records, run, tmp_path):
    assert run("certify", str(records / "Linf")) == 0
    images, labels = (tensor[12:24] for tensor in zoo.images_and_labels())
    other = evaluate("zoo:F17", images, labels, norm="Linf", ensemble=200, out=tmp_path / "other")
    assert other.certified is None
    (tmp_path / "other" / "certified.safetensors").write_bytes(
        (records / "Linf" / "certified.safetensors").read_bytes()
    )
    assert Evaluation.load(tmp_path / "other").certified is None


def test_certify_refuses_other_norms_and_models(records, run, capsys):
    assert run("certify", str(records / "L0")) == 2
    assert "evaluation in L0: expected one in L1, L2, Linf" in capsys.readouterr().err
    assert run("certify", str(records / "Linf"), "--model", "zoo:F5") == 2
    assert "Linf holds a record of" in capsys.readouterr().err


def test_report_ranks_with_a_reference_set_of_ones_own(folder, run, evaluate, capsys):
    for model, place in (("net", "anchor"), ("weaker", "mine")):
        words = [f"nets.py:{model}", "--norm", "L2", "--runs", "fmn", "--name", place]
        assert evaluate(*words, "--queries", "40", "-o", place, "--no-report") == 0
    assert run("reference", "make", "anchor", "--out", "noise.ref", "--data-name", "noise") == 0
    capsys.readouterr()
    assert run("report", "mine", "--out", "alone.html") == 0
    alone = capsys.readouterr().out
    assert run("report", "mine", "--reference", "noise.ref", "--out", "ranked.html") == 0
    ranked = capsys.readouterr().out
    for shown, expected in ((alone, False), (ranked, True)):
        assert ("DOI" in shown) is expected
    assert "anchor" in (folder / "ranked.html").read_text("utf-8")
    assert "anchor" not in (folder / "alone.html").read_text("utf-8")
    assert run("report", "mine", "--reference", "mine/L2/header.json") == 2
    assert "no reference set mine/L2/header.json: expected" in capsys.readouterr().err
