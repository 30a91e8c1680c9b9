"""Reading the units of a record: only what is asked for, and only what belongs to it."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from advfrontier.errors import FrontierError
from advfrontier.evaluation.identity import basis
from advfrontier.evaluation.session import units_of
from advfrontier.evaluation.units import Terms
from advfrontier.pool import Run, facts_of

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping

    from torch import Tensor

    from advfrontier.evaluation.units import Clean
    from advfrontier.store import Store, StoredUnit, UnitName

DOUBTS = ("held", "zero_gradients", "bad_gradients")  # tensors of a unit that `doubtful` looks at
_NAMED = 3  # runs that a flag names before it counts them


def read_units(
    store: Store,
    held: Mapping[str, Any],
    clean: Clean,
    wanted: Mapping[str, int],
    *,
    redo: Callable[[UnitName, int], None] | None,
    names: Collection[str],
    only: Callable[[UnitName, Tensor], bool] | None = None,
) -> Iterator[tuple[UnitName, Tensor, StoredUnit]]:
    """Every unit of these runs, or only some, with the rows it attacked and the tensors named.

    One that is missing, damaged or of another record is done again if it can be.
    """
    done = store.units()
    of = basis(held, asdict(terms_of(held)))
    for unit, rows in units_of(clean, held["shard"], wanted):
        if only is not None and not only(unit, rows):
            continue
        queries = max(wanted[unit.run], done.get(unit, 0))
        mark = clean.unit_mark(of, held["solvers"].get(Run.parse(unit.run).attack, ""), unit)
        stored, reason = _own(store, unit, queries, mark, names)
        if stored is None and redo is not None:
            redo(unit, queries)
            stored, reason = _own(store, unit, queries, mark, names)
        if stored is None:
            raise FrontierError(
                f"{store.place} lacks {unit}{reason}: type the command that made the record to compute it again"
            )
        yield unit, rows, stored


def _own(
    store: Store, unit: UnitName, queries: int, mark: str, names: Collection[str]
) -> tuple[StoredUnit | None, str]:
    """A unit if it belongs to the record; or else why not."""
    known = len(store.damaged)
    stored = store.read_unit(unit, queries, names)
    if stored is None:
        return None, f" ({store.damaged[-1]})" if len(store.damaged) > known else ""
    if stored.words.get("belongs") != mark:
        return None, f" ({unit.file(queries)} belongs to another record: of another model, other samples or terms)"
    return stored, ""


def terms_of(held: Mapping[str, Any]) -> Terms:
    """The terms of a record."""
    return Terms(**{key: held[key] for key in asdict(Terms("L2"))})


def spent_by(held: Mapping[str, Any]) -> Counter[str]:
    """Passes through the model that no unit of the record counts: setting it up, and shards that grew since."""
    return sum((Counter(counts) for counts in held["replaced"].values()), Counter(held["counts"]))


def doubtful(run: str, queries: int, tensors: Mapping[str, Tensor]) -> Counter[tuple[str, str]]:
    """Count the samples of a finished unit whose distance may be wrong, by reason and run."""
    facts = facts_of(Run.parse(run).solver)
    steps = queries // (facts.step_queries if facts else 2)  # of a plug-in that is not installed here
    samples = {
        "kept points were classified correctly in another batch": ~tensors["held"],
        "samples had no gradient on most steps": 2 * tensors["zero_gradients"] > steps,
        "samples had logits or gradients that are not finite": tensors["bad_gradients"] > 0,
    }
    return Counter({(what, run): count for what, rows in samples.items() if (count := int(rows.sum()))})


def flags_of(doubts: Counter[tuple[str, str]]) -> list[str]:
    """One sentence per reason: which runs it concerns, and on how many samples at most."""
    by_reason: dict[str, dict[str, int]] = {}
    for (what, run), count in doubts.items():
        by_reason.setdefault(what, {})[run] = count
    flags = []
    for what, runs in by_reason.items():
        named = ", ".join(list(runs)[:_NAMED]) + (f" and {len(runs) - _NAMED} other runs" if len(runs) > _NAMED else "")
        flags.append(f"{named}: {'up to ' if len(runs) > 1 else ''}{max(runs.values())} {what}")
    return flags
