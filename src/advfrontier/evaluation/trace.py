"""Tracing: how the best distance of every run falls with the queries it spends, on one model.

The frontier of the traced runs is what an evaluation of the same model is measured against: its
AOI.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from io import BytesIO
from os import PathLike
from typing import Any, Self
from zipfile import BadZipFile

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from advfrontier.errors import FrontierError, whole_number
from advfrontier.evaluation.evaluation import PURPOSES, Evaluation
from advfrontier.evaluation.inputs import (
    Images,
    Labels,
    Solvers,
    as_data,
    as_model,
    as_terms,
    check_solvers,
    check_steered,
    solvers_in,
    with_goals,
    working_record,
)
from advfrontier.evaluation.outcome import read_units
from advfrontier.execution import Machine, as_machine
from advfrontier.flags import Flag, Kind
from advfrontier.frontier import Trajectories, aoi, contributions, epsilon_min, winsorised_aoi
from advfrontier.frontier.confidence import Interval, aoi_interval
from advfrontier.frontier.measure import check_same_samples, check_same_settings
from advfrontier.jobs import Model, UnitJob, drive, needs_gradients
from advfrontier.jsonable import jsonable
from advfrontier.pool import (
    CHECKPOINT,
    MAX_QUERIES,
    POOLS,
    TARGETS,
    Ensemble,
    Run,
    pool,
    tier_label,
)
from advfrontier.pool.ensemble import MAX_EXTERNAL
from advfrontier.pool.runs import is_external
from advfrontier.record import Record, open_folder, write_file
from advfrontier.record.identity import settings, several_versions
from advfrontier.record.units import doubtful, unit_flags
from advfrontier.solvers import PUBLISHED, check_published
from advfrontier.table import Column, Table
from advfrontier.threat.criteria import Criterion
from advfrontier.threat.names import UNTARGETED, norm_name
from advfrontier.views import ShownTraces

_FORMAT = 1  # of the files that `Traces.save` writes


@dataclass(frozen=True, eq=False)
class Traces(ShownTraces, Trajectories):
    """Trajectories with what is known about how they were made.

    Args:
        flags: Warnings that distances may be too large, or too small.
        counts: Forward plus backward passes, by purpose.
        criterion: Name of the criterion of success, as records hold it. The other parameters are
            those of `Trajectories`.
    """

    flags: tuple[Flag, ...] = ()
    counts: Mapping[str, int] = field(default_factory=dict)
    criterion: str = UNTARGETED

    def __repr__(self) -> str:
        runs = f"{len(self.runs)} run{'' if len(self.runs) == 1 else 's'}"
        return (
            f"<Traces of {runs} in {self.norm}, {len(self.samples)} samples, {self.queries[-1]} "
            "queries each>"
        )

    def aoi(self) -> dict[str, Interval]:
        """Return run to its AOI against the frontier of all runs, with a 95 % interval."""
        frontier = self.frontier()
        limit = epsilon_min(frontier).value
        scores = {}
        for run, distances in zip(self.runs, self.distances, strict=True):
            scores[run] = aoi_interval(distances[-1], frontier, E=limit)
        return scores

    def save(self, path: str | PathLike[str]) -> None:
        """Write the traces into one file.

        Args:
            path: Output file, such as `traces.npz`: a path or an address.
        """
        facts = {
            "format": _FORMAT,
            "norm": self.norm,
            "runs": self.runs,
            "samples": self.samples,
            "solvers": dict(self.solvers),
            "flags": [[str(flag.kind), flag.text] for flag in self.flags],
            "counts": dict(self.counts),
            "criterion": self.criterion,
        }
        content = BytesIO()
        text = np.frombuffer(json.dumps(facts).encode(), dtype=np.uint8)
        np.savez_compressed(content, facts=text, queries=self.queries, distances=self.distances)
        write_file(path, content.getvalue(), mark=b"facts.npy")

    @classmethod
    def load(cls, path: str | PathLike[str]) -> Traces:
        """Read what `save` wrote, or the record of a trace from its folder.

        Args:
            path: File that `save` wrote, or the folder of a trace.
        """
        if not str(path).endswith(".npz"):
            return load_traces(path)
        folder, _, name = str(path).replace("\\", "/").rpartition("/")
        content = open_folder(folder or ".").read(name)
        if content is None:
            raise FrontierError(f"no file {path}: expected one that Traces.save wrote")
        try:
            with np.load(BytesIO(content), allow_pickle=False) as file:
                facts = json.loads(file["facts"].tobytes())
                flags = tuple(Flag(Kind(kind), text) for kind, text in facts["flags"])
                version = facts["format"]
                traces = cls(
                    norm=facts["norm"],
                    runs=tuple(facts["runs"]),
                    queries=file["queries"],
                    distances=file["distances"],
                    samples=tuple(facts["samples"]),
                    solvers=facts["solvers"],
                    flags=flags,
                    counts=facts["counts"],
                    criterion=facts.get("criterion", UNTARGETED),
                )
        except (ValueError, KeyError, TypeError, OSError, BadZipFile) as error:
            raise FrontierError(
                f"{path} does not hold traces ({type(error).__name__}: {error}): expected a file "
                "that Traces.save wrote"
            ) from error
        if version != _FORMAT:
            raise FrontierError(f"{path} is of format {version}: expected {_FORMAT}")
        return traces

    def join(self, other: Trajectories) -> Self:
        """Add another's runs, with its flags and its cost.

        Args:
            other: Traces in the same norm, of the same samples.
        """
        joined = super().join(other)
        if not isinstance(other, Traces):
            return joined
        if self.criterion != other.criterion:
            raise FrontierError(
                f"traces with the criterion {self.criterion} and with {other.criterion}: expected "
                "the same"
            )
        flags = tuple(dict.fromkeys(self.flags + other.flags))
        return replace(
            joined, flags=flags, counts=dict(Counter(self.counts) + Counter(other.counts))
        )


def trace(
    model: Model | Callable[[Tensor], Tensor] | str,
    images: Images,
    labels: Labels | None = None,
    *,
    norm: str,
    runs: Sequence[str] | str | Callable[[int], Sequence[str]] | None = None,
    queries: int = MAX_QUERIES,
    seed: int = 42,
    solvers: Solvers | None = None,
    out: str | PathLike[str] | None = None,
    batch_size: int = 100,
    machine: Machine | str | torch.device | None = None,
    eot: int = 1,
    criterion: Criterion | None = None,
) -> Traces:
    """Run attacks on a model and record the best distance of each, per sample, every 10 queries.

    Samples that are misclassified anyway have distance 0 and cost nothing; those that a run never
    breaks have inf. What a record holds of other runs stays in it: more runs, more samples after
    the same first ones, or more queries add to it.

    Args:
        model: Model from images in [0, 1] to logits, a source such as `zoo:F3`, or an nn.Module.
        images: Images (n, channels, height, width) in [0, 1], a dataset, a loader or `Samples`.
        labels: True classes (n,), where `images` has none.
        norm: Name of the norm, such as `L2`.
        runs: Runs to trace: names such as `fmn:restart1`; a pool, `paper` (the default), `extended`
            or `black-box`; or a function from a number of classes to names.
        queries: Queries of each run: the first `queries` of its full schedule of 1000. External
            runs alone may be given more.
        seed: Seed of all random numbers.
        solvers: Attack → solver to use instead of the default.
        out: Folder of the record; a temporary one by default.
        batch_size: Samples per batch, which are one unit of work.
        machine: Device, workers and precision.
        eot: Passes per query of a random model.
        criterion: What counts as a success, as in `evaluate`; by default misclassification.
    """
    machine, threat = as_machine(machine), norm_name(norm)
    first = _members(runs, threat, TARGETS + 1)  # a mistake here should not cost a clean pass
    most = MAX_EXTERNAL if all(map(is_external, first)) else MAX_QUERIES
    queries = check_queries(queries, most)
    if not first:
        raise FrontierError(f"no runs were named: expected some, or a pool ({', '.join(POOLS)})")
    check_solvers(solvers or {})
    check_steered(first, UNTARGETED if criterion is None else criterion.name)
    if solvers == PUBLISHED:
        check_published(first)
    used = solvers_in(threat, first, solvers or {})
    subject, samples = as_model(model), with_goals(as_data(images, labels), criterion)
    terms = as_terms(
        threat,
        subject,
        seed=seed,
        batch_size=batch_size,
        machine=machine,
        eot=eot,
        criterion=criterion,
    )
    gradients = needs_gradients(first, threat)
    prepared = working_record(
        out, subject, samples, terms, kind="trace", gradients=gradients, solvers=used
    )
    record = prepared.record
    members = _members(runs, threat, record.clean.classes)
    wanted = {run: Ensemble.of(run, threat, {run: queries}) for run in members}
    job = UnitJob(
        model=subject,
        samples=prepared.samples,
        wanted=wanted,
        solvers=used,
        keep="distances",
    )
    ready = drive(record, job, machine)
    found = read_traces(record, runs=members, job=ready)
    # The record may have gone further before.
    return found.thin(range(CHECKPOINT, queries + 1, CHECKPOINT))


def read_traces(
    record: Record, *, runs: Sequence[str] | None = None, job: UnitJob | None = None
) -> Traces:
    """Return the traces of these runs, or of all that are finished, as far as all have come.

    Args:
        record: A traced record.
        runs: Names of the runs.
        job: Computes again what is missing or damaged.
    """
    reached = finished_runs(record)
    wanted = [runs] if isinstance(runs, str) else list(runs or reached)
    if unfinished := [run for run in wanted if run not in reached]:
        raise FrontierError(
            f"not finished in {record.place}: {', '.join(unfinished)} ({len(reached)} runs are); "
            "type the trace command again to resume, or ask for others"
        )
    if not wanted:
        raise FrontierError(
            f"no run is finished in {record.place}: type the trace command again to resume"
        )
    queries = min(reached[run] for run in wanted)
    checkpoints = queries // CHECKPOINT
    clean = record.clean
    unbroken = np.where(clean.correct.numpy(), np.inf, 0.0)
    tables = {run: np.repeat(unbroken[None], checkpoints, axis=0) for run in wanted}
    spent, doubts = record.spent(), Counter[tuple[Kind, str]]()
    totals = {run: reached[run] for run in wanted}
    for unit, rows, stored in read_units(record, totals, job=job):
        tables[unit.name][:, rows.numpy()] = stored.trajectory[:checkpoints].numpy()
        spent += stored.spent
        doubts += doubtful(stored, clean.labels[rows], totals)
    return Traces(
        norm=record.header.terms.norm,
        runs=tuple(wanted),
        queries=np.arange(CHECKPOINT, queries + 1, CHECKPOINT),
        distances=np.stack([tables[run] for run in wanted]),
        samples=clean.names,
        solvers=settings(record.header.solvers),
        flags=(*record.header.flags, *unit_flags(doubts), *several_versions(record.header)),
        counts={key: spent[key] for key in PURPOSES},
        criterion=record.header.terms.criterion,
    )


def load_traces(place: str | PathLike[str], *, runs: Sequence[str] | None = None) -> Traces:
    """Read a traced record from its folder, or from the folder of the only norm there.

    Args:
        place: Folder of the record.
        runs: Names of runs to read; by default all.
    """
    return read_traces(Record.open(place, "trace"), runs=runs)


def finished_runs(record: Record) -> dict[str, int]:
    """Return the runs that exist on every shard, with the queries of their shortest unit.

    Where no sample is classified correctly there are no units, and all runs that were asked for are
    finished.

    Args:
        record: Record of a trace.
    """
    done = record.units()
    reached = {}
    for run, queries in record.header.runs.items():
        spent = [done.get(unit, 0) for unit, _ in record.layout([run])]
        reached[run] = min(spent, default=queries)
    members = pool(record.header.terms.norm, classes=record.clean.classes, name="extended")
    order = {str(run): k for k, run in enumerate(members)}
    named = sorted(
        (run for run in reached if reached[run]), key=lambda run: (order.get(run, len(order)), run)
    )
    return {run: reached[run] for run in named}


def _members(
    runs: Sequence[str] | str | Callable[[int], Sequence[str]] | None, norm: str, classes: int
) -> list[str]:
    """Return the named runs, the result of a function, or the runs of a pool."""
    if isinstance(runs, str) and is_external(runs):
        runs = [runs]
    if runs is None or isinstance(runs, str):
        return [
            str(run) for run in pool(norm, classes=classes, name="paper" if runs is None else runs)
        ]
    named = runs(classes) if callable(runs) else runs
    return list(dict.fromkeys(str(Run.parse(name)) for name in named))


def check_queries(queries: int, most: int | None = None) -> int:
    """Return the queries as an int; raise if no run can stop there.

    Args:
        queries: Queries per sample.
        most: Most queries of a run.
    """
    queries = whole_number(queries, "queries")
    if queries % CHECKPOINT or queries < CHECKPOINT or (most is not None and queries > most):
        limit = "" if most is None else f" up to {most}"
        raise FrontierError(
            f"cannot stop after {queries} queries: expected a multiple of {CHECKPOINT}{limit}"
        )
    return queries


def evaluation_aoi(
    evaluation: Evaluation, records: Sequence[Record]
) -> tuple[list[Table], dict[str, Any]]:
    """Return the AOI of an evaluation against the trace of its model among these records.

    Returns two tables, the AOI with that of every tier, and what its runs added; and both as JSON
    can hold them.

    Args:
        evaluation: Finished evaluation.
        records: Traces of the same model on the same samples, in the same norm.
    """
    record = _same_model(evaluation, records)
    criteria = [each.header.terms.criterion for each in (evaluation.record, record)]
    if criteria[0] != criteria[1]:
        raise FrontierError(
            f"{evaluation.place} has the criterion {criteria[0]}, {record.place} {criteria[1]}: "
            "expected a trace with the same one"
        )
    used, traced = evaluation.record.header.solvers, record.header.solvers
    check_same_settings(
        settings(used),
        settings(traced),
        names=(evaluation.place, record.place),
        attacks=used.keys() & traced.keys(),
    )
    traces = read_traces(record)
    check_same_samples(evaluation.samples, traces.samples, names=(evaluation.place, record.place))
    frontier = traces.frontier()
    limit, whole = epsilon_min(frontier).value, aoi(evaluation.distances, frontier)
    runs = _runs(evaluation, frontier, limit)
    facts = {
        "model": evaluation.model,
        "norm": evaluation.norm,
        "ensemble": evaluation.ensemble.name,
        "trace": record.place,
        "pool": len(traces.runs),
        "tiers": {
            tier: aoi(evaluation.distances_at(tier), frontier).value
            for tier in evaluation.ensemble.tiers
        },
        "aoi": whole.value,
        "winsorised": winsorised_aoi(evaluation.distances, frontier).value,
        "E": limit,
        "runs": runs.records(),
        "flags": whole.flags,
    }
    return [_whole(facts), runs], jsonable(facts)


def _whole(facts: Mapping[str, Any]) -> Table:
    before = dict(list(facts["tiers"].items())[:-1])  # the last tier is the whole
    columns = (
        Column("model", folds=True),
        Column("norm", "norm"),
        Column("ensemble"),
        Column("traced runs", "integer"),
        Column("up to ε", "size"),
        *(Column(f"AOI at {tier_label(tier)} (%)", "fine") for tier in before),
        Column("AOI (%)", "fine"),
        Column("to the 95th percentile (%)", "fine"),
    )
    known = [facts[name] for name in ("model", "norm", "ensemble", "pool", "E")]
    row = (*known, *before.values(), facts["aoi"], facts["winsorised"])
    return Table("AOI against the frontier of the traced runs", columns, (row,), facts["flags"])


def _runs(evaluation: Evaluation, frontier: NDArray[np.float64], limit: float) -> Table:
    """Tabulate the AOI of each run alone, and the loss without it, largest loss first."""
    last, spent = evaluation.found_by_run, evaluation.queries_by_run
    rows = [
        (r.run, round(spent[r.run]), aoi(last[r.run], frontier).value, r.wins, r.alone, r.loss)
        for r in sorted(contributions(last, E=limit) if last else (), key=lambda each: -each.loss)
    ]
    columns = (
        Column("run"),
        Column("queries", "integer"),
        Column("AOI alone (%)", "fine", key="aoi"),
        Column("on the frontier", "integer", key="wins"),
        Column("alone there", "integer", key="alone"),
        Column("lost without it (%)", "fine", key="loss"),
    )
    return Table("", columns, tuple(rows))


def _same_model(evaluation: Evaluation, records: Sequence[Record]) -> Record:
    """Return the only record among these that traced the evaluation's model in its norm."""
    in_norm = [record for record in records if record.header.terms.norm == evaluation.norm]
    if not in_norm:
        norms = ", ".join(sorted({record.header.terms.norm for record in records}))
        raise FrontierError(
            f"no trace in {evaluation.norm}, which {evaluation.place} is in: found {norms}; type "
            f"`advfrontier trace MODEL --norm {evaluation.norm} --out …`"
        )
    own = evaluation.record.header.model.digest
    same = [record for record in in_norm if record.header.model.digest == own]
    if not same:
        names = ", ".join(record.header.model.name for record in in_norm)
        raise FrontierError(
            f"no trace of {evaluation.model} ({own[:8]}): found {names}; the frontier must be of "
            "the same model"
        )
    if len(same) > 1:
        places = ", ".join(record.place for record in same)
        raise FrontierError(
            f"several traces of {evaluation.model}: {places}; name one of them with --trace"
        )
    return same[0]
