"""The simulation of scale, where its answer is known."""

import runpy
from pathlib import Path

import pytest

SCRIPT = runpy.run_path(str(Path(__file__).parents[2] / "scripts" / "simulate_scale.py"))
World, Unit, simulate = SCRIPT["World"], SCRIPT["Unit"], SCRIPT["simulate"]
PLAIN = {"flops": 1.0, "jitter": 0.0, "dispatch": 0.0, "store": 0.0, "load": 0.0}


def test_workers_share_the_units_and_a_stop_between_groups_costs_the_tail():
    one_queue = [Unit(0, 0, 10.0)] * 3 + [Unit(1, 0, 10.0)] * 3
    apart = [Unit(0, 0, 10.0)] * 3 + [Unit(1, 1, 10.0)] * 3
    assert simulate(one_queue, World(2, **PLAIN)).makespan == 30
    assert simulate(apart, World(2, **PLAIN)).makespan == 40
    assert (
        simulate(
            one_queue, World(1, **PLAIN | {"load": 1.0, "dispatch": 0.5, "store": 0.25})
        ).makespan
        == 66.5
    )


def test_crashes_lose_half_a_unit_on_average_and_nothing_else():
    units = [Unit(0, 0, 100.0)] * 4000
    found = simulate(units, World(4, **PLAIN, restart=0.0, failures=86400 / 1000))
    assert found.useful == 400_000
    assert found.lost / found.crashes == pytest.approx(50, rel=0.1)
    assert found.makespan == pytest.approx((found.useful + found.lost) / 4, rel=0.01)
    assert found.crashes == pytest.approx(400, rel=0.15)


def test_papers_experiment_has_its_size():
    units = SCRIPT["experiment"](samples=1000, shard=300, apart=True)
    assert len(units) == 30 * 270 * 4
    assert len({unit.group for unit in units}) == 120
    assert sum(unit.work for unit in units) == pytest.approx(
        sum(2 * cost * count for cost, count in SCRIPT["ARCHITECTURES"].values()) * 270 * 1e6
    )
