"""The work of one unit, as any process can do it: read how far it has come, go on, verify, write.

A unit is small enough that losing one costs minutes, and knows nothing of the others. Whoever executes units (this
process, worker processes, a cluster) sends the same `UnitWork` everywhere once, and tasks by name.
"""

from __future__ import annotations

import time
from collections import Counter
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from advfrontier.engine import CHECKPOINT, CleanPass, Oracle, advance, check_data, classify, find_device, start_unit
from advfrontier.errors import FrontierError
from advfrontier.evaluation.identity import answers_as, fingerprint, solver_words, sources, unit_mark
from advfrontier.pool import MAX_QUERIES, Run
from advfrontier.store import Store, UnitName
from advfrontier.threat.norms import get_norm
from advfrontier.threat.random import sample_ids

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    import numpy as np
    from numpy.typing import NDArray

    from advfrontier.engine import Unit
    from advfrontier.solvers import Solver
    from advfrontier.sources import Samples
    from advfrontier.store import StoredUnit

_CHECKED = 16  # samples on which the model is tried before any are attacked
SPENT = ("checks", "attack", "verification")  # passes through the model that a unit's file counts
_STATE_LIMIT = 2**30  # bytes of state that the units of one run may keep; beyond it extension replays


@dataclass(frozen=True)
class Terms:
    """What decides the bits of every distance, besides the model and the data."""

    norm: str
    seed: int = 42
    shard: int = 100  # samples per unit, and so per batch
    device: str = "cpu"
    dtype: str = "float32"
    threads: int = 1

    def __post_init__(self) -> None:
        for name in ("seed", "shard", "threads"):  # NumPy's integers are no numbers to JSON
            object.__setattr__(self, name, int(getattr(self, name)))
        for name, value in (("batch size", self.shard), ("number of threads", self.threads)):
            if value < 1:
                raise FrontierError(f"a {name} of {value}: expected at least 1")

    @property
    def precision(self) -> torch.dtype:
        """The dtype that `dtype` names."""
        return {"float32": torch.float32, "float64": torch.float64}[self.dtype]


@dataclass(frozen=True)
class UnitTask:
    """Bring one unit to this many queries, from those it has spent before."""

    unit: UnitName
    queries: int
    reached: int = 0

    def __str__(self) -> str:
        return f"{self.unit}, {self.queries} queries"


@dataclass(frozen=True, eq=False)
class UnitDone:
    """What is known of a unit that was just brought further."""

    unit: UnitName
    spent: int  # sample-queries of the attack, by this task
    distances: NDArray[np.float64]  # of the shard's attacked samples


@dataclass(frozen=True)
class Expected:
    """What a process that loads the model itself must find, or it would attack another one."""

    fingerprint: str
    rows: tuple[int, ...]  # samples whose logits are compared with those of the clean pass
    flags: tuple[str, ...]  # of the model, when the record was begun


@dataclass(frozen=True, eq=False)
class UnitWork:
    """All that a process needs to do any unit of a record. Calling it does one."""

    place: str
    model: Callable[[Tensor], Tensor] | str  # a model, or the name of a source it is loaded from
    samples: Samples
    terms: Terms
    mark: str  # of the clean pass this work belongs to
    basis: str  # of the record, as `identity.basis` has it
    sources: str  # of the code that is to do it
    keep_points: bool = True
    keep_state: bool = True
    solvers: Mapping[str, Solver] = field(default_factory=dict)
    expected: Expected | None = None  # only where the work is done in other processes
    tick: Callable[[int], object] | None = None  # only where it is done in this one

    def __call__(self, task: UnitTask) -> UnitDone:
        """Bring one unit further and store it."""
        started = time.perf_counter()
        store, norm = Store(self.place, writing=True), get_norm(self.terms.norm)
        clean = load_clean(self.place, self.mark)
        rows = clean.attacked(task.unit)
        run = Run.parse(task.unit.run)
        with threads(self.terms.threads), self.oracle() as oracle:
            self._recognise(oracle, clean)
            unit = start_unit(
                oracle,
                run,
                read_images(self.samples, rows, clean),
                clean.labels[rows],
                clean.passed.rows(rows),
                norm=norm,
                seed=self.terms.seed,
                ids=clean.ids[rows.numpy()],
                solver=self.solvers.get(run.attack),
            )
            belongs = clean.unit_mark(self.basis, solver_words(unit.solver), task.unit)
            before = store.read_unit(task.unit, task.reached) if task.reached else None
            if before is not None and before.words.get("belongs") != belongs:
                before = None
            spent = Counter({key: int(before.words[key]) for key in SPENT} if before else {})
            if before is not None and "state.point" in before.tensors:
                restore(unit, before)
            advance(oracle, [unit], [task.queries], tick=self.tick)
            classes = classify(oracle, unit, batch_size=max(1, 2 * unit.rows // 3))
            spent += Counter({key: getattr(oracle.counts, key) for key in SPENT})
        seconds = time.perf_counter() - started + (float(before.words["seconds"]) if before else 0.0)
        words = {"run": task.unit.run, "norm": norm.name, "belongs": belongs, "seconds": f"{seconds:.3f}"}
        words |= {key: str(spent[key]) for key in SPENT}
        tensors = self._tensors(unit, classes, len(clean.labels))
        store.write_unit(task.unit, task.queries, tensors, words, instead=task.reached)
        return UnitDone(task.unit, oracle.counts.attack, unit.trajectory[task.queries // CHECKPOINT - 1].numpy())

    def oracle(self) -> Oracle:
        """The model, ready to be asked."""
        model = _loaded(self.model, self.terms) if isinstance(self.model, str) else self.model
        return Oracle(model, device=self.terms.device, dtype=self.terms.precision)

    def _recognise(self, oracle: Oracle, clean: Clean) -> None:
        """Once per process: is this the record's model, and the code that the record was begun with?"""
        key = (self.place, self.mark, self.sources)
        if self.expected is None or key in _RECOGNISED:
            return
        if sources() != self.sources:
            raise FrontierError(
                f"this worker process runs other code of advfrontier ({sources()[:8]}, not {self.sources[:8]}): "
                "install the same version on every machine, and leave its files alone while units are done"
            )
        rows = torch.tensor(self.expected.rows)
        images = read_images(self.samples, rows, clean).to(oracle.device, oracle.dtype)
        same = fingerprint(oracle.model) == self.expected.fingerprint
        if not (same and answers_as(oracle.logits(images), clean.passed.logits[rows], self.expected.flags)):
            raise FrontierError(
                f"{self.model if isinstance(self.model, str) else 'the model'} is another model in this worker process "
                "than the one the record was begun with: expected the same weights and the same answers each time it "
                "is loaded; let its factory load them from a file or set its seed, and leave its files alone while "
                "units are done"
            )
        _RECOGNISED.add(key)

    def _tensors(self, unit: Unit, classes: Tensor, samples: int) -> dict[str, Tensor]:
        tensors = unit.tensors()
        tensors["trajectory"] = tensors["trajectory"][: unit.queries // CHECKPOINT].clone()
        tensors["classes"] = classes
        tensors["held"] = classes != unit.problem.labels.cpu()
        state = sum(t.nbytes for name, t in tensors.items() if name.startswith("state.")) * samples / max(unit.rows, 1)
        if not self.keep_state or unit.queries >= MAX_QUERIES or state > _STATE_LIMIT:
            tensors = {name: t for name, t in tensors.items() if not name.startswith("state.")}
        if not self.keep_points and "state.point" not in tensors:
            del tensors["best_point"]
        return tensors


def restore(unit: Unit, stored: StoredUnit) -> None:
    """Let a fresh unit go on where the stored one stopped."""
    whole: dict[str, Any] = dict(stored.tensors)
    rest = unit.trajectory[stored.queries // CHECKPOINT :]
    whole["trajectory"] = torch.cat([stored.tensors["trajectory"], rest])
    unit.restore(whole)


@dataclass(frozen=True, eq=False)
class Clean:
    """The clean pass of a record: one row per sample."""

    labels: Tensor
    ids: NDArray[np.uint64]
    passed: CleanPass

    def attacked(self, unit: UnitName) -> Tensor:
        """The rows of a unit's shard that are classified correctly: the others are broken already."""
        right = self.passed.correct[unit.first : unit.first + unit.count]
        return right.nonzero().squeeze(1) + unit.first

    def unit_mark(self, basis: str, solver: str, unit: UnitName) -> str:
        """The mark of a unit of this record."""
        rows = slice(unit.first, unit.first + unit.count)
        return unit_mark(basis, solver, self.ids[rows], self.labels[rows])

    @property
    def mark(self) -> str:
        """A hash that tells clean passes apart: another model's, or of other samples."""
        return blake2b(self.ids.tobytes() + self.passed.logits.numpy().tobytes(), digest_size=8).hexdigest()

    def tensors(self) -> dict[str, Tensor]:
        """As it is stored."""
        return {
            "labels": self.labels,
            "ids": torch.from_numpy(self.ids.view("int64").copy()),
            "logits": self.passed.logits,
            "correct": self.passed.correct,
            "targets": self.passed.targets,
            "boundary": self.passed.boundary,
        }


def read_clean(store: Store) -> Clean | None:
    """The clean pass of a record, if it has been done."""
    found = store.read("clean")
    if found is None:
        return None
    t, _ = found
    passed = CleanPass(t["logits"], t["correct"], t["targets"], t["boundary"])
    return Clean(t["labels"], t["ids"].numpy().view("uint64"), passed)


@lru_cache(maxsize=4)
def load_clean(place: str, mark: str) -> Clean:
    """The clean pass with this mark, read once per process."""
    clean = read_clean(Store(place))
    if clean is None or clean.mark != mark:
        raise FrontierError(f"clean.safetensors in {place} was replaced while units were being done: start again")
    return clean


def plain_data(images: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """Checked images and labels as they are attacked, wherever they were and whatever was to be done with them."""
    images, labels = (data.detach().cpu() if isinstance(data, Tensor) else data for data in (images, labels))
    return check_data(images, labels), labels


def few_rows(samples: int) -> Tensor:
    """Rows on which the model is tried, and recognised later."""
    return torch.linspace(0, samples - 1, min(_CHECKED, samples)).long()


def read_images(samples: Samples, rows: Tensor, clean: Clean) -> Tensor:
    """Read these images again, and refuse others than those that the clean pass is of."""
    images = check_data(samples.read(rows), clean.labels[rows])
    check_ids(samples, rows, images, clean.ids[rows.numpy()])
    return images


def check_ids(samples: Samples, rows: Tensor, images: Tensor, ids: NDArray[np.uint64]) -> None:
    """Refuse images whose contents are not those that these rows had when they were read first."""
    others = rows[torch.from_numpy(sample_ids(images.float().cpu().numpy()) != ids)]
    if len(others):
        raise FrontierError(
            f"{samples.name} gives other images each time it is read ({len(others)} of {len(rows)} differ, the first "
            f"is sample {int(others[0])}): expected the same; take random transforms out of the data set, or read it "
            "once into tensors"
        )


def load_model(source: str, terms: Terms) -> torch.nn.Module:
    """The model a source names."""
    from advfrontier.sources import load_model as load  # noqa: PLC0415  # most processes are given the model itself

    return load(source).to(find_device(terms.device), terms.precision)


_RECOGNISED: set[tuple[str, str, str]] = set()  # the work whose model this process has seen to be the right one


@lru_cache(maxsize=1)
def _loaded(source: str, terms: Terms) -> torch.nn.Module:
    """Once per process, which here is a worker that lives for one job."""
    return load_model(source, terms)


@contextmanager
def threads(count: int) -> Iterator[None]:
    """Compute with so many threads: sums are rounded differently with another number."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)
