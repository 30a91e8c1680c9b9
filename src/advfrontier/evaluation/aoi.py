"""AOI of a finished evaluation: how close its ensemble came to the frontier of a pool traced on the same model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from advfrontier.errors import FrontierError
from advfrontier.evaluation.evaluation import Evaluation
from advfrontier.evaluation.trace import read_traces
from advfrontier.frontier.contribution import contributions
from advfrontier.frontier.curve import epsilon_min
from advfrontier.frontier.measure import check_same_samples, check_same_settings
from advfrontier.frontier.optimality import aoi, winsorised_aoi
from advfrontier.jsonable import jsonable
from advfrontier.pool import tier_label
from advfrontier.record import Record
from advfrontier.record.identity import settings
from advfrontier.table import Column, Table


@dataclass(frozen=True)
class EvaluationAoi:
    """AOI of an evaluation, whole and tier by tier, against a pool's frontier."""

    model: str
    norm: str
    ensemble: str
    trace: str
    pool: int  # runs of the frontier
    tiers: dict[int, float]
    aoi: float
    winsorised: float  # up to the 95th percentile of the frontier, where single samples decide nothing
    E: float
    runs: Table  # what each run reaches alone, and what the others would miss without it: the most missed first
    flags: tuple[str, ...]

    def facts(self) -> dict[str, Any]:
        """Everything as JSON can hold it."""
        facts: dict[str, Any] = jsonable({**vars(self), "runs": self.runs.records()})
        return facts

    def table(self) -> Table:
        """The figures as a table, without those of single runs."""
        before = dict(list(self.tiers.items())[:-1])  # the last tier is the whole
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
        row = (self.model, self.norm, self.ensemble, self.pool, self.E, *before.values(), self.aoi, self.winsorised)
        return Table("AOI against the frontier of the traced runs", columns, (row,), self.flags)


def evaluation_aoi(evaluation: Evaluation, records: Sequence[Record]) -> EvaluationAoi:
    """Find the trace of the same model and norm among these records, and compare sample by sample."""
    record = _same_model(evaluation, records)
    used, traced = evaluation.record.header.solvers, record.header.solvers
    check_same_settings(
        settings(used), settings(traced), names=(evaluation.place, record.place), attacks=used.keys() & traced.keys()
    )
    traces = read_traces(record)
    check_same_samples(evaluation.samples, traces.samples, names=(evaluation.place, record.place))
    frontier = traces.frontier()
    limit = epsilon_min(frontier).value
    whole = aoi(evaluation.distances, frontier)
    return EvaluationAoi(
        model=evaluation.model,
        norm=evaluation.norm,
        ensemble=evaluation.ensemble.name,
        trace=record.place,
        pool=len(traces.runs),
        tiers={tier: aoi(evaluation.distances_at(tier), frontier).value for tier in evaluation.ensemble.tiers},
        aoi=whole.value,
        winsorised=winsorised_aoi(evaluation.distances, frontier).value,
        E=limit,
        runs=_runs(evaluation, frontier, limit),
        flags=whole.flags,
    )


def _runs(evaluation: Evaluation, frontier: NDArray[np.float64], limit: float) -> Table:
    last, spent = evaluation.found_by_run, evaluation.queries_by_run
    rows = [
        (r.run, round(spent[r.run]), aoi(last[r.run], frontier).value, r.wins, r.alone, r.loss)
        for r in sorted(contributions(last, E=limit), key=lambda each: -each.loss)
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
    """The one record among these that traced the evaluation's model in its norm."""
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
            f"no trace of {evaluation.model} ({own[:8]}): found {names}; the frontier must be that of the same model"
        )
    if len(same) > 1:
        places = ", ".join(record.place for record in same)
        raise FrontierError(f"several traces of {evaluation.model}: {places}; name one of them with --trace")
    return same[0]
