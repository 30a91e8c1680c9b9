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
    from typing import ClassVar
    from advfrontier.pool import SolverFacts
    from advfrontier.solvers.ddn import DdnState, Ddn

    @dataclass(frozen=True)
    class Shy(Ddn):
        facts: ClassVar[SolverFacts] = SolverFacts("shy", ("L2",), restarts=False, targets=False)
        radius: float = 0.1

    @dataclass(frozen=True)
    class Choosy(Ddn):
        facts: ClassVar[SolverFacts] = SolverFacts("choosy", ("L2",), losses=("ce", "margin"), restarts=False)
        loss_name: str = "ce"

        def loss(self, i):
            return self.loss_name

    class Nameless:
        facts = SolverFacts("another", ("L2",))

    class Usurper(Ddn):
        pass
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


def test_a_solver_of_another_package_runs_like_any_other(install):
    install(shy="Shy", choosy="Choosy")
    solvers = discover()
    assert set(solvers) == {"shy", "choosy-ce", "choosy-margin"}
    assert {"shy", "choosy-margin:target3"} <= {str(run) for run in pool("L2", name="extended")}
    assert "shy" not in {str(run) for run in pool("L2", name="paper")}
    model = tanh_mlp(seed=1)
    images, labels = samples(model, 4, seed=1)
    traces = trace(
        model,
        images,
        labels,
        norm="L2",
        runs=["shy", "choosy-margin:target1"],
        queries=100,
        solvers=solvers,
    )
    assert np.isfinite(traces.frontier()).all()
    assert traces.counts["attack"] == 2 * 4 * 100


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        (
            {"absent": "Missing"},
            r"plug-in absent \(shy_package:Missing of shy-package\) cannot be used: AttributeError",
        ),
        ({"nameless": "Nameless"}, "takes no arguments|expected SolverFacts"),
        ({"ddn": "Usurper"}, "there is a solver ddn already"),
    ],
)
def test_a_broken_plugin_is_named(install, entries, message):
    install(**entries)
    with pytest.raises(FrontierError, match=message):
        discover()


def test_a_second_try_blames_the_broken_plugin_again(install):
    install(shy="Shy", zz_absent="Missing")
    for _ in range(2):
        with pytest.raises(FrontierError, match="plug-in zz_absent"):
            discover()
    assert "shy" not in CATALOGUE


def test_without_plugins_nothing_changes(install):
    before = dict(CATALOGUE)
    assert discover() == {}
    assert before == CATALOGUE


def test_an_installed_solver_is_known_by_its_name_everywhere(install):
    install(shy="Shy", choosy="Choosy")
    assert "shy" in {str(run) for run in pool("L2", name="extended")}
    assert "shy" not in {str(run) for run in pool("L2", name="paper")}
    model = tanh_mlp(seed=1)
    images, labels = samples(model, 4, seed=1)
    traces = trace(
        model, images, labels, norm="L2", runs=["shy", "choosy-margin:target1", "ddn"], queries=100
    )
    assert np.isfinite(traces.frontier()).all()
    assert (traces.distances[0] != traces.distances[2]).any()
