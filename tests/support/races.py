"""A race over the base runs of a norm, with a restart and a target of each, and made-up constants."""

from __future__ import annotations

from advfrontier.pool import QUANTILES, Race, Run
from support.runs import runs_of


def small_race(norm, *, black_box=False, total=2000, first=3, share=0.3, classes=10) -> Race:
    runs = [str(run) for run in runs_of(norm, "restart1", "target1", classes=classes)]
    runs = [run for run in runs if black_box or not run.startswith(("square_min", "sparse_min"))]
    return Race("race", norm, total, tuple(runs), constants(runs), first, share)


def constants(runs):
    """Every attack is expected to end a tenth to a half nearer than it is after its first slice, and less later."""
    attacks = list(dict.fromkeys(Run.parse(run).attack for run in runs))
    falls = [0.1 + 0.4 * k / QUANTILES for k in range(QUANTILES)]
    return {
        attack: tuple(tuple(1 - fall * (9 - q) / 9 / (1 + place) for fall in falls) for q in range(9))
        for place, attack in enumerate(attacks)
    }
