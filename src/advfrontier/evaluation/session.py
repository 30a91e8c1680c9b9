"""A model, samples and a record at work: set the record up, see which units are missing, have them done.

Evaluating and tracing are the same work: bring every run of a list to its number of queries on every shard. They
differ in which runs, and in what is kept.
"""

from __future__ import annotations

import platform
from collections import Counter
from dataclasses import asdict, dataclass, field
from hashlib import blake2b
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn

from advfrontier.engine import CleanPass, Oracle, check_data, check_model, clean_pass
from advfrontier.errors import FrontierError
from advfrontier.evaluation.originals import write_originals
from advfrontier.evaluation.units import Clean, Terms, UnitTask, UnitWork, load_model, read_clean, threads
from advfrontier.execution import execute
from advfrontier.pool import MAX_QUERIES, Run, check_run, facts_of
from advfrontier.progress import Progress, Silent
from advfrontier.store import Store, UnitName
from advfrontier.threat.norms import get_norm
from advfrontier.threat.random import sample_ids

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from advfrontier.solvers import Solver
    from advfrontier.sources import Samples
    from advfrontier.store import StoredUnit

_NAMED = 3  # runs that a flag names before it counts them
_CHECKED = 16  # samples on which the model is tried before any are attacked


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
    source: (
        Callable[[Tensor], Tensor] | str
    )  # what other processes are sent: the name it is loaded by, where it has one
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

    def fulfil(self, wanted: Mapping[str, int], *, workers: Workers | None = None, progress: bool = False) -> None:
        """Do what is missing. A unit that fails is named at the end, when all others are done."""
        for run, queries in wanted.items():
            check_run(Run.parse(run), self.terms.norm, self.classes)
            if not 0 < queries <= MAX_QUERIES or queries % 10:
                raise FrontierError(
                    f"{run} cannot stop after {queries} queries: expected a multiple of 10 up to {MAX_QUERIES}"
                )
        self.store.tidy()
        if not (tasks := self.missing(wanted)):
            return
        workers = workers or Workers()
        local = workers.count == 0 and workers.ray is None
        total = sum((task.queries - task.reached) * len(self.clean.attacked(task.unit)) for task in tasks)
        failed = {}
        best = np.where(self.clean.passed.correct.numpy(), np.inf, 0.0)
        with Progress(total, unit="queries") if progress else Silent() as work:
            outcomes = execute(
                self._work(self.model, work.advance) if local else self._work(self.source),
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
        """Do a unit again from the start: its file was lost or damaged."""
        self._work(self.model)(UnitTask(unit, queries))

    def _work(self, model: Callable[[Tensor], Tensor] | str, tick: Callable[[int], object] | None = None) -> UnitWork:
        return UnitWork(
            self.store.place, model, self.samples, self.terms, self.clean.mark, self.keep_points, self.keep_state,
            self.solvers, tick,
        )  # fmt: skip


def read_units(
    store: Store, clean: Clean, shard: int, wanted: Mapping[str, int], redo: Callable[[UnitName, int], None] | None
) -> Iterator[tuple[UnitName, Tensor, StoredUnit]]:
    """Every unit of these runs, with the rows it attacked. A missing or damaged one is done again if it can be."""
    done = store.units()
    for unit, rows in units_of(clean, shard, wanted):
        queries = max(wanted[unit.run], done.get(unit, 0))
        stored = store.read_unit(unit, queries)
        if stored is None and redo is not None:
            redo(unit, queries)
            stored = store.read_unit(unit, queries)
        if stored is None:
            reason = f" ({store.damaged[-1]})" if store.damaged else ""
            raise FrontierError(
                f"{store.place} lacks {unit}{reason}: type the command that made the record to compute it again"
            )
        yield unit, rows, stored


def units_of(clean: Clean, shard: int, wanted: Iterable[str]) -> Iterator[tuple[UnitName, Tensor]]:
    """The units of these runs that have anything to attack, and the rows they attack."""
    for run in wanted:
        for first, count in shards(len(clean.labels), shard):
            unit = UnitName(run, first, count)
            if len(rows := clean.attacked(unit)):
                yield unit, rows


def doubtful(run: str, queries: int, tensors: Mapping[str, Tensor]) -> Counter[tuple[str, str]]:
    """Count the samples of a finished unit whose distance may be wrong, by reason and run."""
    facts = facts_of(Run.parse(run).solver)
    steps = queries // (facts.step_queries if facts else 2)  # of a plug-in that is not installed here
    samples = {
        "kept points were classified correctly in another batch": ~tensors["held"],
        "samples had no gradient on most steps": 2 * tensors["zero_gradients"] > steps,
        "samples had gradients that are not finite": tensors["bad_gradients"] > 0,
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


def shards(samples: int, size: int) -> list[tuple[int, int]]:
    """First row and number of rows of each shard: fixed ranges, so more samples leave the full ones as they are."""
    return [(first, min(size, samples - first)) for first in range(0, samples, size)]


def check_attacks(solvers: Mapping[str, Solver] | None) -> None:
    """Refuse solvers for attacks that do not exist; those of other norms are never asked for."""
    for attack in solvers or {}:
        run = Run.parse(attack)
        facts = facts_of(run.solver)
        check_run(run, facts.norms[0] if facts else "")


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

    A new record costs up to 5 queries on a few samples to try the model, and 2 per sample for the clean pass. A
    record of the first samples of the same data is extended by the others.
    """
    check_attacks(solvers)
    store = Store(place)
    held = store.record()
    loaded = load_model(model, terms) if isinstance(model, str) else model
    name = model_name or (model if isinstance(model, str) else type(loaded).__name__)
    facts = {
        "kind": kind,
        **{key: value for key, value in asdict(terms).items() if key != "threads"},
        "solvers": {attack: repr(solver) for attack, solver in (solvers or {}).items()},
        "model": {
            "name": name,
            "source": model if isinstance(model, str) else None,
            "fingerprint": fingerprint(loaded),
        },
    }
    if held is not None:
        _refuse_other(store.place, held, facts)
        terms = Terms(**{**asdict(terms), "threads": held["threads"]})  # bits depend on it, so the record decides
    clean = read_clean(store) if held is not None else None
    ids, labels = _identify(samples, terms.shard)
    few = torch.linspace(0, len(samples) - 1, min(_CHECKED, len(samples))).long()
    with threads(terms.threads), Oracle(loaded, device=terms.device, dtype=terms.precision) as oracle:
        if held is not None and clean is not None:
            _refuse_other_samples(store.place, clean, ids, labels)
            if not isinstance(loaded, nn.Module):  # its numbers cannot be seen, so its answers must do
                known = few[few < len(clean.labels)]
                _refuse_other_answers(store.place, oracle.logits(samples.images(known)), clean.passed.logits[known])
        else:
            flags = check_model(oracle, samples.images(few), labels[few], gradients=gradients)
        if clean is None or len(clean.labels) < len(labels):
            clean = _clean(oracle, samples, ids, terms, gradients=gradients, keep=store if keep_points else None)
            store.write("clean", clean.tensors())
    spent = Counter({"checks": oracle.counts.checks, "setup": oracle.counts.setup})
    if held is None:
        held = {
            **facts,
            "threads": terms.threads,
            "classes": clean.passed.classes,
            "class_names": list(samples.class_names or ()),
            "flags": flags,
            "counts": {},
            "versions": versions(),
            "command": command,
        }
    if spent or held["data"]["samples"] != len(labels):
        held["data"] = {"name": samples.name, "fingerprint": _digest(ids.tobytes()), "samples": len(labels)}
        held["counts"] = dict(Counter(held["counts"]) + spent)
        store.write_record(held)
    return Session(
        store, loaded, model if isinstance(model, str) else loaded, samples, terms, clean, keep_points, keep_state,
        solvers or {},
    )  # fmt: skip


def fingerprint(model: Callable[[Tensor], Tensor]) -> str:
    """A hash that tells models apart: of an nn.Module its structure and all its numbers, else its name."""
    if not isinstance(model, nn.Module):
        return _digest(
            f"{getattr(model, '__module__', '')}.{getattr(model, '__qualname__', type(model).__name__)}".encode()
        )
    digest = blake2b(str(model).encode(), digest_size=16)
    for name, tensor in model.state_dict().items():
        digest.update(f"{name} {tuple(tensor.shape)}".encode())
        digest.update(tensor.detach().cpu().float().contiguous().numpy().tobytes())
    return digest.hexdigest()


def versions() -> dict[str, str]:
    """What to install to see the same numbers."""
    found = {"python": platform.python_version(), "platform": platform.machine()}
    for package in ("advfrontier", "torch", "numpy"):
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = "unknown"
    return found


def _identify(samples: Samples, size: int) -> tuple[np.ndarray[Any, np.dtype[np.uint64]], Tensor]:
    """Content ids, shard by shard, so that the images never need to be in memory together; checked on the way."""
    ids = []
    for first, count in shards(len(samples), size):
        rows = torch.arange(first, first + count)
        images = check_data(samples.images(rows), samples.labels[rows])
        ids.append(sample_ids(images.float().cpu().numpy()))
    if not ids:
        raise FrontierError(f"{samples.name} holds no samples: expected at least one")
    return np.concatenate(ids), samples.labels.long()


def _clean(
    oracle: Oracle,
    samples: Samples,
    ids: np.ndarray[Any, np.dtype[np.uint64]],
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
        images = check_data(samples.images(rows), labels[rows])
        parts.append(clean_pass(oracle, images, labels[rows], norm, batch_size=terms.shard, gradients=gradients))
        if keep is not None:
            write_originals(keep, first, images)
    columns = zip(*((p.logits, p.correct, p.targets, p.boundary) for p in parts), strict=True)
    return Clean(labels, ids, CleanPass(*(torch.cat(column) for column in columns)))


def _refuse_other(place: str, held: Mapping[str, Any], asked: Mapping[str, Any]) -> None:
    """A record is of one model, norm, seed and layout; say which differs."""
    differences = [
        f"another {key}: {held.get(key)}, not {value}"
        for key, value in asked.items()
        if key != "model" and held.get(key) != value
    ]
    there, here = held["model"], asked["model"]
    if there["fingerprint"] != here["fingerprint"]:
        marks = there["fingerprint"][:8], here["fingerprint"][:8]
        differences.insert(0, f"another model: {there['name']} ({marks[0]}), not {here['name']} ({marks[1]})")
    if differences:
        raise FrontierError(
            f"{place} holds a record of {'; '.join(differences)}. Choose another folder, or remove this one"
        )


def _refuse_other_samples(place: str, clean: Clean, ids: np.ndarray[Any, np.dtype[np.uint64]], labels: Tensor) -> None:
    """The samples of a record must be the first of those asked for, with the same labels."""
    n = len(clean.labels)
    same = n <= len(ids) and np.array_equal(clean.ids, ids[:n]) and torch.equal(clean.labels, labels[:n])
    if not same:
        raise FrontierError(
            f"{place} holds a record of {n} other samples: expected the same ones, or more that begin with them "
            f"({len(ids)} were given); choose another folder, or remove this one"
        )


def _refuse_other_answers(place: str, answers: Tensor, known: Tensor) -> None:
    """A model that is no nn.Module is recognised by its logits, up to what another machine may round differently."""
    answers, scale = answers.cpu().to(known), float(known.abs().max())
    if answers.shape != known.shape or not torch.allclose(answers, known, rtol=1e-3, atol=1e-3 * scale):
        raise FrontierError(
            f"{place} holds a record of another model, which answers differently. Choose another folder, or remove "
            "this one"
        )


def _digest(content: bytes) -> str:
    return blake2b(content, digest_size=16).hexdigest()
