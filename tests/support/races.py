"""A race over the base runs of a norm, with a restart and a target of one of them, and made-up constants."""

from __future__ import annotations

from advfrontier.pool import Polish, Race, Run, Turn
from support.runs import runs_of


def small_race(norm, *, black_box=False, total=1200, classes=10, polish=False) -> Race:
    """Every run is tried for one slice, then raised by two at a time; it may polish half of the time."""
    runs = [str(run) for run in runs_of(norm, "restart1", "target1", classes=classes)]
    runs = [run for run in runs if ":" not in run or run.startswith("fmn")]
    runs = [run for run in runs if black_box or not run.startswith(("square_min", "sparse_min"))]
    order = tuple((run, queries) for queries in (100, 300, 500, 1000) for run in runs)
    polishing = Polish((Turn("fmn", 100, reach=2.0), Turn("fmn", 100)), 400) if polish else None
    return Race("race", norm, total, order, constants(runs), polish=polishing)


def constants(runs):
    """A run may end at eight tenths of where another of its attack is, or of where it is itself, and less low later."""
    attacks = dict.fromkeys(Run.parse(run).attack for run in runs)
    return {attack: (0.8, *(0.8 + 0.02 * q for q in range(1, 10))) for attack in attacks}
