"""AutoAttack job: fills a record radius by radius and shard by shard."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass

import numpy as np
import torch

from advfrontier.attacks.autoattack import KnownPoints, attack_at, check_norm, check_radius
from advfrontier.errors import FrontierError
from advfrontier.execution.tasks import threads
from advfrontier.jobs.driver import Job
from advfrontier.record import HeaderChange, Record
from advfrontier.record.identity import data_digest, mark


@dataclass(frozen=True)
class RadiusTask:
    """AutoAttack at one radius on one shard.

    Args:
        radius: Radius of the perturbation, in units of the norm.
        first: First row of the shard.
        count: Number of its rows.
    """

    radius: float
    first: int
    count: int

    @property
    def file(self) -> str:
        """Its file in the record."""
        return f"radii/{self.radius!r}/{self.first:05d}+{self.count:03d}.safetensors"

    def belongs(self, record: Record) -> str:
        """Return the mark of the task's file, made of its own samples only.

        Args:
            record: Record that the file is of.
        """
        rows = slice(self.first, self.first + self.count)
        return mark(
            record.header, self.file, data_digest(record.clean.ids[rows], record.clean.labels[rows])
        )

    def __str__(self) -> str:
        return (
            f"AutoAttack at {self.radius:g} on samples {self.first}–{self.first + self.count - 1}"
        )


@dataclass(frozen=True, eq=False, kw_only=True)
class AutoAttackJob(Job[RadiusTask]):
    """Run AutoAttack at radii, shard by shard. Calling it does one radius on one shard.

    Args:
        radii: Radii to attack at, in units of the norm.
    """

    radii: tuple[float, ...]
    counted = "units of AutoAttack"

    def check(self) -> None:
        """Raise on norms and radii that AutoAttack does not attack in, before they are stored."""
        check_norm(self.work.header.terms.norm)
        for radius in self.radii:
            check_radius(radius)

    def missing(self) -> list[RadiusTask]:
        """Return the missing tasks, also at earlier radii if samples were added or files lost."""
        record = self.work
        tasks = []
        for radius in self._all_radii():
            for shard in record.shards:
                task = RadiusTask(radius, *shard)
                if record.read_file(task.file, task.belongs(record)) is None:
                    tasks.append(task)
        return tasks

    def changes(self) -> HeaderChange:
        """Return the radii, which are added to those of earlier calls."""
        return HeaderChange(add_radii=self.radii)

    def _all_radii(self) -> tuple[float, ...]:
        return tuple(sorted({*self.work.header.radii, *self.radii}))

    def progress(self) -> str:
        """Return how many radii are done on how many shards."""
        units = len(self._all_radii()) * len(self.work.shards)
        return f"{units - len(self.missing())} of {units} {self.counted}"

    def __call__(self, task: RadiusTask) -> int:
        """Attack, write, and return the rows that went through the model."""
        record = self.work
        terms, rows = record.header.terms, torch.arange(task.first, task.first + task.count)
        self.recognise()
        with threads(terms.threads):
            found = attack_at(
                self.model.oracle(terms).model,
                self.images(rows),
                record.clean.labels[rows],
                norm=terms.norm,
                radius=task.radius,
                seed=terms.seed,
                batch_size=terms.shard,
                device=terms.device,
            )
        tensors = {
            name: torch.tensor(getattr(found, name)) for name in ("robust", "forwards", "backwards")
        }
        words = {key: str(value) for key, value in found.counts.items()}
        words |= {"seconds": f"{found.seconds:.3f}", "flags": json.dumps(found.flags)}
        record.write_file(task.file, tensors, words, task.belongs(record))
        if self.tick is not None:
            self.tick(1)
        return found.counts["attack"]


def read_points(record: Record) -> KnownPoints:
    """Read a finished record of AutoAttack; raise if it is not finished.

    Args:
        record: Record of AutoAttack.
    """
    accuracies, queries = [], []
    flags: Counter[str] = Counter()
    for radius in record.header.radii:
        robust, attack = [], 0
        for task in (RadiusTask(radius, *shard) for shard in record.shards):
            if (found := record.read_file(task.file, task.belongs(record))) is None:
                why = record.why(task.file)
                raise FrontierError(
                    f"{record.place} lacks {task}{why}; {record.header.how_to_resume}"
                )
            tensors, words = found
            robust.append(tensors["robust"].numpy())
            attack += int(words["attack"])
            flags.update(json.loads(words["flags"]))
        accuracies.append(float(np.concatenate(robust).mean()))
        queries.append(attack / record.header.data.samples)
    return KnownPoints(record.header.radii, tuple(accuracies), tuple(queries), tuple(flags))
