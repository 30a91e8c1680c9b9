"""Results as files for other programs and papers."""

from __future__ import annotations

import csv
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from report_records import alone, constant, evaluation, images_and_labels, net, summary

from advfrontier import evaluate
from advfrontier.errors import FrontierError
from advfrontier.evaluation.compare import find_evaluations
from advfrontier.evaluation.summary import summarise_all
from advfrontier.pool import Ensemble
from advfrontier.report.export import (
    FORMATS,
    card,
    earlier_formats,
    export,
    export_all,
    latex,
    parse_formats,
)

TINY = {"fmn": 10}


def test_parse_formats():
    assert parse_formats(None) == ()
    assert parse_formats(" csv, npz,csv ,") == ("csv", "npz")
    assert set(FORMATS) == {"csv", "parquet", "npz", "card", "classes", "png", "latex", "sentence"}
    with pytest.raises(FrontierError, match="cannot export 'pdf': expected some of csv, parquet"):
        parse_formats("csv,pdf")


@pytest.mark.parametrize(
    ("kind", "module", "typed"),
    [
        ("parquet", "pyarrow", r"pip install 'advfrontier\[parquet\]'"),
        ("png", "PIL", r"pip install 'advfrontier\[images\]'"),
    ],
)
def test_parse_formats_says_what_to_install(monkeypatch, kind, module, typed):
    monkeypatch.setitem(__import__("sys").modules, module, None)
    with pytest.raises(FrontierError, match=typed):
        parse_formats(kind)


def test_csv_has_a_line_per_sample(tmp_path):
    one = evaluation("net", "L2")
    (path,) = export(one, "csv", tmp_path / "deep" / "a.csv")
    rows = list(csv.DictReader(path.read_text().splitlines()))
    assert [float(row["distance"]) for row in rows] == one.distances.tolist()
    assert [row["sample"] for row in rows] == list(one.samples)
    assert [row["row"] for row in rows] == [str(k) for k in range(24)]


def test_parquet_has_the_same_columns(tmp_path):
    parquet = pytest.importorskip("pyarrow.parquet", reason="Parquet is an extra")
    one = evaluation("net", "L2")
    (path,) = export(one, "parquet", tmp_path / "a.parquet")
    found = parquet.read_table(path).to_pydict()
    assert found["distance"] == one.distances.tolist()
    assert list(found)[:4] == ["row", "sample", "label", "prediction"]


def test_npz_has_images_and_points(tmp_path):
    one = evaluation("net", "L2")
    (path,) = export(one, "npz", tmp_path / "a.npz")
    found = np.load(path)
    np.testing.assert_array_equal(found["images"], one.images().numpy())
    np.testing.assert_array_equal(found["adversarials"], one.adversarials.numpy())
    np.testing.assert_array_equal(found["distance"], one.distances)


def test_classes_have_accuracy_at_every_radius(tmp_path):
    one = evaluation("net", "Linf")
    (path,) = export(one, "classes", tmp_path / "a.csv", radii=[("8/255", 8 / 255)])
    rows = list(csv.DictReader(path.read_text().splitlines()))
    assert list(rows[0]) == [
        "class",
        "name",
        "samples",
        "clean_accuracy",
        "robust_accuracy_at_8/255",
        "median_distance",
        "taken_for",
        "taken_for_name",
    ]
    assert sum(int(row["samples"]) for row in rows) == 24
    robust = sum(int(row["samples"]) * float(row["robust_accuracy_at_8/255"]) for row in rows) / 24
    assert robust == pytest.approx(one.robust_accuracy("8/255"))


def test_pictures_are_the_points_in_eight_bits(tmp_path):
    image = pytest.importorskip("PIL.Image", reason="Pillow is an extra")
    one = evaluation("net", "Linf")
    paths = export(one, "png", tmp_path / "png")
    assert len(paths) == int(((one.distances > 0) & np.isfinite(one.distances)).sum())
    row = int(paths[0].name[:6])
    assert paths[0].name == f"{row:06d}-class{one.labels[row]}-as{one.predictions[row]}.png"
    pixels = np.asarray(image.open(paths[0])) / 255
    np.testing.assert_allclose(pixels, one.adversarials[row, 0], atol=0.5 / 255 + 1e-6)


def test_pictures_of_an_earlier_export_are_removed_and_others_are_not(tmp_path):
    pytest.importorskip("PIL", reason="Pillow is an extra")
    one = evaluation("net", "Linf")

    def written():
        return list(export_all([one], [summary()], str(tmp_path), ["png"]))

    assert written() == [("pictures", str(tmp_path / "Linf-png"))]
    pictures = sorted((tmp_path / "Linf-png").iterdir())
    older = pictures[0].with_name("000000-class3-as77.png")
    mine = pictures[0].with_name("000001-class3-as77.png")
    older.write_bytes(pictures[0].read_bytes())
    mine.write_bytes(b"my own picture")
    assert written() == [("pictures", str(tmp_path / "Linf-png"))]
    assert sorted((tmp_path / "Linf-png").iterdir()) == sorted([*pictures, mine])


def test_samples_that_are_no_pictures_are_refused(tmp_path):
    pytest.importorskip("PIL", reason="Pillow is an extra")
    images, labels = images_and_labels(3)
    flat = evaluate(
        net_of_rows(), images.flatten(1), labels, norm="L2", ensemble=Ensemble.of("t", "L2", TINY)
    )
    with pytest.raises(FrontierError, match=r"shape \(64,\): expected pictures.*--export npz"):
        export(flat, "png", tmp_path / "png")


def net_of_rows():
    from torch import nn  # noqa: PLC0415

    return nn.Sequential(nn.Unflatten(1, (1, 8, 8)), net()).eval()


def test_card_quotes_the_radius_of_the_headline():
    one = evaluation("net", "Linf")
    found = card(one, [("0.01", 0.01), ("8/255", 8 / 255)])
    assert (found["eps"], found["threat_model"], found["samples"]) == ("8/255", "Linf", 24)
    assert found["advfrontier_acc"] == f"{100 * one.robust_accuracy('8/255'):.2f}"
    assert found["clean_acc"] == f"{100 * one.robust_accuracy(0):.2f}"
    assert found["advfrontier_aurec"] == alone("net", "Linf").aurec.estimate
    assert (found["advfrontier_ensemble"], found["advfrontier_queries"]) == ("tiny", 100)
    assert found["unreliable"] is False
    assert card(one)["eps"] is None
    assert card(evaluation("wrong"))["unreliable"] is True


def test_latex_is_a_table_per_budget():
    text = latex([summary("net", "L2"), summary("net", "Linf")])
    assert text.startswith("% written by advfrontier; needs \\usepackage{booktabs}\n% net on ")
    assert r"$\ell_{2}$ &" in text
    assert r"$\ell_{\infty}$ &" in text
    assert text.count(r"\begin{tabular}") == 1


def test_export_all_names_files_after_records(tmp_path):
    images, labels = images_and_labels(3)
    tiny = Ensemble.of("tiny", "L2", TINY)
    for name in ("a", "b"):
        out = f"memory://{tmp_path.name}/{name}"
        evaluate(net(), images, labels, norm="L2", ensemble=tiny, name=name, out=out)
    for folder in (f"memory://{tmp_path.name}", f"memory://{tmp_path.name}/"):
        found = find_evaluations([folder])
        written = [path for _, path in export_all(found, summarise_all(found), folder, ["csv"])]
        assert written == [f"memory://{tmp_path.name}/{name}/L2.csv" for name in ("a", "b")]


def test_export_all_says_what_each_file_is(tmp_path):
    both = [evaluation("net", "L2"), evaluation("net", "Linf")]
    kinds = parse_formats("csv,npz,card,classes,latex,sentence")
    summaries = summarise_all(both, radii="0.1")
    written = list(export_all(both, summaries, str(tmp_path), kinds, radii="0.1"))
    names = [(content, Path(path).name) for content, path in written]
    assert names == [
        ("table", "L2.csv"),
        ("table", "Linf.csv"),
        ("points", "L2.npz"),
        ("points", "Linf.npz"),
        ("card", "L2.json"),
        ("card", "Linf.json"),
        ("classes", "L2-classes.csv"),
        ("classes", "Linf-classes.csv"),
        ("table", "summary.tex"),
        ("sentence", "sentence.txt"),
    ]
    assert json.loads((tmp_path / "L2.json").read_text())["eps"] == "0.1"
    said = (tmp_path / "sentence.txt").read_text()
    assert said.startswith("net was evaluated with advfrontier ")
    assert "in ℓ₂ and ℓ∞ on 24 samples" in said
    assert "@misc{advfrontier," in said


def test_exports_never_replace_foreign_files(tmp_path):
    (tmp_path / "sentence.txt").write_text("my notes")
    with pytest.raises(FrontierError, match=r"sentence.txt was not written by advfrontier"):
        list(export_all([], [alone()], str(tmp_path), ["sentence"]))


def test_exported_text_is_cleaned(tmp_path):
    bad = "x\x1b[2J\u202ey"
    images, labels = images_and_labels(3)
    tiny = Ensemble.of("tiny", "L2", TINY)
    one = evaluate(constant(), images, labels, norm="L2", ensemble=tiny, name=bad)
    odd = replace(alone(), model=bad, data=bad)
    list(export_all([one], [odd], str(tmp_path), ["card", "latex", "sentence"]))
    for path in tmp_path.iterdir():
        assert not {"\x1b", "\u202e"} & set(path.read_text("utf-8").replace("\\u001b", "\x1b"))


@pytest.mark.parametrize("norm", ["L2", "L0pixel"])
def test_earlier_formats_are_those_of_any_norm(tmp_path, norm):
    assert earlier_formats(str(tmp_path)) == ()
    (tmp_path / f"{norm}.csv").touch()
    (tmp_path / f"{norm}.json").touch()
    (tmp_path / "notes.npz").touch()
    assert earlier_formats(str(tmp_path)) == ("csv", "card")
