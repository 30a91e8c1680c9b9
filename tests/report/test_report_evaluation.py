"""From a real evaluation to its report: what the readers ask of a record is what it has."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from support.models import conv_net, samples
from torch import nn

from advfrontier import Evaluation, trace, views
from advfrontier.errors import FrontierError
from advfrontier.evaluation.compare import find_evaluations, rank
from advfrontier.evaluation.evaluate import evaluate
from advfrontier.evaluation.summary import summarise, summarise_all
from advfrontier.frontier import ReferencePool
from advfrontier.pool import Ensemble, find_ensemble
from advfrontier.report import summary_tables, write_report
from advfrontier.report.export import export, export_all, parse_formats
from advfrontier.report.render import as_text
from advfrontier.report.words import quoted

RUNS = {"L2": {"fmn": 60, "ddn": 40}, "Linf": {"fmn": 60, "apgd_min-dlr": 40}}


@pytest.fixture(scope="module")
def evaluations():
    model = conv_net()
    images, labels = samples(model, 12, (1, 8, 8))
    labels[:2] = (labels[:2] + 1) % 4  # two that are misclassified anyway
    return [
        evaluate(
            model, images, labels, norm=norm, ensemble=Ensemble.of("tiny", norm, runs), name="net"
        )
        for norm, runs in RUNS.items()
    ]


def test_summary_of_a_real_record(evaluations):
    for evaluation in evaluations:
        summary = summarise(evaluation, radii=[("0.1", 0.1)])
        assert (summary.model, summary.tier, summary.misclassified) == ("net", 100, 2)
        assert summary.distances == tuple(evaluation.distances.tolist())
        assert summary.robust[0].accuracy.estimate == evaluation.robust_accuracy(0.1)
        assert summary.counts == evaluation.counts
        assert summary.queries == 10 * 100
        assert summary.convergence.queries[-1] == 100
        assert summary.convergence.aurec[-1] == pytest.approx(summary.aurec.estimate)
        assert {win.run for win in summary.wins} <= set(RUNS[evaluation.norm])
        item = summary.gallery[0]
        assert item.label != item.prediction
        json.dumps(summary.to_dict(), allow_nan=False)


def test_report_and_ranks_of_real_records(evaluations, tmp_path):
    pools = {
        e.norm: ReferencePool(
            e.norm, "noise", 100, e.samples, {"half": e.distances / 2, "twice": e.distances * 2}
        )
        for e in evaluations
    }
    found = [summarise(e, radii=[("0.1", 0.1)], reference=pools[e.norm]) for e in evaluations]
    assert [summary.standing.position for summary in found] == ["2 of 3", "2 of 3"]
    ranking = rank(evaluations, reference=pools)
    assert [row.model for row in ranking.overall] == ["twice", "net", "half"]
    np.testing.assert_allclose([row.doi.estimate for row in ranking.overall], [1, 0.5, 0.25])
    assert "2 of 3" in as_text(*summary_tables(found))
    text = Path(write_report(tmp_path / "r.html", found)).read_text(encoding="utf-8")
    assert (
        "By DOI among the reference models of noise it ranks 2 of 3 in ℓ2 and 2 of 3 in ℓ∞." in text
    )


def test_an_evaluation_prints_the_table_of_the_command_line(evaluations):
    one = evaluations[1]
    assert repr(one) == "<Evaluation of net in Linf, 12 samples, 100 queries>"
    text = one.summary(radii="8/255")
    assert text == as_text(*summary_tables(summarise_all([one], radii="8/255")))
    assert repr(text) == str(text)  # a session shows the table, not a quoted string
    assert "8/255" in text
    assert (
        "robust accuracy" not in one.summary().split("\n\n")[1]
    )  # no radius is customary for this data


def test_a_notebook_shows_table_and_curve(evaluations, tmp_path):
    page = evaluations[0]._repr_html_()
    assert page.count("<table>") == page.count("<svg") == 1
    assert "net on" in page
    odd = evaluate(
        conv_net(), *samples(conv_net(), 3, (1, 8, 8)), norm="L2", ensemble=Ensemble.of("tiny", "L2", {"fmn": 20}),
        name="<script>alert(1)</script>", out=tmp_path / "odd",
    )  # fmt: skip
    assert "<script" not in odd._repr_html_()
    next((tmp_path / "odd" / "L2" / "units").rglob("*.safetensors")).unlink()
    assert (
        "lacks fmn on samples" in Evaluation.load(tmp_path / "odd")._repr_html_()
    )  # in words, not as a traceback


def test_a_plot_is_in_the_axes_given_or_in_new_ones(evaluations):
    pytest.importorskip("matplotlib").use("Agg")
    first, second = evaluations
    axes = first.plot(radii="0.5")
    assert [text.get_text() for text in axes.texts] == ["0.5"]
    (line,) = (line for line in axes.get_lines() if line.get_label() == "net")
    assert list(line.get_xdata()[:-1]) == first.curve().epsilons.tolist()
    second.model = "other"
    assert second.plot(ax=axes) is axes
    second.model = "net"
    colours = {line.get_label(): line.get_color() for line in axes.get_lines()}
    assert colours["net"] != colours["other"]
    assert [text.get_text() for text in axes.get_legend().get_texts()] == ["net", "other"]
    first.plot(ax=axes)  # of the same name: models without one are called by their class
    named = [line.get_color() for line in axes.get_lines() if line.get_label() in ("net", "other")]
    assert len(set(named)) == 3


def test_a_data_frame_has_a_row_per_sample(evaluations, monkeypatch):
    pytest.importorskip("pandas")
    frame = evaluations[0].to_dataframe()
    assert frame["distance"].tolist() == evaluations[0].distances.tolist()
    assert frame["row"].tolist() == list(range(12))
    assert list(frame.columns[:4]) == ["row", "sample", "label", "prediction"]
    monkeypatch.setitem(__import__("sys").modules, "pandas", None)
    with pytest.raises(FrontierError, match=r"pip install 'advfrontier\[pandas\]'"):
        evaluations[0].to_dataframe()


def test_a_report_of_one_line(evaluations, tmp_path):
    path = evaluations[0].report(tmp_path / "r.html", others=evaluations[1:], radii="0.5")
    text = Path(path).read_text(encoding="utf-8")
    assert path == str(tmp_path / "r.html")
    assert 'data-norm="L2"' in text
    assert 'data-norm="Linf"' in text
    assert "at 0.5" in text


def test_traces_and_ensembles_show_themselves():
    model = conv_net()
    traces = trace(model, *samples(model, 4, (1, 8, 8)), norm="L2", runs=["fmn", "ddn"], queries=40)
    assert repr(traces) == "<Traces of 2 runs in L2, 4 samples, 40 queries each>"
    assert "median after 40" in traces.summary()
    assert traces._repr_html_().count("<tr>") == 3
    ensemble = Ensemble.of("tiny", "L2", RUNS["L2"])
    assert repr(ensemble) == "<Ensemble tiny in L2, 2 runs, 100 queries>"
    assert "fmn       60       60.0" in ensemble.summary()
    assert "<td" in ensemble._repr_html_()
    assert isinstance(ensemble, views.Shown)


def test_a_slash_behind_an_address_leaves_every_record_a_file_of_its_own(tmp_path):
    for name in ("a", "b"):
        model = conv_net()
        images, labels = samples(model, 2, (1, 8, 8))
        tiny = Ensemble.of("tiny", "L2", {"fmn": 10})
        evaluate(
            model,
            images,
            labels,
            norm="L2",
            ensemble=tiny,
            name=name,
            out=f"memory://{tmp_path.name}/{name}",
        )
    for folder in (f"memory://{tmp_path.name}", f"memory://{tmp_path.name}/"):
        found = find_evaluations([folder])
        written = [path for _, path in export_all(found, summarise_all(found), folder, ["csv"])]
        assert written == [f"memory://{tmp_path.name}/{name}/L2.csv" for name in ("a", "b")]


def test_all_exports_at_once(evaluations, tmp_path):
    kinds = parse_formats("csv,npz,card,classes,png,latex,sentence")
    found = summarise_all(evaluations, radii="0.1")
    written = list(export_all(evaluations, found, str(tmp_path), kinds, radii="0.1"))
    assert {what for what, _ in written} == {
        "table",
        "points",
        "card",
        "classes",
        "pictures",
        "sentence",
    }
    classes = (tmp_path / "Linf-classes.csv").read_text().splitlines()
    assert classes[0].startswith(
        "class,name,samples,clean_accuracy,robust_accuracy_at_0.1,median_distance,taken_for"
    )
    assert sum(int(line.split(",")[2]) for line in classes[1:]) == 12
    one = evaluations[1]
    pictures = sorted((tmp_path / "Linf-png").glob("*.png"))
    assert len(pictures) == int(((one.distances > 0) & np.isfinite(one.distances)).sum())
    row = int(pictures[0].name[:6])
    assert pictures[0].name == f"{row:06d}-class{one.labels[row]}-as{one.predictions[row]}.png"
    older, mine = (
        pictures[0].with_name("000000-class3-as77.png"),
        pictures[0].with_name("000001-class3-as77.png"),
    )
    older.write_bytes(pictures[0].read_bytes())
    mine.write_bytes(b"my own picture")
    list(export_all(evaluations, found, str(tmp_path), ["png"]))
    assert sorted((tmp_path / "Linf-png").glob("*.png")) == sorted([*pictures, mine])
    image = pytest.importorskip("PIL.Image").open(pictures[0])
    np.testing.assert_allclose(
        np.asarray(image) / 255, one.adversarials[row, 0], atol=0.5 / 255 + 1e-6
    )
    table = (tmp_path / "summary.tex").read_text()
    assert r"\usepackage{booktabs}" in table
    assert r"$\ell_{2}$ &" in table
    assert r"$\ell_{\infty}$ &" in table
    said = (tmp_path / "sentence.txt").read_text()
    assert said.startswith("net was evaluated with advfrontier ")
    assert "in ℓ2 and ℓ∞ on 12 samples" in said
    assert "@article{advfrontier," in said


def test_a_card_quotes_the_radius_of_the_headline(evaluations, tmp_path):
    one = evaluations[1]
    (found,) = summarise_all([one], radii="0.1,0.2")
    (path,) = export(one, "card", tmp_path / "card.json", radii=[("0.1", 0.1), ("0.2", 0.2)])
    card = json.loads(path.read_text())
    assert card["eps"] == quoted(found).label
    assert (card["advfrontier_aurec"], card["advfrontier_E"]) == (found.aurec.estimate, found.E)


def test_inputs_that_are_long_and_flat_are_no_pictures():
    model = nn.Sequential(nn.Flatten(), nn.Linear(200, 3))
    images = torch.rand(4, 1, 1, 200, generator=torch.Generator().manual_seed(0))
    evaluation = evaluate(model, images, model(images).argmax(1), norm="L2", ensemble=["fmn"])
    assert summarise_all([evaluation])[0].gallery == ()


def test_a_report_names_all_numbers_of_samples_and_queries(tmp_path):
    model = conv_net()
    found = []
    for norm, n, queries in (("L2", 4, 20), ("Linf", 6, 40)):
        own = Ensemble.of("tiny", norm, {"fmn": queries})
        found.append(
            evaluate(model, *samples(model, n, (1, 8, 8)), norm=norm, ensemble=own, name="net")
        )
    path = write_report(tmp_path / "report.html", summarise_all(found))
    page = Path(path).read_text("utf-8")
    assert "4 or 6 samples · at most 20 or 40 queries per sample" in page
    assert "of 4 samples correctly (those of ℓ2)" in page


def test_a_card_names_the_tier_as_it_is_asked_for():
    assert find_ensemble("4k", "Linf", 10).name == "race-4k"
    assert find_ensemble("paper-4k", "Linf", 10).name == "paper-4k"
    assert find_ensemble(2500, "Linf", 10).name == "race-2500"
    assert find_ensemble("paper-8k", "Linf", 10).name == "paper-8k"
