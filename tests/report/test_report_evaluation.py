"""From a real evaluation to its report: what the readers ask of a record is what it has."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from support.models import conv_net, samples

from advfrontier.evaluation.evaluate import evaluate
from advfrontier.evaluation.rank import rank
from advfrontier.evaluation.summary import summarise
from advfrontier.frontier import ReferencePool
from advfrontier.pool import Ensemble
from advfrontier.report import summary_tables, write_report
from advfrontier.report.render import as_text

RUNS = {"L2": {"fmn": 60, "ddn": 40}, "Linf": {"fmn": 60, "apgd_min-dlr": 40}}


@pytest.fixture(scope="module")
def evaluations():
    model = conv_net()
    images, labels = samples(model, 12, (1, 8, 8))
    labels[:2] = (labels[:2] + 1) % 4  # two that are misclassified anyway
    return [
        evaluate(model, images, labels, norm=norm, ensemble=Ensemble.of("tiny", norm, runs), name="net")
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
        e.norm: ReferencePool(e.norm, "noise", 100, e.samples, {"half": e.distances / 2, "twice": e.distances * 2})
        for e in evaluations
    }
    found = [summarise(e, radii=[("0.1", 0.1)], reference=pools[e.norm]) for e in evaluations]
    assert [summary.standing.position for summary in found] == ["2 of 3", "2 of 3"]
    ranking = rank(evaluations, reference=pools)
    assert [row.model for row in ranking.overall] == ["twice", "net", "half"]
    np.testing.assert_allclose([row.doi.estimate for row in ranking.overall], [1, 0.5, 0.25])
    assert "2 of 3" in as_text(*summary_tables(found))
    text = Path(write_report(tmp_path / "r.html", found)).read_text(encoding="utf-8")
    assert "By DOI among the reference models of noise it ranks 2 of 3 in ℓ2 and 2 of 3 in ℓ∞." in text
