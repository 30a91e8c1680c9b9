"""What a benchmark writes: every table of the paper's experiments, as text, as JSON and as figures."""

import json
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from test_bench_experiment import subject

import advfrontier.report.experiment as report
from advfrontier.evaluation.experiment import KnownPoints, experiment, norm_experiment
from advfrontier.pool import paper_ensemble
from advfrontier.report.experiment import results_json, results_markdown, write_experiment

BUDGETS = (4000, 8000, 12000)
HEADINGS = (
    "Ensembles",
    "Attack optimality (AOI)",
    "AOI against the query budget",
    "Best and worst case against AutoAttack",
    "Robust accuracy at the reference radius",
    "Curves that cross beyond the reference radius",
    "Ranks depend on the radius",
    "Models by DOI",
    "Robustness curves and the defence frontier",
    "Rejecting a model early",
)


@pytest.fixture(scope="module")
def made():
    """Two norms, four models: a weak one with a bar in its name, two that cross, one in doubt."""
    rng = np.random.default_rng(0)
    hardness = rng.lognormal(0, 0.6, 80)
    norms = {}
    for norm in ("L0", "L2"):
        subjects = []
        shapes = {"A|B": (0.2, 1.0), "C": (1.0, 1.0), "$D_1$": (1.1, 0.5), "E": (2.0, 1.0)}
        for k, (name, (scale, power)) in enumerate(shapes.items()):
            last = np.where(rng.random(80) < 0.1, 0.0, scale * hardness**power)
            tiers = {budget: last * (1 + 40 / budget) for budget in BUDGETS}
            radii = np.quantile(last, np.linspace(0.2, 0.9, 8))
            known = KnownPoints(
                (*radii.tolist(), 9.0), (*np.mean(last[None] > radii[:, None], axis=1).tolist(), 0.0), (500.0,) * 9
            )
            subjects.append(
                subject(
                    name,
                    "train" if k < 2 else "held-out",
                    tiers,
                    known=known if norm == "L2" else None,
                    doubts=["the model is random"] if k == 3 else (),
                )
            )
        ensembles = {budget: paper_ensemble(f"paper-{budget // 1000}k", norm) for budget in BUDGETS}
        notes = ["no baseline: AutoAttack does not attack in L0"] if norm == "L0" else []
        norms[norm] = norm_experiment(norm, subjects, ensembles, radii={"d": [0.8, 9.0]}, notes=notes)
    return experiment("made", BUDGETS, norms, failures=["F in L2, trace: out of memory"])


def test_page_holds_every_table(made):
    page = results_markdown(made)
    headings = [line.removeprefix("## ") for line in page.splitlines() if line.startswith("## ")]
    assert [heading for heading in HEADINGS if "curves and the defence" not in heading] == headings
    assert "no figures: matplotlib is not installed" in page
    assert "F in L2, trace: out of memory" in page
    assert "AutoAttack does not attack in L0" in page
    assert "| — targets | – | 1600 | 3200 |" in page  # of sigma_zero, as the paper has it
    rows = [line for line in page.splitlines() if line.startswith("|")]
    assert not any("A|B" in row for row in rows)  # a bar would end the cell
    for first, second in pairwise(rows):
        if second.startswith("| :--"):
            assert first.count("|") == second.count("|")
    best = made.norms["L2"].attacks.aoi[0]
    assert f"{100 * best.tiers[4000]:.2f}" in page


def test_json_holds_the_same_numbers(made):
    content = json.loads(json.dumps(results_json(made), allow_nan=False))
    table = content["norms"]["L2"]["attacks"]
    assert [row["tiers"]["8000"] for row in table["aoi"]] == [r.tiers[8000] for r in made.norms["L2"].attacks.aoi]
    (reference,) = {row["epsilon"] for row in table["robust"]["rows"] if row["baseline"] is not None}
    assert reference == 9.0  # AutoAttack was not run at the other
    assert content["norms"]["L0"]["defences"]["d"]["doi"]["rows"]
    assert content["cases"][0]["gain"] >= content["cases"][1]["gain"]


def test_every_figure_is_drawn_and_linked(made, tmp_path):
    written = write_experiment(made, tmp_path)
    names = {"growth", "cases", "crossings", "instability", "curves", "early-rejection"}
    assert {path.stem for path in written} == names | {"results"}
    page = (tmp_path / "results.md").read_text(encoding="utf-8")
    for name in names:
        assert f"(figures/{name}.png)" in page
        assert (tmp_path / "figures" / f"{name}.png").stat().st_size > 5000
        assert (tmp_path / "figures" / f"{name}.pdf").read_bytes().startswith(b"%PDF")
    assert [heading for heading in HEADINGS if f"## {heading}" in page] == list(HEADINGS)


def test_without_matplotlib_the_rest_is_written(made, tmp_path, monkeypatch):
    monkeypatch.setattr(report, "drawable", lambda: False)
    written = write_experiment(made, tmp_path)
    assert {Path(path).name for path in written} == {"results.md", "results.json"}
    assert "advfrontier[figures]" in (tmp_path / "results.md").read_text(encoding="utf-8")
