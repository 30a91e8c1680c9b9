"""Put the figures of finished records into the tables of a benchmark."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from advfrontier.bench.benchmark import BenchmarkModel
from advfrontier.bench.folder import (
    TRACE,
    Bench,
    finished_baseline,
    finished_evaluation,
    finished_trace,
    read_trace,
)
from advfrontier.bench.frame import (
    AUTOATTACK,
    DEFAULT,
    GREEDY,
    PAPER,
    Distances,
    Results,
    make_rows,
    pd,
)
from advfrontier.evaluation.allocation import ensemble_file
from advfrontier.evaluation.baseline import KnownPoints
from advfrontier.evaluation.evaluation import Evaluation
from advfrontier.evaluation.trace import Traces
from advfrontier.pool import TIERS, Ensemble, paper_ensemble, tier_label
from advfrontier.record import open_folder
from advfrontier.threat.names import NORMS


def collect(bench: Bench, results: Results, *, norms: Sequence[str] = NORMS) -> None:
    """Put the figures of all finished records in the tables; records that are missing are left out.

    Args:
        bench: Benchmark, and the folder of its records.
        results: The tables, which may hold rows of earlier records.
        norms: Names of the norms to read, such as `L2`.
    """
    parts = []
    for norm in norms:
        _read_ensembles(bench, results, norm)
        for model in bench.benchmark.models:
            record = finished_trace(bench, model, norm)
            if record is not None:
                parts.append(_rows_of_trace(bench, results, model, read_trace(bench, record)))
            evaluation = finished_evaluation(bench, model, norm)
            if evaluation is not None:
                parts.append(_rows_of_evaluation(bench, results, model, evaluation))
            points = finished_baseline(bench, model, norm)
            if points is not None:
                _put_points(results, model, norm, points)
    if parts:
        results.put_distances(pd.concat(parts, ignore_index=True))


def _read_ensembles(bench: Bench, results: Results, norm: str) -> None:
    folder = open_folder(f"{bench.out}/ensembles")
    for budget in bench.benchmark.budgets:
        content = folder.read(ensemble_file(norm, budget))
        if content is not None:
            results.ensembles[norm, budget] = Ensemble.from_toml(content)


def _rows_of_trace(
    bench: Bench, results: Results, model: BenchmarkModel, traces: Traces
) -> pd.DataFrame:
    """Return the distances of every run, and of greedy and published ensembles on prefixes."""
    norm, last = traces.norm, int(traces.queries[-1])
    distances = {}
    for run, found in zip(traces.runs, traces.distances, strict=True):
        distances[run, last] = found[-1]
    greedy = results.ensembles.get((norm, bench.benchmark.budgets[-1]))
    if greedy is not None:
        for budget in bench.grid:
            distances[GREEDY, budget] = _found(traces, greedy.at(budget))
    for budget in bench.benchmark.budgets:
        if budget in TIERS:
            published = paper_ensemble(f"paper-{tier_label(budget)}", norm)
            if set(published.runs) <= set(traces.runs):
                distances[PAPER, budget] = _found(traces, published)
    results.put_flags(norm, model.id, TRACE, {f.text: f.doubtful for f in traces.flags})
    return _rows(model, norm, traces.samples, distances)


def _found(traces: Traces, ensemble: Ensemble) -> NDArray[np.float64]:
    """Return the distances that an ensemble of traced runs finds."""
    queries = {run: spent for run, spent in ensemble.queries.items() if run in traces.runs}
    return traces.best(queries)


def _rows_of_evaluation(
    bench: Bench, results: Results, model: BenchmarkModel, evaluation: Evaluation
) -> pd.DataFrame:
    """Return what the default ensemble found."""
    distances = {}
    for budget in bench.grid:
        if budget <= evaluation.ensemble.total:
            distances[DEFAULT, budget] = evaluation.distances_at(budget)
    flags = {flag.text: flag.doubtful for flag in evaluation.flags}
    results.put_flags(evaluation.norm, model.id, DEFAULT, flags)
    return _rows(model, evaluation.norm, evaluation.samples, distances)


def _rows(
    model: BenchmarkModel, norm: str, samples: Sequence[str], distances: Distances
) -> pd.DataFrame:
    return make_rows(
        norm=norm,
        model=model.id,
        data=model.data,
        split=model.split,
        samples=samples,
        distances=distances,
    )


def _put_points(results: Results, model: BenchmarkModel, norm: str, points: KnownPoints) -> None:
    rows = pd.DataFrame(
        {
            "norm": norm,
            "model": model.id,
            "radius": points.radii,
            "accuracy": points.accuracies,
            "queries": points.queries,
        }
    )
    results.put_points(rows)
    results.put_flags(norm, model.id, AUTOATTACK, dict.fromkeys(points.flags, False))
