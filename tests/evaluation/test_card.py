"""The card of an attack, and what traces show, save and load."""

import json

import numpy as np
import pytest
import torch
from support.models import samples, tanh_mlp

from advfrontier import Traces, trace
from advfrontier.errors import FrontierError
from advfrontier.evaluation.card import attack_card
from advfrontier.flags import Flag, Kind
from advfrontier.frontier import aoi, contributions

SHAPE = (3, 4, 4)


@pytest.fixture(scope="module")
def task():
    model = tanh_mlp(SHAPE, seed=1)
    return model, *samples(model, 8, SHAPE, seed=1, low=0.3, high=0.7)


@pytest.fixture(scope="module")
def traces(task):
    return trace(*task, norm="L2", runs=["ddn", "fmn", "fab_min"], queries=200)


def along(model, images, labels, eps):
    """One gradient step of length eps."""
    points = images.clone().requires_grad_()
    loss = torch.nn.functional.cross_entropy(model(points), labels, reduction="sum")
    (gradient,) = torch.autograd.grad(loss, points)
    sizes = gradient.flatten(1).norm(dim=1).view(-1, 1, 1, 1)
    return (images + eps * gradient / sizes).clamp(0, 1)


@pytest.fixture(scope="module")
def card(task):
    return attack_card(
        "callable:along",
        *task,
        norm="L2",
        runs=["ddn", "fmn"],
        queries=200,
        budgets=(200, 400),
        solvers={"callable:along": along},
    )


def test_card_has_the_figures_of_its_traces(card):
    runs, queries, allocation = (table.records() for table in card.tables())
    last = dict(zip(card.traces.runs, card.traces.distances[:, -1], strict=True))
    frontier = card.traces.frontier()
    own = next(row for row in runs if "this attack" in row["run"])
    assert own["aoi"].estimate == pytest.approx(aoi(last["callable:along"], frontier).value)
    parts = {part.run: part for part in contributions(last)}
    assert own["wins"] == parts["callable:along"].wins
    assert own["loss"] == parts["callable:along"].loss
    assert [row["queries"] for row in queries] == [20, 40, 100, 200]
    assert queries[-1]["attack"] == pytest.approx(card.relative()["callable:along"][-1])
    assert queries[0]["attack"] >= queries[-1]["attack"] >= 0
    assert queries[-1]["pool"] == min(card.relative()[run][-1] for run in ("ddn", "fmn"))
    assert [row["budget"] for row in allocation] == [200, 400]
    for row in allocation:
        assert 0 < row["without"] <= 1
        assert row["joined"] <= 1


def test_allocation_uses_an_attack_that_is_nearest(task):
    runs = ["ddn", "callable:along"]
    given = {"callable:along": along}
    found = attack_card(
        "fmn", *task, norm="L2", runs=runs, queries=200, budgets=(200,), solvers=given
    )
    (only,) = found.allocated
    assert only.queries > 0
    assert only.joined > only.without


def test_card_is_json_and_a_figure(card, tmp_path):
    pytest.importorskip("matplotlib", reason="figures need the extra of that name")
    from advfrontier.report.views import draw_card  # noqa: PLC0415 - needs matplotlib

    facts = json.loads(json.dumps(card.to_dict()))
    assert facts["attack"] == "callable:along"
    assert {"runs", "queries", "allocation", "counts"} <= set(facts)
    path = draw_card(card, tmp_path / "card.pdf")
    content = (tmp_path / "card.pdf").read_bytes()
    assert path.endswith("card.pdf")
    assert content[:4] == b"%PDF"
    assert b"234" in content[content.index(b"/MediaBox") :][:60]


def test_attack_alone_has_no_card(task):
    with pytest.raises(FrontierError, match="nothing to compare fmn with"):
        attack_card("fmn", *task, norm="L2", runs=["fmn"])


def test_traces_are_saved_and_loaded(traces, tmp_path):
    flag = Flag(Kind.RANDOM, "varies")
    changed = Traces(**{**vars(traces), "flags": (flag,)})
    changed.save(tmp_path / "traces.npz")
    loaded = Traces.load(tmp_path / "traces.npz")
    assert np.array_equal(loaded.distances, traces.distances)
    assert np.array_equal(loaded.queries, traces.queries)
    assert (loaded.runs, loaded.samples, loaded.norm) == (traces.runs, traces.samples, "L2")
    assert loaded.flags == (flag,)
    assert loaded.counts == dict(traces.counts)
    with pytest.raises(FrontierError, match=r"no file .*nothing\.npz"):
        Traces.load(tmp_path / "nothing.npz")
    (tmp_path / "other.npz").write_bytes(b"no archive")
    with pytest.raises(FrontierError, match="does not hold traces"):
        Traces.load(tmp_path / "other.npz")
    with pytest.raises(FrontierError, match="was not written by advfrontier"):
        traces.save(tmp_path / "other.npz")


def test_traces_have_aoi_with_intervals(traces):
    scores = traces.aoi()
    frontier = traces.frontier()
    assert list(scores) == list(traces.runs)
    for run, distances in zip(traces.runs, traces.distances, strict=True):
        assert scores[run].estimate == pytest.approx(aoi(distances[-1], frontier).value)
        assert scores[run].low <= scores[run].estimate <= scores[run].high


def test_traces_are_a_dataframe(traces):
    pytest.importorskip("pandas", reason="an extra")
    frame = traces.to_dataframe()
    assert list(frame.columns) == ["run", "queries", "sample", "distance"]
    assert len(frame) == traces.distances.size
    row = frame[
        (frame.run == "fmn") & (frame.queries == 100) & (frame["sample"] == traces.samples[3])
    ]
    assert row.distance.item() == traces.distances[traces.runs.index("fmn"), 9, 3]


def test_traces_are_drawn_and_reported(traces, tmp_path):
    pytest.importorskip("matplotlib", reason="figures need the extra of that name")
    from matplotlib.figure import Figure  # noqa: PLC0415 - an extra

    axes = traces.plot(Figure().subplots())
    lines = {line.get_label(): line for line in axes.get_lines()}
    assert {"ddn", "fmn", "fab_min", "frontier"} == set(lines)
    assert lines["ddn"].get_ydata()[-1] == pytest.approx(traces.distances[0, -1].mean())
    traces.report(tmp_path / "traces.html")
    page = (tmp_path / "traces.html").read_text("utf-8")
    assert page.count("<svg") == 1
    assert "fab_min" in page
