"""Units done again, to see whether they come out as a record says."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from advfrontier.engine.data import Samples
from advfrontier.evaluation.evaluation import Evaluation
from advfrontier.jobs import Model, UnitJob
from advfrontier.jobs.units import UnitPart, UnitTask
from advfrontier.pool import Race, Run
from advfrontier.record import Record, UnitName
from advfrontier.record.identity import rounds_alike

# By how much the distances of a unit may differ, in the median over its samples, where rounding is not the same:
# 500 steps amplify rounding on single samples, but not on most of them.
TOLERANCE = 0.05


@dataclass
class UnitCheck:
    """An evaluation beside a record of the same model, samples and terms that was begun here, to hold units of it."""

    claimed: Evaluation
    fresh: Record
    model: Model
    samples: Samples
    false: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def count(self, units: list[UnitName], tick: Callable[[int], object]) -> tuple[int, int]:
        """Do units again, and count those that came out bit for bit, and those that did so up to rounding."""
        claimed, race = self.claimed, self.claimed.ensemble
        job = UnitJob(
            model=self.model,
            samples=self.samples,
            record=self.fresh,
            wanted=race.queries,
            race=race if isinstance(race, Race) else None,
            solvers=claimed.solvers,
            keep="points",
        )
        if units:
            job.check(self.fresh)
            self.fresh.change(lambda _: job.changes(self.fresh))
        same = close = 0
        for unit in units:
            exact = self._rounds_alike(unit)
            different = self._outcome(job, unit, exact=exact)
            if different is not None:
                self.false.append(f"{unit} did not come out again: {different}")
            elif exact:
                same += 1
            else:
                close += 1
            tick(1)
        if close:
            self.notes.append(
                "code, libraries, device or rounding are not those of the record: a unit holds if its distances differ "
                f"by no more than {TOLERANCE:.0%} in the median"
            )
        return same, close

    def _rounds_alike(self, unit: UnitName) -> bool:
        """Whether bits can be expected to come out again: they did in the clean pass of the shard."""
        said, found = self.claimed.record.header, self.fresh.header
        versions = all(rounds_alike(found.versions, each) for each in (said.versions, *said.later))
        rows = slice(unit.first, unit.first + unit.count)
        clean = [
            (record.clean.logits[rows], record.clean.boundary[rows]) for record in (self.claimed.record, self.fresh)
        ]
        bits = all(torch.equal(one, two) for one, two in zip(*clean, strict=True))
        return said.code == found.code and said.terms == found.terms and versions and bits

    def _outcome(self, job: UnitJob, unit: UnitName, *, exact: bool) -> str | None:
        """Do one unit again; what is different about it, if anything is."""
        runs = {unit.run} if job.race is None else {unit.run, *job.runs}
        for attack in sorted({Run.parse(run).attack for run in runs}):
            said, here = (record.header.solvers.get(attack) for record in (self.claimed.record, self.fresh))
            if said != here:
                return f"the record was made with the solver {said} of {attack}, and here is {here}"
        queries = self.claimed.ensemble.queries[unit.run]
        job(UnitTask((UnitPart(unit, queries),)))
        again, stored = self.fresh.read_unit(unit, queries), self.claimed.record.read_unit(unit, queries)
        if again is None or stored is None:
            return "its file cannot be read"
        if exact:
            others = [
                name
                for name, tensor in again.tensors.items()
                if name not in stored.tensors or not torch.equal(tensor, stored.tensors[name])
            ]
            return f"{', '.join(others)} differ in their bits" if others else None
        said_last, here_last = (each.tensors["trajectory"][-1] for each in (stored, again))
        if said_last.shape != here_last.shape:
            return "it attacked other samples"
        deviation = _deviation(said_last, here_last)
        return f"its distances differ by {deviation:.0%} in the median" if not deviation <= TOLERANCE else None


def _deviation(said: Tensor, found: Tensor) -> float:
    """The median over samples of the relative difference of two distances; samples that neither broke agree."""
    difference = (said - found).abs() / torch.maximum(said, found)
    difference = torch.where(said == found, torch.zeros_like(difference), difference).nan_to_num(nan=1.0)
    return float(np.median(difference.numpy()))
