"""What a benchmark writes: every table of the paper's experiments, as text, as JSON and as figures."""

import json
import re
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from bench_subjects import subject

import advfrontier.report.benchmark as report
import advfrontier.report.benchmark_figures as figures
from advfrontier.attacks.autoattack import KnownPoints
from advfrontier.bench import NormResults, Results, model_tables
from advfrontier.bench.benchmark import BenchmarkModel
from advfrontier.errors import FrontierError
from advfrontier.flags import Flag, Kind
from advfrontier.pool import Ensemble, paper_ensemble
from advfrontier.report.benchmark import results_json, results_markdown, write_page, write_results

BUDGETS = (4000, 8000, 12000)
HEADINGS = (
    "At a glance",
    "Models",
    "What was learned",
    "Attack optimality (AOI)",
    "Mean distance above the frontier",
    "What more queries add",
    "Robust accuracy at the reference radius",
    "Against AutoAttack",
    "Other ways to give out the queries",
    "Curves that cross beyond the reference radius",
    "Ranks depend on the radius",
    "Models by DOI",
    "Robustness curves and the defence frontier",
    "Rejecting a model early",
)


def model(name, source=None, *, split="train", batch=50, baseline_batch=50, **more):
    more |= {} if source else {"origin": "by hand"}
    return BenchmarkModel(
        id=name,
        source=source,
        data="d",
        split=split,
        batch=batch,
        baseline_batch=baseline_batch,
        **more,
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
                (*radii.tolist(), 9.0),
                (*np.mean(last[None] > radii[:, None], axis=1).tolist(), 0.0),
                (500.0,) * 9,
            )
            subjects.append(
                subject(
                    name,
                    "train" if k < 2 else "held-out",
                    tiers,
                    known=known if norm == "L2" else None,
                    doubts=[Flag(Kind.RANDOM, "the model is random")] if k == 3 else (),
                )
            )
        ensembles = {budget: paper_ensemble(f"paper-{budget // 1000}k", norm) for budget in BUDGETS}
        notes = ["no baseline: AutoAttack does not attack in L0"] if norm == "L0" else []
        norms[norm] = NormResults(norm, subjects, ensembles, radii={"d": [0.8, 9.0]}, notes=notes)
    models = (
        model("A|B", "zoo:A", trained=("L1", "Linf")),
        model(
            "C", "zoo:C", baseline_batch=20, authors="Curie 1903", note="which of two is not known"
        ),
        model("F", split="held-out"),
    )
    return Results("made", BUDGETS, norms, models, ("F in L2, trace: out of memory",))


def doi_rows(made, norm):
    table = model_tables.doi(made.norms[norm].groups["d"], title="")
    return {row["model"]: row for row in table.records()}


def test_page_holds_every_table(made):
    page = results_markdown(made)
    headings = [line.removeprefix("## ") for line in page.splitlines() if line.startswith("## ")]
    assert [heading for heading in HEADINGS if "curves and the defence" not in heading] == headings
    assert "no figures: matplotlib is not installed" in page
    assert "F in L2, trace: out of memory" in page
    assert "AutoAttack does not attack in L0" in page
    assert "| sigma_zero | targets | – | 1,600 | 3,200 |" in page  # as the paper has it
    rows = [line for line in page.splitlines() if line.startswith("|")]
    assert not any("A|B" in row for row in rows)  # a bar would end the cell
    for first, second in pairwise(rows):
        if second.startswith("| :--"):
            assert first.count("|") == second.count("|")
    best = made.norms["L2"].subjects[0]
    assert f"{100 * best.aois['greedy'][4000].value:.2f}" in page


def lines_of(page, heading):
    """The lines of one section."""
    after = page.split(f"## {heading}\n")[1]
    return after.split("\n## ")[0].splitlines()


def test_models_are_named_first_with_their_ranks_side_by_side(made):
    found = lines_of(results_markdown(made), "Models")
    columns = "d | authors | source | trained in | split | batch | AutoAttack's batch | accuracy | rank in ℓ0 | rank in ℓ2"
    assert f"| {columns} |" in found
    clean = {s.model: 100 * np.mean(s.frontier > 0) for s in made.norms["L0"].subjects}
    first, second = (
        tuple(doi_rows(made, norm)[name]["rank"] for norm in ("L0", "L2")) for name in ("A|B", "C")
    )
    assert (
        f"| A/B | – | `zoo:A` | ℓ1, ℓ∞ | train | 50 | 50 | {clean['A|B']:.1f} | {first[0]} | {first[1]} |"
        in found
    )
    assert (
        f"| C | Curie 1903 | `zoo:C` | – | train | 50 | 20 | {clean['C']:.1f} | {second[0]} | {second[1]} |"
        in found
    )
    assert "| F | – | – | – | held-out | 50 | 50 | – | – | – |" in found
    assert "- C: which of two is not known" in found


def test_a_doi_in_doubt_is_in_brackets_and_a_model_in_doubt_last(made):
    found = lines_of(results_markdown(made), "Models by DOI")
    for norm in ("L0", "L2"):
        row = doi_rows(made, norm)["C"]
        small, middle, large = (
            f"{100 * row['4k'].value:.1f}",
            f"{100 * row['8k']:.1f}",
            f"{100 * row['12k']:.1f}",
        )
        assert f"| {row['rank']} | C | ({small}) | {middle} | {large} |" in found
        assert list(doi_rows(made, norm)) == ["C", "$D_1$", "A|B", "E"]
        values = " | ".join(
            f"({100 * doi_rows(made, norm)['E'][name].value:.1f})" for name in ("4k", "8k", "12k")
        )
        assert f"| (1) | E | {values} |" in found
    assert found.count("- C: 1 of 80 samples were never broken (at 4k)") == 2
    assert found.count("- E: the model is random") == 2
    assert (
        sum("| 4 | 2 | yes | 0.0 |" in line for line in found) == 2
    )  # two of four are trusted at every tier
    beyond = [
        figure
        for line in found
        for figure in re.findall(r"(?<![\d(])(?:100\.[1-9]|10[1-9]\.|1[1-9]\d\.)", line)
    ]
    assert beyond == []


def test_flags_of_an_aoi_stand_below_its_table(made):
    found = lines_of(results_markdown(made), "Attack optimality (AOI)")
    flagged = made.norms["L2"].tables()["aoi"].notes
    assert len(flagged) == 4  # at 9 AutoAttack broke what the frontier left
    for note in flagged:
        assert "below the frontier" in note
        assert f"- {note}" in found


def test_counts_are_given_for_all_models_and_over_all_norms(made):
    page = results_markdown(made)
    found = lines_of(page, "Attack optimality (AOI)")
    tables = made.norms["L2"].tables()
    rows = {row["what"]: row for row in tables["aoi_summary"].records() if row["split"] == "all"}
    columns = ("greedy-4k", "greedy-8k", "greedy-12k")
    exact = " | ".join(f"{rows['at least AutoAttack'][name].count}/4" for name in columns)
    straight = " | ".join(f"{rows['the same by lines'][name].count}/4" for name in columns)
    assert (
        f"| at least AutoAttack | all | 4 | – | {exact} | 26/30 | 28/30 | 29/30 |" in found
    )  # the paper's in the end
    assert f"| the same by lines | all | 4 | – | {straight} | – | – | – |" in found
    against = lines_of(page, "Against AutoAttack")
    assert f"| AOI at least AutoAttack's | all | {exact} | 26/30 | 28/30 | 29/30 |" in against
    assert f"| the same by lines | all | {straight} | – | – | – |" in against
    robust = tables["robust_accuracy_summary"].records()
    assert {row["epsilon"] for row in robust} == {"9"}  # AutoAttack was not run at the first radius
    assert robust[-2]["greedy-4k"].of == 4
    assert not any("at least as strong at the reference" in line for line in page.splitlines())


def test_ranks_by_autoattack_stand_beside_ours(made):
    found = lines_of(results_markdown(made), "Ranks depend on the radius")
    by_lines, by_tier = model_tables.baseline_stability(made.norms["L2"].groups["d"])
    for by, ranking in (("AutoAttack", by_lines), ("12k where AutoAttack was run", by_tier)):
        moved = list(ranking.moved.values())
        (row,) = [line for line in found if line.startswith(f"| ℓ2 | {by} |")]
        assert f"| 3 | {sum(m >= 2 for m in moved)} | {sum(m >= 5 for m in moved)} |" in row
    assert [line.split(" | ")[1] for line in found if line.startswith("| ℓ0 |")] == [
        "12k"
    ]  # no AutoAttack there


def test_json_holds_the_same_numbers(made):
    content = json.loads(json.dumps(results_json(made), allow_nan=False))
    tables = content["norms"]["L2"]["tables"]
    subjects = made.norms["L2"].subjects
    assert [row["greedy-8k"] for row in tables["aoi"]["rows"]] == [
        s.aois["greedy"][8000].value for s in subjects
    ]
    assert tables["aoi"]["rows"][0]["AutoAttack"]["low"] == subjects[0].baseline.low
    (reference,) = {
        row["epsilon"] for row in tables["robust_accuracy"]["rows"] if row["AutoAttack"] is not None
    }
    assert reference == 9.0  # AutoAttack was not run at the other
    groups = content["norms"]["L2"]["data"]["d"]["tables"]
    assert groups["doi"]["rows"][-1]["12k"] == {
        "value": doi_rows(made, "L2")["E"]["12k"].value,
        "in_doubt": True,
    }
    assert [row["model"] for row in groups["ranks_by_autoattack"]["rows"]] == ["A|B", "C", "$D_1$"]
    assert [row["model"] for row in content["models"]["d"]["rows"]] == ["A|B", "C", "F"]
    assert {row["split"] for row in content["tables"]["totals"]["rows"]} == {
        "train",
        "held-out",
        "all",
    }
    best, worst = content["tables"]["cases"]["rows"]
    assert best["gain"] >= worst["gain"]
    assert len(tables["growth"]["rows"]) == len(subjects[0].growth)


def test_every_figure_is_drawn_and_linked(made, tmp_path):
    written = write_results(made, tmp_path)
    names = {"growth", "cases", "crossings", "instability", "curves", "early-rejection"}
    assert {path.stem for path in written} == names | {
        "results",
        "leaderboard",
        "L0-greedy",
        "L2-greedy",
    }
    page = (tmp_path / "results.md").read_text(encoding="utf-8")
    for name in names:
        assert f"(figures/{name}.png)" in page
        assert (tmp_path / "figures" / f"{name}.png").stat().st_size > 5000
        assert (tmp_path / "figures" / f"{name}.pdf").read_bytes().startswith(b"%PDF")
    assert [heading for heading in HEADINGS if f"## {heading}" in page] == list(HEADINGS)


def test_a_model_has_one_colour_in_all_panels_of_a_figure(made):
    drawn = dict(figures._figures(made))
    for name in ("crossings", "instability", "curves", "early-rejection"):
        colours = {}
        for axes in drawn[name].axes:
            for line in axes.get_lines():
                model = str(line.get_label()).split(" at ")[0]
                if not model.startswith("_"):
                    colours.setdefault(model, set()).add(str(line.get_color()))
        assert {"C", "A|B"} & set(colours) or {"C", "$D_1$"} <= set(colours)
        assert [model for model, found in colours.items() if len(found) > 1] == []


def test_without_matplotlib_the_rest_is_written(made, tmp_path, monkeypatch):
    monkeypatch.setattr(report, "drawable", lambda: False)
    written = write_results(made, tmp_path)
    assert {Path(path).name for path in written} == {
        "results.md", "results.json", "leaderboard.html", "L0-greedy.toml", "L2-greedy.toml",
    }  # fmt: skip
    assert "advfrontier[figures]" in (tmp_path / "results.md").read_text(encoding="utf-8")


def test_what_lies_beside_a_page_is_replaced_whole_and_named_where_it_is_forged(made, tmp_path):
    page, beside, kept = (
        tmp_path / "page.md",
        tmp_path / "page" / "results.json",
        tmp_path / "kept.json",
    )
    beside.parent.mkdir()
    beside.write_text('{"norms": 5}')
    with pytest.raises(FrontierError, match=r"results\.json is damaged"):
        report.check_page(str(page), ["L2"])
    kept.hardlink_to(beside)
    write_page(made, page)
    assert (
        kept.read_text() == '{"norms": 5}'
    )  # written aside and renamed: a run that is killed leaves the old one
    report.check_page(str(page), made.norms)


def test_a_page_for_a_site_finds_its_files_beside_it(made, tmp_path):
    written = write_page(made, tmp_path / "results.md")
    text = written[0].read_text(encoding="utf-8")
    assert written[0] == tmp_path / "results.md"
    linked = re.findall(r"\]\(([^)]+)\)", text)
    assert {tmp_path / name for name in linked} == set(written[1:])
    assert all(
        path.is_file() and path.stat().st_size < 100_000
        for path in written
        if path.suffix == ".png"
    )
    learned = tmp_path / "results" / "ensembles" / "L2-greedy.toml"
    train, apart = (
        np.mean([s.aois["greedy"][4000].value for s in made.norms["L2"].subjects[k : k + 2]])
        for k in (0, 2)
    )
    first = learned.read_text(encoding="utf-8").splitlines()[0]
    assert first.startswith(
        f"# greedy-4k: AOI {100 * train:.2f} % on train models; {100 * apart:.2f} % on held-out"
    )
    assert Ensemble.load(learned) == made.norms["L2"].ensembles[12000]
