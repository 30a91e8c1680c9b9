"""Unit of work: an ensemble on a shard, stored, resumed and extended as a whole.

Every sample is at the same step of the ensemble. A fork is the exception: until its end, samples
with and without a gain are two groups of rows with refinements of their own.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from advfrontier.engine.expectation import LAST_LOOK, vote
from advfrontier.engine.loop import Search, Shard, Tick, advance_search, refinement_starts
from advfrontier.engine.whole import Whole, WholeAttack
from advfrontier.errors import FrontierError
from advfrontier.pool import CHECKPOINT, GAIN, MAX_QUERIES, Ensemble, Fork, Raise, Refine, Run, Span
from advfrontier.solvers import Solver, solver_of
from advfrontier.solvers.protocol import where_rows

if TYPE_CHECKING:
    from advfrontier.engine.oracle import Oracle
    from advfrontier.threat.criteria import Aim

_STATE = "state."
_STORED = (
    "best_point",
    "best_distance",
    "origin",
    "winner",
    "found",
    "zero_gradients",
    "bad_gradients",
    "rejected",
    "unspent",
)
_TABLES = ("found", "zero_gradients", "bad_gradients", "rejected")  # one row per name


@dataclass(frozen=True)
class Part:
    """Part of a step, on some rows of the shard.

    Args:
        key: Name under which the state of the run is kept.
        name: Name under which the ensemble lists the queries.
        step: A raise or a refinement.
        rows: The rows of the shard; None for all.
        first: Queries of the ensemble at which the step begins.
        begin: Queries of the ensemble at which this stretch begins.
        end: Queries of the ensemble at which it ends.
        reached: Queries that the run had spent when the step began.
    """

    key: str
    name: str
    step: Raise | Refine
    rows: Tensor | None
    first: int
    begin: int
    end: int
    reached: int = 0


@dataclass
class Unit:
    """Ensemble on a shard, with all that is needed to store it and to resume it.

    Args:
        ensemble: Ensemble; the whole list, also beyond the queries asked for.
        shard: The attacked samples, on the device.
        solvers: Attack to solver, where it is not the attack's own, and external run to its attack.
        best_point: (n, d) on the device, the nearest misclassified points; the inputs before.
        best_distance: (n,) float64 on the CPU; inf where there is none.
        trajectory: (checkpoints, n) float64 on the CPU: best distance after 10, 20, … queries.
        origin: (n,) int16, index in `ensemble.names` of the run whose point was kept; -1 for none.
        winner: (n,) int16, index of what found the kept point: the origin or a refinement of it.
        found: (names, n) float64, best distance of each run and of each attack's refinements.
        zero_gradients: (names, n) int32, steps on which the gradient vanished.
        bad_gradients: (names, n) int32, steps on which logits or gradient were not finite.
        rejected: (names, n) int32, 1 where an external run evaluated a misclassified point that
            does not count: outside the box, or nearer than any that counts but by rounding only.
        unspent: (n,) int32, queries of external runs that ended before their step did.
        states: Name to state, on the CPU, of runs that stopped before their end.
        queries: Queries of the ensemble spent on every sample so far.
    """

    ensemble: Ensemble
    shard: Shard
    solvers: Mapping[str, Solver | WholeAttack]
    best_point: Tensor
    best_distance: Tensor
    trajectory: Tensor
    origin: Tensor
    winner: Tensor
    found: Tensor
    zero_gradients: Tensor
    bad_gradients: Tensor
    rejected: Tensor
    unspent: Tensor
    states: dict[str, dict[str, Tensor]] = field(default_factory=dict)
    queries: int = 0

    @classmethod
    def start(
        cls,
        ensemble: Ensemble,
        shard: Shard,
        solvers: Mapping[str, Solver | WholeAttack] | None = None,
    ) -> Unit:
        """Set up an ensemble on a shard; no queries are spent.

        Args:
            ensemble: Ensemble; the whole list, also beyond the queries asked for.
            shard: Samples to attack, on the device.
            solvers: Attack to solver, where it is not the attack's own, and external run to its
                attack.
        """
        rows, names = len(shard), len(ensemble.names)
        unbroken = torch.full((rows,), torch.inf, dtype=torch.float64, device="cpu")
        nobody = torch.full((rows,), -1, dtype=torch.int16, device="cpu")
        counts = torch.zeros((names, rows), dtype=torch.int32, device="cpu")
        return cls(
            ensemble=ensemble,
            shard=shard,
            solvers=solvers or {},
            best_point=shard.inputs.clone(),
            best_distance=unbroken,
            trajectory=unbroken.repeat(ensemble.longest // CHECKPOINT, 1),
            origin=nobody,
            winner=nobody.clone(),
            found=unbroken.repeat(names, 1),
            zero_gradients=counts,
            bad_gradients=counts.clone(),
            rejected=counts.clone(),
            unspent=torch.zeros(rows, dtype=torch.int32, device="cpu"),
        )

    # What is stored

    def tensors(self) -> dict[str, Tensor]:
        """Return everything needed to resume, as a flat dictionary of tensors on the CPU."""
        stored = {name: getattr(self, name).detach().cpu().clone() for name in _STORED}
        stored["trajectory"] = self.trajectory[: self.queries // CHECKPOINT].clone()
        for key, state in self.states.items():
            for name, tensor in state.items():
                stored[f"{_STATE}{key}.{name}"] = tensor.clone()
        return stored

    def restore(
        self, tensors: Mapping[str, Tensor], queries: int, names: Sequence[str] | None = None
    ) -> None:
        """Continue where a unit of this ensemble, or of one that this one holds, stopped.

        Args:
            tensors: Tensors that `tensors` of that unit returned.
            queries: Queries that it had spent.
            names: Names of its ensemble; by default those of this one.
        """
        self.queries = queries
        self.best_point = tensors["best_point"].to(self.best_point)
        self.best_distance = tensors["best_distance"].clone()
        self.trajectory[: queries // CHECKPOINT] = tensors["trajectory"]
        own = list(self.ensemble.names)
        places = torch.full(
            (len(names or own) + 1,), -1, dtype=torch.int16
        )  # the last one is nobody
        for place, name in enumerate(names or own):
            if name in own:  # else it is of a step beyond those that both ensembles share
                places[place] = own.index(name)
                for table in _TABLES:
                    getattr(self, table)[own.index(name)] = tensors[table][place]
        self.unspent = tensors["unspent"].clone()
        self.origin = places[tensors["origin"].long()]
        self.winner = places[tensors["winner"].long()]
        self.states = {}
        for name, tensor in tensors.items():
            if name.startswith(_STATE):
                key, _, part = name.removeprefix(_STATE).rpartition(".")
                self.states.setdefault(key, {})[part] = tensor

    @property
    def resumable(self) -> bool:
        """Return whether every run that was begun and continues later has its state."""
        begun = set()
        for span in self.ensemble.between(0, self.queries):
            if isinstance(span.step, Raise):
                begun.add(span.step.run)
        needed = set()
        for span in self.ensemble.between(self.queries, self.ensemble.longest):
            if isinstance(span.step, Raise):
                needed |= begun & {span.step.run}
            elif span.begin < self.queries:
                for part in self.parts(span, span.end):
                    if part.first < self.queries:
                        needed.add(part.key)
        return needed <= self.states.keys()

    # What is done

    def parts(self, span: Span, stop: int) -> Iterator[Part]:
        """Yield the stretches of a step that bring the unit to `stop` queries of the ensemble.

        Args:
            span: Step of the ensemble, with the queries before and after it.
            stop: Queries of the ensemble at which the parts end.
        """
        step = span.step
        if isinstance(step, Raise):
            yield Part(step.run, step.run, step, None, span.begin, self.queries, stop, span.reached)
        elif isinstance(step, Refine):
            key = f"step {span.index}"
            yield Part(key, step.name, step, None, span.begin, self.queries, stop)
        else:
            yield from self._fork_parts(span, step, stop)

    def _fork_parts(self, span: Span, fork: Fork, stop: int) -> Iterator[Part]:
        gained = self._gained(span)
        for group, rows, steps in (
            ("gained", gained, fork.fork.gained),
            ("otherwise", ~gained, fork.fork.otherwise),
        ):
            chosen = rows.nonzero().squeeze(1)
            first = span.begin
            for number, step in enumerate(steps):
                begin, end = max(first, self.queries), min(first + step.queries, stop)
                if len(chosen) and begin < end:
                    key = f"step {span.index} {group} {number}"
                    yield Part(key, step.name, step, chosen, first, begin, end)
                first += step.queries

    def _gained(self, fork: Span) -> Tensor:
        """Tell on which samples the step before a fork lowered the distance: (n,) bool."""
        before = self.ensemble.spans[fork.index - 1]
        end = self.trajectory[before.end // CHECKPOINT - 1]
        begin = torch.full_like(end, torch.inf)
        if before.begin:
            begin = self.trajectory[before.begin // CHECKPOINT - 1]
        return end < (1 - GAIN) * begin

    def external(self, part: Part) -> WholeAttack | None:
        """Return the attack of a part that is an external run; None if a solver does it.

        Args:
            part: Stretch of a step.
        """
        run = Run.parse(part.step.run)
        if run.external is None:
            return None
        attack = self.solvers.get(run.attack)
        if not isinstance(attack, WholeAttack):
            raise FrontierError(f"no attack was given for the external run {run}: expected one")
        return attack

    def open(self, part: Part) -> Search:
        """Return the run of a part, resumed where it stopped or set up anew.

        Args:
            part: Stretch of a step.
        """
        run = Run.parse(part.step.run)
        solver = self.solvers.get(run.attack) or solver_of(run)
        assert not isinstance(solver, WholeAttack)  # noqa: S101
        rows = None if part.rows is None else part.rows.to(self.best_point.device)
        shard = self.shard if rows is None else self.shard.select(rows)
        stored = self.states.pop(part.key, None)
        if isinstance(part.step, Raise):
            search = Search.start(shard, solver, run, horizon=MAX_QUERIES)
        else:
            best = self.best_point if rows is None else self.best_point.index_select(0, rows)
            starts = refinement_starts(shard, part.step, best, seed=part.first)
            search = Search.refine(shard, solver, part.step, starts, seed=part.first)
        if stored is not None:
            search.restore(stored, part.reached + part.begin - part.first)
        return search

    def close(self, part: Part, search: Search | Whole, measured: Tensor) -> None:
        """Take in what a run found, and keep its state if it continues later.

        Args:
            part: Stretch that was run.
            search: Run at the end of the stretch.
            measured: (checkpoints, rows) float64, its best distances on the way.
        """
        rows = torch.arange(len(self.shard)) if part.rows is None else part.rows
        name = self.ensemble.names.index(part.name)
        last = measured[-1]
        before = self.best_distance[rows]
        first, end = part.begin // CHECKPOINT, part.end // CHECKPOINT
        self.trajectory[first:end, rows] = torch.minimum(measured, before)
        self.found[name, rows] = torch.minimum(self.found[name, rows], last)
        self.zero_gradients[name, rows] += search.zero_gradients.cpu()
        self.bad_gradients[name, rows] += search.bad_gradients.cpu()
        if isinstance(search, Whole):
            self.rejected[name] = torch.maximum(self.rejected[name], search.rejected)
            self.unspent += (part.end - part.begin) - search.spent

        nearer = last < before
        self.best_distance[rows] = torch.minimum(last, before)
        self.winner[rows] = torch.where(nearer, name, self.winner[rows]).to(torch.int16)
        new = nearer if isinstance(part.step, Raise) else nearer & (self.origin[rows] < 0)
        self.origin[rows] = torch.where(new, name, self.origin[rows]).to(torch.int16)
        mask = nearer.to(self.best_point.device)
        points = search.best_point
        if isinstance(search, Search):
            points = search.shown(points)
        if part.rows is None:
            self.best_point = where_rows(mask, points, self.best_point)
        else:
            here = rows.to(self.best_point.device)
            kept = where_rows(mask, points, self.best_point.index_select(0, here))
            self.best_point = self.best_point.index_copy(0, here, kept)

        if isinstance(search, Search) and self._continues(part):
            state = search.tensors()
            self.states[part.key] = {key: each.cpu() for key, each in state.items()}

    def _continues(self, part: Part) -> bool:
        """Tell whether a later step, or the rest of this one, resumes the run of a part."""
        if isinstance(part.step, Refine):
            return part.end < part.first + part.step.queries
        for span in self.ensemble.spans:
            if span.end > part.end and isinstance(span.step, Raise) and span.step.run == part.key:
                return True
        return False


def advance(oracle: Oracle, unit: Unit, queries: int, *, tick: Tick | None = None) -> None:
    """Advance a unit to `queries` queries of its ensemble.

    Args:
        oracle: Model on its device, which counts the queries.
        unit: Unit to advance; it is changed in place.
        queries: Queries per sample, a multiple of CHECKPOINT within the ensemble.
        tick: Called after every step of a run with the sample-queries that it spent.
    """
    longest = unit.ensemble.longest
    if queries % CHECKPOINT or not unit.queries <= queries <= longest:
        raise FrontierError(
            f"cannot advance {unit.ensemble.name} from {unit.queries} to {queries} queries: "
            f"expected a multiple of {CHECKPOINT} from there to {longest}"
        )
    if not len(unit.shard):
        unit.queries = queries
        return
    if (cut := unit.ensemble.cuts(queries)) is not None:
        raise FrontierError(
            f"cannot stop {unit.ensemble.name} after {queries} queries: they would cut an external "
            f"run, which is done in one piece from {cut.begin} to {cut.end}"
        )
    for span in unit.ensemble.between(unit.queries, queries):
        stop = min(queries, span.end)
        for part in list(unit.parts(span, stop)):
            attack = unit.external(part)
            if attack is not None:
                whole = attack.run(oracle, unit.shard, part.end - part.begin, tick=tick)
                unit.close(part, whole, whole.measured)
                continue
            search = unit.open(part)
            goal = part.reached + part.end - part.first
            measured = advance_search(oracle, search, goal, tick=tick)
            unit.close(part, search, measured)
        unit.queries = stop


@torch.no_grad()
def judge_again(oracle: Oracle, images: Tensor, aim: Aim) -> tuple[Tensor, Tensor]:
    """Return 1 where the criterion holds, else 0, and the likeliest class; the label where not.

    Args:
        oracle: Model on its device.
        images: (n, …), points to judge.
        aim: Criterion of success, with the labels of the same rows.
    """
    logits = oracle.logits(images)
    held = aim.gap(logits) < 0
    return held.float(), torch.where(held, logits.argmax(1), aim.labels)


def classify(oracle: Oracle, unit: Unit, *, batch_size: int) -> tuple[Tensor, Tensor]:
    """Classify every kept point again, in other batches than it was found in.

    Takes one pass over every kept point, with EOT 1000, charged to verification.

    Args:
        oracle: Model on its device; its passes are charged to verification.
        unit: Unit whose kept points are classified.
        batch_size: Rows per batch.

    Returns:
        (n,) int64, the class of each point, -1 where there is none; and (n,) float32, the share of
        passes that misclassify it.
    """
    oracle.purpose = "verification"
    passes = 1 if oracle.eot == 1 else LAST_LOOK
    rows = len(unit.shard)
    classes = torch.full((rows,), -1, device="cpu")
    shares = torch.zeros(rows, dtype=torch.float32, device="cpu")
    kept = (unit.best_distance < torch.inf).nonzero().squeeze(1)
    if not len(kept):  # not every model takes an empty batch
        return classes, shares
    for some in torch.split(kept, batch_size):
        here = some.to(unit.best_point.device)
        images = unit.best_point[here].view(-1, *unit.shard.shape)
        if unit.shard.aim is None:
            share, seen = vote(oracle, images, unit.shard.labels[here], "last look", passes)
        else:
            share, seen = judge_again(oracle, images, unit.shard.aim.select(here))
        classes[some] = seen.cpu()
        shares[some] = share.float().cpu()
    return classes, shares
