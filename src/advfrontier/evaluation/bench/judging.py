"""A finished evaluation against the frontier of a traced pool: how close its ensemble came on this very model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from advfrontier.errors import FrontierError
from advfrontier.evaluation.trace import load_traces
from advfrontier.frontier.contribution import Contribution, contributions
from advfrontier.frontier.curve import epsilon_min
from advfrontier.frontier.measure import check_same_samples
from advfrontier.frontier.optimality import aoi, winsorised_aoi
from advfrontier.store import Store

if TYPE_CHECKING:
    from collections.abc import Sequence

    from advfrontier.evaluation.evaluate import Evaluation


@dataclass(frozen=True)
class RunAoi:
    """One run of the ensemble: what it reaches alone, and what the others would miss without it."""

    run: str
    queries: int
    aoi: float
    contribution: Contribution


@dataclass(frozen=True)
class RecordAoi:
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
    runs: tuple[RunAoi, ...]
    flags: tuple[str, ...]


def record_aoi(evaluation: Evaluation, places: Sequence[str]) -> RecordAoi:
    """Find the trace of the same model and norm among these records, and compare sample by sample."""
    place = _same_model(evaluation, places)
    traces = load_traces(place)
    check_same_samples(evaluation.samples, traces.samples, names=(evaluation.store.place, place))
    frontier = traces.frontier()
    limit = epsilon_min(frontier).value
    whole = aoi(evaluation.distances, frontier)
    last = {run: np.asarray(table[-1]) for run, table in evaluation.trajectories.items()}
    adds = {entry.run: entry for entry in contributions(last, E=limit)}
    return RecordAoi(
        model=evaluation.model,
        norm=evaluation.norm,
        ensemble=evaluation.ensemble.name,
        trace=place,
        pool=len(traces.runs),
        tiers={tier: aoi(evaluation.distances_at(tier), frontier).value for tier in evaluation.ensemble.tiers},
        aoi=whole.value,
        winsorised=winsorised_aoi(evaluation.distances, frontier).value,
        E=limit,
        runs=tuple(
            RunAoi(run, evaluation.ensemble.queries[run], aoi(d, frontier).value, adds[run]) for run, d in last.items()
        ),
        flags=whole.flags,
    )


def _same_model(evaluation: Evaluation, places: Sequence[str]) -> str:
    held = {place: Store(place).record() or {} for place in places}
    in_norm = [place for place, record in held.items() if record.get("norm") == evaluation.norm]
    if not in_norm:
        found = ", ".join(sorted({str(record.get("norm")) for record in held.values()}))
        raise FrontierError(
            f"no trace in {evaluation.norm}, which {evaluation.store.place} is in: found {found}; type "
            f"`advfrontier trace MODEL --norm {evaluation.norm} --out …`"
        )
    mark = evaluation.record["model"]["fingerprint"]
    same = [place for place in in_norm if held[place]["model"]["fingerprint"] == mark]
    if not same:
        names = ", ".join(held[place]["model"]["name"] for place in in_norm)
        raise FrontierError(
            f"no trace of {evaluation.model} ({mark[:8]}): found {names}; the frontier must be that of the same model"
        )
    if len(same) > 1:
        raise FrontierError(f"several traces of {evaluation.model}: {', '.join(same)}; name one of them with --trace")
    return same[0]
