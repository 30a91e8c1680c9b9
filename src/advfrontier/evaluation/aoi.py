"""AOI of a finished evaluation: how close its ensemble came to the frontier of a pool traced on the same model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from advfrontier.errors import FrontierError
from advfrontier.evaluation.plain import plain
from advfrontier.evaluation.trace import load_traces
from advfrontier.frontier.contribution import contributions
from advfrontier.frontier.curve import epsilon_min
from advfrontier.frontier.measure import check_same_samples
from advfrontier.frontier.optimality import aoi, winsorised_aoi
from advfrontier.pool import tier_name
from advfrontier.store import Store
from advfrontier.table import Column, Table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from advfrontier.evaluation.evaluate import Evaluation


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
        """For programs."""
        facts: dict[str, Any] = plain({**vars(self), "runs": self.runs.records()})
        return facts

    def table(self) -> Table:
        """For people, without the runs."""
        before = dict(list(self.tiers.items())[:-1])  # the last tier is the whole
        columns = (
            Column("model", folds=True),
            Column("norm", "norm"),
            Column("ensemble"),
            Column("traced runs", "integer"),
            Column("up to ε", "size"),
            *(Column(f"AOI at {tier_name(tier)} (%)", "fine") for tier in before),
            Column("AOI (%)", "fine"),
            Column("to the 95th percentile (%)", "fine"),
        )
        row = (self.model, self.norm, self.ensemble, self.pool, self.E, *before.values(), self.aoi, self.winsorised)
        return Table("AOI against the frontier of the traced runs", columns, (row,), self.flags)


def evaluation_aoi(evaluation: Evaluation, records: Sequence[str]) -> EvaluationAoi:
    """Find the trace of the same model and norm among these records, and compare sample by sample."""
    folder = _same_model(evaluation, records)
    traces = load_traces(folder)
    check_same_samples(evaluation.samples, traces.samples, names=(evaluation.store.place, folder))
    frontier = traces.frontier()
    limit = epsilon_min(frontier).value
    whole = aoi(evaluation.distances, frontier)
    return EvaluationAoi(
        model=evaluation.model,
        norm=evaluation.norm,
        ensemble=evaluation.ensemble.name,
        trace=folder,
        pool=len(traces.runs),
        tiers={tier: aoi(evaluation.distances_at(tier), frontier).value for tier in evaluation.ensemble.tiers},
        aoi=whole.value,
        winsorised=winsorised_aoi(evaluation.distances, frontier).value,
        E=limit,
        runs=_runs(evaluation, frontier, limit),
        flags=whole.flags,
    )


def _runs(evaluation: Evaluation, frontier: NDArray[np.float64], limit: float) -> Table:
    last = {run: np.asarray(table[-1]) for run, table in evaluation.trajectories.items()}
    rows = [
        (r.run, evaluation.ensemble.queries[r.run], aoi(last[r.run], frontier).value, r.wins, r.alone, r.loss)
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


def _same_model(evaluation: Evaluation, records: Sequence[str]) -> str:
    headers = {folder: Store(folder).record() or {} for folder in records}
    in_norm = [folder for folder, header in headers.items() if header.get("norm") == evaluation.norm]
    if not in_norm:
        norms = ", ".join(sorted({str(header.get("norm")) for header in headers.values()}))
        raise FrontierError(
            f"no trace in {evaluation.norm}, which {evaluation.store.place} is in: found {norms}; type "
            f"`advfrontier trace MODEL --norm {evaluation.norm} --out …`"
        )
    mark = evaluation.record["model"]["fingerprint"]
    same = [folder for folder in in_norm if headers[folder]["model"]["fingerprint"] == mark]
    if not same:
        names = ", ".join(headers[folder]["model"]["name"] for folder in in_norm)
        raise FrontierError(
            f"no trace of {evaluation.model} ({mark[:8]}): found {names}; the frontier must be that of the same model"
        )
    if len(same) > 1:
        raise FrontierError(f"several traces of {evaluation.model}: {', '.join(same)}; name one of them with --trace")
    return same[0]
