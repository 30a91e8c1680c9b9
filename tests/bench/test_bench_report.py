"""What a benchmark writes: every table of the paper's experiments, as text, as JSON and as figures."""

import json
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from test_bench_experiment import subject

import advfrontier.report.experiment as report
from advfrontier.evaluation.experiment import KnownPoints, ModelFacts, experiment, norm_experiment
from advfrontier.pool import paper_ensemble
from advfrontier.report.experiment import results_json, results_markdown, write_experiment

BUDGETS = (4000, 8000, 12000)
HEADINGS = (
    "Models",
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
            if name == "C":
                tiers[4000][np.argmax(last)] = np.inf  # which more queries break
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
    facts = [
        ModelFacts("A|B", "d", "train", 50, 50, "zoo:A", trained=("L1", "Linf")),
        ModelFacts("C", "d", "train", 50, 20, "zoo:C", authors="Curie 1903", notes=("which of two is not known",)),
        ModelFacts("F", "d", "held-out", 50, 50),
    ]
    return experiment("made", BUDGETS, norms, models=facts, failures=["F in L2, trace: out of memory"])


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


def lines_of(page, heading):
    """The lines of one section."""
    after = page.split(f"## {heading}\n")[1]
    return after.split("\n## ")[0].splitlines()


def test_models_are_named_first_with_their_ranks_side_by_side(made):
    found = lines_of(results_markdown(made), "Models")
    assert "| d | authors | source | trained in | split | batch | accuracy | rank in ℓ0 | rank in ℓ2 |" in found
    clean = {s.model: 100 * np.mean(s.frontier > 0) for s in made.norms["L0"].subjects}
    ranks = {row.facts.model: row.ranks for row in made.models}
    first, second = ranks["A|B"], ranks["C"]
    assert f"| A/B | – | `zoo:A` | ℓ1, ℓ∞ | train | 50 | {clean['A|B']:.1f} | {first['L0']} | {first['L2']} |" in found
    assert (
        f"| C | Curie 1903 | `zoo:C` | – | train | 50 (AutoAttack: 20) | {clean['C']:.1f} | {second['L0']} | "
        f"{second['L2']} |" in found
    )
    assert "| F | – | – | – | held-out | 50 | – | – | – |" in found
    assert "- C: which of two is not known" in found


def test_a_doi_is_bracketed_at_the_tier_that_left_samples_unbroken(made):
    found = lines_of(results_markdown(made), "Models by DOI")
    for norm in ("L0", "L2"):
        (row,) = [row for row in made.norms[norm].defences["d"].tables.doi.rows if row.model == "C"]
        small, middle, large = (f"{100 * row.dois[budget]:.1f}" for budget in BUDGETS)
        assert f"| {row.positions[12000]} | C | ({small}) | {middle} | {large} |" in found
    assert found.count("- C: 1 of 80 samples were never broken (at 4k)") == 2
    assert found.count("- E: the model is random") == 2
    assert sum("2 of 4 models can be trusted at every tier. With these alone" in line for line in found) == 2


def test_flags_of_an_aoi_stand_below_its_table(made):
    found = lines_of(results_markdown(made), "Attack optimality (AOI)")
    flagged = {row.model: row.flags for row in made.norms["L2"].attacks.aoi if row.flags}
    assert flagged  # at 9 AutoAttack broke what the frontier left
    for model, flags in flagged.items():
        assert any("below the frontier" in flag for flag in flags)
        assert f"- {model}: {'; '.join(flags)}" in found


def test_counts_are_given_for_all_models_and_over_all_norms(made):
    page = results_markdown(made)
    found = lines_of(page, "Attack optimality (AOI)")
    tables = made.norms["L2"].attacks
    everyone = tables.aoi_summaries[-1]
    assert everyone.split == "all"
    exact = " | ".join(f"{everyone.matched[budget]}/4" for budget in BUDGETS)
    straight = " | ".join(f"{everyone.matched_straight[budget]}/4" for budget in BUDGETS)
    blank = " | ".join([""] * (1 + len(tables.aoi[0].paper)))
    assert f"| *at least AutoAttack* | all | {blank} | {exact} | {straight} |  |" in found
    assert f"| AOI at least AutoAttack's | all | {exact} |" in found
    assert f"| the same by lines | all | {straight} |" in found
    robust = {(s.place, s.split): s for s in tables.robust.summaries}
    assert {place for place, _ in robust} == {1}  # AutoAttack was not run at the first radius
    assert robust[1, "all"].compared == 4
    assert not any("at least as strong at the reference" in line for line in page.splitlines())


def test_one_case_alone_is_not_told_twice(made):
    best, _ = made.cases
    page = results_markdown(replace(made, cases=(best, best)))
    (line,) = [line for line in lines_of(page, "Best and worst case against AutoAttack") if line.startswith("- ")]
    assert line.startswith(f"- Only: {best.model} (")


def test_ranks_by_autoattack_stand_beside_ours(made):
    found = lines_of(results_markdown(made), "Ranks depend on the radius")
    (headings,) = [line for line in found if line.startswith("| AutoAttack |")]
    assert headings.endswith("| radii | 12k: by 2 or more | 12k: by 5 or more |")
    both = made.norms["L2"].defences["d"].tables.baseline_instability
    (row,) = [line for line in found[found.index(headings) :] if line.startswith("| ℓ2 |")]
    assert row.startswith(f"| ℓ2 | 3 | {both.baseline.by_two} | {both.baseline.by_five} |")
    assert not [line for line in found[found.index(headings) :] if line.startswith("| ℓ0 |")]  # no AutoAttack there


def test_json_holds_the_same_numbers(made):
    content = json.loads(json.dumps(results_json(made), allow_nan=False))
    table = content["norms"]["L2"]["attacks"]
    assert [row["tiers"]["8000"] for row in table["aoi"]] == [r.tiers[8000] for r in made.norms["L2"].attacks.aoi]
    (reference,) = {row["epsilon"] for row in table["robust"]["rows"] if row["baseline"] is not None}
    assert reference == 9.0  # AutoAttack was not run at the other
    assert content["norms"]["L0"]["defences"]["d"]["doi"]["rows"]
    assert content["norms"]["L2"]["defences"]["d"]["baseline_instability"]["baseline"]["ranks"]["C"]
    assert [row["facts"]["model"] for row in content["models"]] == ["A|B", "C", "F"]
    assert {total["split"] for total in content["totals"]} == {"train", "held-out", "all"}
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
