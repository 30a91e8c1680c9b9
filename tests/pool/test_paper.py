"""The paper's ensembles, from its published totals."""

import json
from pathlib import Path

import pytest
from support.nesting import contains, obeys_rules

from advfrontier.errors import FrontierError
from advfrontier.pool import PAPER_TIERS, Run, paper_ensemble
from advfrontier.pool.paper import published_totals
from advfrontier.threat.names import NORMS

TABLES = Path(__file__).resolve().parents[3] / "shared" / "paper" / "tables.json"


@pytest.mark.parametrize("norm", NORMS)
def test_paper_ensembles_have_their_totals_obey_the_rules_and_nest(norm):
    tiers = [paper_ensemble(name, norm) for name in PAPER_TIERS]
    for ensemble, total in zip(tiers, (4000, 8000, 12000), strict=True):
        assert ensemble.total == total
        ensemble.check(classes=10)
        assert obeys_rules(ensemble.queries)
        assert tiers[-1].at(total).queries == ensemble.queries
        assert tiers[-1].holds(ensemble)
    assert contains(tiers[1], tiers[0])
    assert contains(tiers[2], tiers[1])
    assert not contains(tiers[0], tiers[1])
    assert not tiers[0].holds(tiers[1])


@pytest.mark.parametrize("norm", NORMS)
def test_paper_ensembles_split_the_published_totals(norm):
    variants = {"base": "base", "restarts": "restart", "targets": "target"}
    for place, name in enumerate(PAPER_TIERS):
        spent = {}
        for run_name, queries in paper_ensemble(name, norm).queries.items():
            run = Run.parse(run_name)
            key = run.attack, run.variant
            spent[key] = spent.get(key, 0) + queries
        for attack, groups in published_totals()[norm].items():
            for group, variant in variants.items():
                assert spent.get((attack, variant), 0) == groups.get(group, [0, 0, 0])[place]


@pytest.mark.skipif(not TABLES.exists(), reason="the paper's tables are not on this machine")
def test_published_totals_are_the_papers():
    paper = json.loads(TABLES.read_text())["ensembles"]
    ours = published_totals()
    assert set(paper) == set(NORMS)
    for norm, attacks in paper.items():
        assert set(attacks) == set(ours[norm])
        for attack, groups in attacks.items():
            found = ours[norm][attack]
            assert found["base"] == groups["base"]
            assert found.get("restarts", [0, 0, 0]) == groups["restarts"]
            assert found.get("targets", [0, 0, 0]) == groups["targeted"]


def test_few_classes_drop_targets_and_the_total_says_so():
    ten, three = paper_ensemble("paper-12k", "L0"), paper_ensemble("paper-12k", "L0", classes=3)
    dropped = set()
    for name in ten.runs:
        run = Run.parse(name)
        if run.variant == "target" and run.index > 2:
            dropped.add(name)
    assert set(ten.runs) - set(three.runs) == dropped
    assert three.total == 12000 - sum(ten.queries[run] for run in dropped)
    three.check(classes=3)
    with pytest.raises(FrontierError, match="3 classes"):
        ten.check(classes=3)


def test_unknown_paper_ensemble_is_named():
    with pytest.raises(FrontierError, match=r"unknown ensemble 'paper-5k': .*paper-4k"):
        paper_ensemble("paper-5k", "L2")
