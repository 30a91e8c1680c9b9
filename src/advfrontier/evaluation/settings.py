"""Which solvers an ensemble or a race is run with: it is worth what it promises only with those it was learned with."""

from __future__ import annotations

from typing import TYPE_CHECKING

from advfrontier.errors import FrontierError
from advfrontier.pool import Race, Run
from advfrontier.record.identity import settings, solvers_of
from advfrontier.solvers import PUBLISHED, check_published

if TYPE_CHECKING:
    from collections.abc import Mapping

    from advfrontier.pool import Ensemble
    from advfrontier.solvers import Solver


def solvers_for(ensemble: Ensemble | Race, given: Mapping[str, Solver] | None) -> Mapping[str, Solver]:
    """The solvers that were given, or without any those that the ensemble was learned with.

    An ensemble that names none is a number of queries for each run, whatever their solvers are. A race that names none
    was learned with the attacks' own: what it leaves out on the way depends on them.
    """
    attacks = sorted({Run.parse(run).attack for run in ensemble.runs})
    learned = {attack: ensemble.solvers[attack] for attack in attacks if attack in ensemble.solvers}
    published = settings(solvers_of(attacks, PUBLISHED))
    if given is None:
        given = PUBLISHED if learned and learned == published else {}
    found = settings(solvers_of(attacks, given))
    for attack in attacks if learned or isinstance(ensemble, Race) else ():
        if learned.get(attack) != found.get(attack):
            cure = "type --published (in Python: solvers=PUBLISHED)" if learned == published else _cure(learned)
            raise FrontierError(
                f"{ensemble.name} was learned with {attack} at {_said(learned, attack)}, here it has "
                f"{_said(found, attack)}: expected the same; {cure}, or an ensemble that is learned on nothing, such "
                "as --ensemble paper-4k"
            )
    if dict(given) == dict(PUBLISHED):
        check_published(ensemble.runs)
    return given


def _said(found: Mapping[str, str], attack: str) -> str:
    return found.get(attack, "its own settings")


def _cure(learned: Mapping[str, str]) -> str:
    """What to type for settings that are not the published ones."""
    if not learned:
        return "leave --published out (in Python: solvers=)"
    named = ", ".join(f'"{attack}": …({words})' for attack, words in learned.items())
    return f"in Python give solvers={{{named}}}"
