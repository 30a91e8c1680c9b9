"""AutoAttack into a record: radius by radius and shard by shard, on many workers, and only what is missing."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import asdict, dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np
import torch

from advfrontier.bench.subject import KnownPoints
from advfrontier.bench.traces import Resources
from advfrontier.errors import FrontierError
from advfrontier.evaluation.baseline import baseline, check_norm
from advfrontier.evaluation.identity import fingerprint
from advfrontier.evaluation.radii import parse_radii, reference_radii
from advfrontier.evaluation.session import open_session, shards
from advfrontier.evaluation.units import Terms, load_clean, load_model, read_images, threads
from advfrontier.execution import execute
from advfrontier.frontier.baseline import baseline_radii
from advfrontier.progress import Progress, Silent
from advfrontier.store import Store

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray
    from torch import Tensor

    from advfrontier.sources import Samples

BASELINE = "baseline"


@dataclass(frozen=True)
class RadiusTask:
    """AutoAttack at one radius on one shard."""

    radius: float
    first: int
    count: int

    @property
    def file(self) -> str:
        """Its file in the record, without the ending."""
        return f"radii/{self.radius!r}/{self.first:05d}+{self.count:03d}"

    def __str__(self) -> str:
        return f"AutoAttack at {self.radius:g} on samples {self.first}–{self.first + self.count - 1}"


@dataclass(frozen=True, eq=False)
class BaselineWork:
    """All that a process needs to do any of them. Calling it does one."""

    place: str
    model: Callable[[Tensor], Tensor] | str
    samples: Samples
    terms: Terms
    mark: str  # of the clean pass this work belongs to
    fingerprint: str  # of the model

    def __call__(self, task: RadiusTask) -> int:
        """Attack, write, and return the rows that went through the model."""
        rows = torch.arange(task.first, task.first + task.count)
        clean = load_clean(self.place, self.mark)
        model = _loaded(self.model, self.terms) if isinstance(self.model, str) else self.model
        if fingerprint(model) != self.fingerprint:
            raise FrontierError(
                f"{self.model} is another model in this process than the one the record was begun with: expected the "
                "same weights each time it is loaded"
            )
        with threads(self.terms.threads):
            (result,) = baseline(
                model,
                read_images(self.samples, rows, clean),
                clean.labels[rows],
                norm=self.terms.norm,
                radii=[task.radius],
                seed=self.terms.seed,
                batch_size=self.terms.shard,
                device=self.terms.device,
            ).results
        tensors = {
            "robust": torch.tensor(result.robust),
            "forwards": torch.tensor(result.forwards),
            "backwards": torch.tensor(result.backwards),
        }
        words = {key: str(value) for key, value in result.counts.items()}
        words |= {"seconds": f"{result.seconds:.3f}", "flags": json.dumps(result.flags)}
        Store(self.place, writing=True).write(task.file, tensors, words)
        return result.counts["attack"]


def baseline_to(
    out: str,
    model: Callable[[Tensor], Tensor] | str,
    samples: Samples,
    *,
    norm: str,
    radii: Sequence[float],
    seed: int = 42,
    name: str | None = None,
    batch_size: int = 100,
    resources: Resources | None = None,
    progress: bool = False,
    command: str = "",
) -> KnownPoints:
    """Run AutoAttack at these radii into a record. Killed at any moment, the same call goes on."""
    where = resources or Resources()
    session = open_session(
        out,
        kind=BASELINE,
        model=model,
        model_name=name,
        samples=samples,
        terms=Terms(check_norm(norm), seed, batch_size, where.device, "float32", where.threads),
        keep_points=False,
        keep_state=False,
        command=command,
    )
    wanted = sorted({float(radius) for radius in radii})
    session.store.write_record({**(session.store.record() or {}), "radii": wanted})
    local = where.workers == 0 and where.ray is None
    work = BaselineWork(
        out, session.model if local else session.source, samples, session.terms, session.clean.mark,
        fingerprint(session.model),
    )  # fmt: skip
    tasks = missing_tasks(session.store, wanted, len(samples), batch_size)
    with Progress(len(tasks), unit="units of AutoAttack") if progress and tasks else Silent() as bar:
        bar.show(f"AutoAttack in {norm}")
        _attack(work, tasks, where, bar)
    return load_baseline(out)


def _attack(work: BaselineWork, tasks: Sequence[RadiusTask], where: Resources, bar: Progress) -> None:
    """Do all of them, and name those that failed."""
    failed: dict[str, str] = {}
    for outcome in execute(work, tasks, **asdict(where)):
        if outcome.error is not None:
            failed[str(outcome.task)] = outcome.error
        bar.advance(1)
    if failed:
        first = next(iter(failed))
        raise FrontierError(
            f"{len(failed)} of {len(tasks)} units failed, the others are stored. {first}: {failed[first]}"
        )


@lru_cache(maxsize=1)
def _loaded(source: str, terms: Terms) -> torch.nn.Module:
    """Once per process, which here is a worker that lives for one record."""
    return load_model(source, terms)


def radii_of(place: str) -> tuple[float, ...] | None:
    """The radii of a record that was begun; None if there is none.

    They were chosen by the frontier as it was then. Another attack moves the frontier, but AutoAttack's points stay
    true: they are kept, not run again elsewhere.
    """
    held = Store(place).record()
    return None if held is None or "radii" not in held else tuple(held["radii"])


def radii_to_run(text: str | None, data: str, norm: str, frontier: NDArray[np.float64] | None) -> list[float]:
    """Those written out, or else the usual ones of the data; with a frontier nine percentiles of it as well."""
    usual = [radius for _, radius in (parse_radii(text) if text else reference_radii(data, norm))]
    wanted = [*usual, *(baseline_radii(frontier).tolist() if frontier is not None else [])]
    if not wanted:
        raise FrontierError("no radius to run AutoAttack at: expected --radii 4/255,8/255 or --trace traces/MODEL/NORM")
    return wanted


def missing_tasks(store: Store, radii: Sequence[float], samples: int, shard: int) -> list[RadiusTask]:
    """What is still to be done, from the names of the files alone."""
    done = {name.removesuffix(".safetensors") for name in store.folder.names("radii")}
    tasks = (RadiusTask(radius, first, count) for radius in radii for first, count in shards(samples, shard))
    return [task for task in tasks if task.file not in done]


def load_baseline(place: str) -> KnownPoints:
    """Read a finished record."""
    store = Store(place)
    held = store.record()
    if held is None or held.get("kind") != BASELINE or "radii" not in held:
        raise FrontierError(
            f"{place} holds no baseline: expected a folder that `advfrontier baseline --out` has written"
        )
    accuracies, queries = [], []
    flags: Counter[str] = Counter()
    for radius in held["radii"]:
        robust, attack = [], 0
        for first, count in shards(held["data"]["samples"], held["shard"]):
            stored = store.read((task := RadiusTask(radius, first, count)).file)
            if stored is None:
                raise FrontierError(f"{place} lacks {task}: type the command that made the record to go on")
            tensors, words = stored
            robust.append(tensors["robust"].numpy())
            attack += int(words["attack"])
            flags.update(json.loads(words["flags"]))
        accuracies.append(float(np.concatenate(robust).mean()))
        queries.append(attack / held["data"]["samples"])
    return KnownPoints(tuple(held["radii"]), tuple(accuracies), tuple(queries), tuple(flags))
