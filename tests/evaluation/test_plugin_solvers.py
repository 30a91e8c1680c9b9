"""Solvers that another package brings along, found by its entry points."""

import sys
import textwrap

import numpy as np
import pytest
from support.models import samples, tanh_mlp

from advfrontier import trace
from advfrontier.errors import FrontierError
from advfrontier.pool import CATALOGUE, pool
from advfrontier.pool.plugins import discover

MODULE = """
    from dataclasses import dataclass
    from advfrontier.pool import SolverFacts
    from advfrontier.solvers import DDN

    @dataclass(frozen=True)
    class Shy(DDN):
        gamma: float = 0.1

    @dataclass(frozen=True)
    class Choosy(DDN):
        loss_name: str = "ce"

        def loss(self, i):
            return self.loss_name

    SHY = SolverFacts("shy", "shy_package:Shy", norms=("L2",), restarts=False, targets=False)
    CHOOSY = SolverFacts(
        "choosy", "shy_package:Choosy", norms=("L2",), losses=("ce", "margin"), restarts=False
    )
    USURPER = SolverFacts("ddn", "shy_package:Shy", norms=("L2",))
"""


@pytest.fixture
def install(tmp_path, monkeypatch):
    """Install a fake distribution with these entry points; afterwards nothing of it is left."""

    def installed(**entries):
        (tmp_path / "shy_package.py").write_text(textwrap.dedent(MODULE))
        info = tmp_path / "shy_package-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text("Metadata-Version: 2.1\nName: shy-package\nVersion: 1.0\n")
        lines = [f"{name} = shy_package:{value}" for name, value in entries.items()]
        (info / "entry_points.txt").write_text("\n".join(["[advfrontier.solvers]", *lines, ""]))
        monkeypatch.syspath_prepend(tmp_path)
        discover.cache_clear()

    before = dict(CATALOGUE)
    yield installed
    CATALOGUE.clear()
    CATALOGUE.update(before)
    sys.modules.pop("shy_package", None)
    discover.cache_clear()


def test_solver_of_another_package_runs_like_any_other(install):
    install(shy="SHY", choosy="CHOOSY")
    extended = {str(run) for run in pool("L2", name="extended")}
    assert {"shy", "choosy-ce", "choosy-margin:target3"} <= extended
    assert "shy" not in {str(run) for run in pool("L2", name="paper")}
    model = tanh_mlp(seed=1)
    images, labels = samples(model, 4, seed=1)
    runs = ["shy", "choosy-margin:target1", "ddn"]
    traces = trace(model, images, labels, norm="L2", runs=runs, queries=100)
    assert np.isfinite(traces.frontier()).all()
    assert traces.counts["attack"] == 3 * 4 * 100
    assert (traces.distances[0] != traces.distances[2]).any()


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        (
            {"absent": "MISSING"},
            r"plug-in absent \(shy_package:MISSING of shy-package\) cannot be used: AttributeError",
        ),
        ({"shy": "Shy"}, "does not describe a solver: expected SolverFacts"),
        ({"other": "SHY"}, "its facts name shy: expected other"),
        ({"ddn": "USURPER"}, "there is a solver ddn already"),
    ],
)
def test_broken_plugin_is_named(install, entries, message):
    install(**entries)
    with pytest.raises(FrontierError, match=message):
        discover()


def test_broken_plugin_is_named_again(install):
    install(shy="SHY", zz_absent="MISSING")
    for _ in range(2):
        with pytest.raises(FrontierError, match="plug-in zz_absent"):
            discover()
    assert "shy" not in CATALOGUE


def test_without_plugins_nothing_changes(install):
    before = dict(CATALOGUE)
    discover()
    assert before == CATALOGUE
