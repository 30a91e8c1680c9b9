"""A model, samples and a record at work: set the record up, see which units are missing, have them done.

Evaluating and tracing are the same work: bring every run of a list to its number of queries on every shard. They
differ in which runs, and in what is kept.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from advfrontier.engine import CleanPass, Oracle, check_data, check_model, clean_pass
from advfrontier.errors import FrontierError
from advfrontier.evaluation.identity import (
    basis,
    data_mark,
    fingerprint,
    go_on,
    solver_for,
    solver_words,
    sources,
    versions,
)
from advfrontier.evaluation.originals import lacking_originals, remove_other_originals, write_originals
from advfrontier.evaluation.refusing import refuse_other, refuse_other_answers, refuse_other_samples, refuse_remains
from advfrontier.evaluation.units import (
    SPENT,
    Clean,
    Expected,
    Terms,
    UnitTask,
    UnitWork,
    check_ids,
    few_rows,
    load_model,
    read_clean,
    read_images,
    threads,
)
from advfrontier.execution import execute
from advfrontier.pool import MAX_QUERIES, Run, check_run, facts_of
from advfrontier.progress import Progress, Silent
from advfrontier.store import Store, UnitName
from advfrontier.threat.norms import get_norm
from advfrontier.threat.random import sample_ids

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from advfrontier.solvers import Solver
    from advfrontier.sources import Samples


@dataclass(frozen=True)
class Workers:
    """Where units are done: in this process (0 workers), in local processes, or on a Ray cluster."""

    count: int = 0
    ray: str | None = None


@dataclass
class Session:
    """One record being worked on."""

    store: Store
    model: Callable[[Tensor], Tensor]
    source: Callable[[Tensor], Tensor] | str  # what other processes are sent: the name it is loaded by, if it has one
    samples: Samples
    terms: Terms
    clean: Clean
    keep_points: bool = True
    keep_state: bool = True
    solvers: Mapping[str, Solver] = field(default_factory=dict)

    @property
    def classes(self) -> int:
        """How many classes the model tells apart."""
        return self.clean.passed.classes

    def missing(self, wanted: Mapping[str, int]) -> list[UnitTask]:
        """The units still to be done for these queries per run, in the order of the runs."""
        done = self.store.units()
        units = (unit for unit, _ in units_of(self.clean, self.terms.shard, wanted))
        return [UnitTask(unit, wanted[unit.run], n) for unit in units if (n := done.get(unit, 0)) < wanted[unit.run]]

    def fulfil(
        self,
        wanted: Mapping[str, int],
        *,
        workers: Workers | None = None,
        progress: bool = False,
        note: Mapping[str, Any] | None = None,
    ) -> None:
        """Do what is missing. A unit that fails is named at the end, when all others are done.

        `note` is entered into the record before work begins, and only if it can.
        """
        for run, queries in wanted.items():
            check_run(Run.parse(run), self.terms.norm, self.classes)
            if not 0 < queries <= MAX_QUERIES or queries % 10:
                raise FrontierError(
                    f"{run} cannot stop after {queries} queries: expected a multiple of 10 up to {MAX_QUERIES}"
                )
        tasks = self.missing(wanted)
        self._enter(wanted, note or {}, working=bool(tasks))
        self.store.tidy()
        if not tasks:
            return
        workers = workers or Workers()
        local = workers.count == 0 and workers.ray is None
        total = sum((task.queries - task.reached) * len(self.clean.attacked(task.unit)) for task in tasks)
        failed = {}
        best = np.where(self.clean.passed.correct.numpy(), np.inf, 0.0)
        with Progress(total, unit="queries") if progress else Silent() as work:
            outcomes = execute(
                self._work(work.advance) if local else self._work(elsewhere=True),
                tasks,
                workers=workers.count,
                ray=workers.ray,
                device=self.terms.device,
                threads=self.terms.threads,
            )
            left = Counter(task.unit.run for task in tasks)
            work.show(f"{self.terms.norm} {tasks[0].unit.run}")
            for outcome in outcomes:
                if outcome.result is None:
                    failed[str(outcome.task)] = outcome.error
                    continue
                run, rows = outcome.task.unit.run, self.clean.attacked(outcome.task.unit).numpy()
                best[rows] = np.minimum(best[rows], outcome.result.distances)
                left[run] -= 1
                finished, median = sum(not n for n in left.values()), float(np.median(best))
                found = f", median distance {median:.4g}" if median < np.inf else ""
                work.show(f"{self.terms.norm} {run}, {finished} of {len(left)} runs{found}")
                if not local:
                    work.advance((outcome.task.queries - outcome.task.reached) * len(rows))
        if failed:
            first = next(iter(failed))
            raise FrontierError(
                f"{len(failed)} of {len(tasks)} units failed, the others are stored; type the same command to try them "
                f"again. {first}: {failed[first]}"
                + (f"; also {', '.join(list(failed)[1:4])}" if len(failed) > 1 else "")
            )

    def redo(self, unit: UnitName, queries: int) -> None:
        """Do a unit again from the start: its file was lost or damaged, or is of another record."""
        self._enter({}, {}, working=True)
        self._work()(UnitTask(unit, queries))

    def _enter(self, wanted: Mapping[str, int], note: Mapping[str, Any], *, working: bool) -> None:
        """Write down what the record is to hold, with which solvers; first see that it may hold that."""
        before = self.store.record() or {}
        if not before["gradients"] and needs_gradients(wanted, self.terms.norm):
            raise FrontierError(
                f"{self.store.place} was begun for black-box runs alone, without a gradient of any sample: choose "
                "another folder for runs that use gradients"
            )
        held = {**before, **note}
        held["runs"] = {**before["runs"], **{run: max(q, before["runs"].get(run, 0)) for run, q in wanted.items()}}
        used = {attack: solver_for(attack, self.solvers) for attack in {Run.parse(run).attack for run in wanted}}
        held["solvers"] = {**before["solvers"], **{attack: solver_words(s) for attack, s in used.items() if s}}
        if working:
            held = go_on(self.store.place, held)
        if held != before:
            self.store.write_record(held)

    def _work(self, tick: Callable[[int], object] | None = None, *, elsewhere: bool = False) -> UnitWork:
        held = self.store.record() or {}
        few = tuple(few_rows(len(self.clean.labels)).tolist())
        return UnitWork(
            place=self.store.place,
            model=self.source if elsewhere else self.model,
            samples=self.samples,
            terms=self.terms,
            mark=self.clean.mark,
            basis=basis(held, asdict(self.terms)),
            sources=sources(),
            keep_points=self.keep_points,
            keep_state=self.keep_state,
            solvers=self.solvers,
            expected=Expected(held["model"]["fingerprint"], few, tuple(held["flags"])) if elsewhere else None,
            tick=tick,
        )


def units_of(clean: Clean, shard: int, wanted: Iterable[str]) -> Iterator[tuple[UnitName, Tensor]]:
    """The units of these runs that have anything to attack, and the rows they attack."""
    for run in wanted:
        for first, count in shards(len(clean.labels), shard):
            unit = UnitName(run, first, count)
            if len(rows := clean.attacked(unit)):
                yield unit, rows


def shards(samples: int, size: int) -> list[tuple[int, int]]:
    """First row and number of rows of each shard: fixed ranges, so more samples leave the full ones as they are."""
    return [(first, min(size, samples - first)) for first in range(0, samples, size)]


def check_attacks(solvers: Mapping[str, Solver] | None) -> None:
    """Refuse solvers for attacks that do not exist; those of other norms are never asked for."""
    for attack in solvers or {}:
        run = Run.parse(attack)
        facts = facts_of(run.solver)
        check_run(run, facts.norms[0] if facts else "")


def needs_gradients(runs: Iterable[str], norm: str) -> bool:
    """Whether any of these runs is more than black-box."""
    return any(check_run(Run.parse(run), norm).step_queries > 1 for run in runs)


def open_session(
    place: str,
    *,
    kind: str,
    model: Callable[[Tensor], Tensor] | str,
    model_name: str | None,
    samples: Samples,
    terms: Terms,
    keep_points: bool,
    keep_state: bool,
    solvers: Mapping[str, Solver] | None = None,
    gradients: bool = True,
    command: str = "",
) -> Session:
    """Set a record up, or go on with the one that is there if it is of the same model, data, norm and seed.

    A new record costs up to 5 queries on a few samples to try the model, and 2 per sample for the clean pass. Opening
    it again costs a forward pass on a few samples, which tell whether the model still answers as it did. A record of
    the first samples of the same data is extended by the others. `gradients` says whether any run will need them.
    """
    check_attacks(solvers)
    store = Store(place, writing=True)
    held = store.record()
    if held is None:
        refuse_remains(store)
    loaded = load_model(model, terms) if isinstance(model, str) else model
    name = model_name or (model if isinstance(model, str) else type(loaded).__name__)
    facts = {
        "kind": kind,
        **{key: value for key, value in asdict(terms).items() if key != "threads"},
        "model": {
            "name": name,
            "source": model if isinstance(model, str) else None,
            "fingerprint": fingerprint(loaded),
        },
    }
    if held is not None:
        refuse_other(store.place, held, facts, solvers or {})
        gradients = held["gradients"]
        terms = Terms(**{**asdict(terms), "threads": held["threads"]})  # bits depend on it, so the record decides
    clean = read_clean(store) if held is not None else None
    ids, labels = _identify(samples, terms.shard)
    if held is not None:
        refuse_other_samples(store.place, held, clean, ids, labels)
    with threads(terms.threads), Oracle(loaded, device=terms.device, dtype=terms.precision) as oracle:
        if held is None:
            few = few_rows(len(labels))
            images = samples.read(few)
            check_ids(samples, few, images, ids[few.numpy()])
            flags = check_model(oracle, images, labels[few], gradients=gradients)
        elif clean is not None:
            refuse_other_answers(store.place, held, oracle, samples, clean)
        if clean is None or len(clean.labels) < len(labels):
            held = held if held is None else go_on(store.place, held)
            clean = _clean(oracle, samples, ids, terms, gradients=gradients, keep=store if keep_points else None)
            store.write("clean", clean.tensors())
        elif keep_points:
            for first, count in lacking_originals(store, shards(len(labels), terms.shard)):
                write_originals(store, first, read_images(samples, torch.arange(first, first + count), clean))
    spent = Counter({"checks": oracle.counts.checks, "setup": oracle.counts.setup})
    if held is None:
        held = {
            **facts,
            "threads": terms.threads,
            "gradients": gradients,
            "solvers": {},
            "runs": {},
            "classes": clean.passed.classes,
            "class_names": list(samples.class_names or ()),
            "flags": flags,
            "counts": {},
            "replaced": {},
            "sources": sources(),
            "versions": versions(),
            "also": [],
            "command": command,
        }
    layout = shards(len(labels), terms.shard)
    held["data"] = {"name": samples.name, "fingerprint": data_mark(ids, labels), "samples": len(labels)}
    held["counts"] = dict(Counter(held["counts"]) + spent)
    held["replaced"] = {**held["replaced"], **_replaced(store, layout)}
    store.write_record(held)
    _remove_replaced(store, layout)
    return Session(
        store, loaded, model if isinstance(model, str) else loaded, samples, terms, clean, keep_points, keep_state,
        solvers or {},
    )  # fmt: skip


def _replaced(store: Store, layout: Sequence[tuple[int, int]]) -> dict[str, dict[str, int]]:
    """What the units cost whose shard has grown since: they are done anew, but their passes were spent."""
    found = {}
    for unit, queries in store.unit_files():
        if (unit.first, unit.count) not in layout:
            stored = store.read_unit(unit, queries, ())
            found[unit.file(queries)] = {key: int(stored.words[key]) for key in SPENT} if stored is not None else {}
    return found


def _remove_replaced(store: Store, layout: Sequence[tuple[int, int]]) -> None:
    """Remove them, once the record holds their counts."""
    for unit, queries in store.unit_files():
        if (unit.first, unit.count) not in layout:
            store.folder.remove(unit.file(queries))
    remove_other_originals(store, layout)


def _identify(samples: Samples, size: int) -> tuple[NDArray[np.uint64], Tensor]:
    """Content ids, shard by shard, so that the images never need to be in memory together; checked on the way."""
    ids = []
    for first, count in shards(len(samples), size):
        rows = torch.arange(first, first + count)
        images = check_data(samples.read(rows), samples.labels[rows])
        ids.append(sample_ids(images.float().cpu().numpy()))
    if not ids:
        raise FrontierError(f"{samples.name} holds no samples: expected at least one")
    return np.concatenate(ids), samples.labels.long()


def _clean(
    oracle: Oracle,
    samples: Samples,
    ids: NDArray[np.uint64],
    terms: Terms,
    *,
    gradients: bool,
    keep: Store | None,
) -> Clean:
    """The clean pass over all samples, shard by shard; the images are stored on the way where points will be."""
    parts, labels = [], samples.labels.long()
    norm = get_norm(terms.norm)
    for first, count in shards(len(samples), terms.shard):
        rows = torch.arange(first, first + count)
        images = check_data(samples.read(rows), labels[rows])
        check_ids(samples, rows, images, ids[first : first + count])
        parts.append(clean_pass(oracle, images, labels[rows], norm, batch_size=terms.shard, gradients=gradients))
        if keep is not None:
            write_originals(keep, first, images)
    columns = zip(*((p.logits, p.correct, p.targets, p.boundary) for p in parts), strict=True)
    return Clean(labels, ids, CleanPass(*(torch.cat(column) for column in columns)))
