"""The race of a norm, really run on the models of a benchmark: polishing starts at what was found, and has no trace."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch

from advfrontier.bench.benchmark import BenchmarkModel
from advfrontier.bench.layout import Bench
from advfrontier.command import current_command, typed
from advfrontier.errors import FrontierError, Unfinished
from advfrontier.evaluation.evaluate import evaluate
from advfrontier.evaluation.evaluation import Evaluation
from advfrontier.execution import Machine, execute
from advfrontier.jobs import Model
from advfrontier.pool import Race
from advfrontier.progress import progress_bar


@dataclass
class Races:
    """A race on several models."""

    bench: Bench
    race: Race
    models: Mapping[str, Model]
    machine: Machine
    say: Callable[[str], object]
    begun: bool = False  # whether any was: however little time there is, one is done

    def on(self, model: BenchmarkModel) -> Evaluation:
        """The race on this model, done now if it is not yet."""
        norm = self.race.norm
        self.say(f"the race on {model.id} in {norm}")
        if (done := self.bench.finished_race(model, self.race)) is not None:
            return done
        if (
            self.machine.late and self.begun
        ):  # a unit of a race cannot stop half-way, so none is begun
            raise Unfinished(
                f"time is up: the race on {model.id} in {norm} is left; the same command goes on"
            )
        self.begun = True
        return evaluate(**self._call(model), machine=replace(self.machine, keep_state=False))

    def side_by_side(self, models: Sequence[BenchmarkModel]) -> None:
        """Race several models at once, where all samples of one are a single unit, which one process does.

        What fails here is left to `on`, which goes on with it and says why.
        """
        if self.machine.here or self.machine.executor is not None:
            return
        bench, data = self.bench, self.bench.benchmark.data
        small = [
            m
            for m in models
            if data[m.data].samples <= m.batch and bench.finished_race(m, self.race) is None
        ]
        if len(small) < 2:
            return
        alone = replace(self.machine, workers=0, ray=None, keep_state=False, progress=False)
        alone = replace(
            alone, threads=self.machine.threads or torch.get_num_threads()
        )  # as they are in this process
        self.say(f"the races on {', '.join(model.id for model in small)} in {self.race.norm}")
        with (
            suppress(FrontierError),
            progress_bar(
                self.machine.progress, len(small), unit="races", label=self.race.norm
            ) as bar,
        ):
            race = partial(_race_elsewhere, command=current_command(), machine=alone)
            for _ in execute(race, [self._call(model) for model in small], self.machine):
                self.begun = True
                bar.advance(1)

    def _call(self, model: BenchmarkModel) -> dict[str, Any]:
        """What `evaluate` is called with."""
        return {
            "model": self.models[model.id],
            "images": self.bench.samples(model),
            "norm": self.race.norm,
            "ensemble": self.race,
            "seed": self.bench.benchmark.seed,
            "solvers": self.bench.solvers,
            "out": self.bench.race(model, self.race),
            "batch_size": model.batch,
        }


def _race_elsewhere(call: dict[str, Any], *, command: str, machine: Machine) -> None:
    """Do a whole race in another process, as part of the command that is being done: its record is what comes of it."""
    with typed(command):
        evaluate(**call, machine=machine)
