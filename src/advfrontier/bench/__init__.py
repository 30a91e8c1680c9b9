"""Benchmarks: what to run and where, what it costs, how far it has come, and the tables that come out."""

from advfrontier.bench.allocation import allocate_traces, find_traces, write_ensembles
from advfrontier.bench.baselines import baseline_to, load_baseline
from advfrontier.bench.calibration import Calibration, calibrate, read_calibration
from advfrontier.bench.layout import Bench, folder_name
from advfrontier.bench.results import NormResults, Results, norm_results
from advfrontier.bench.run import run_benchmark
from advfrontier.bench.status import Status, status
from advfrontier.bench.traces import Resources

__all__ = [
    "Bench",
    "Calibration",
    "NormResults",
    "Resources",
    "Results",
    "Status",
    "allocate_traces",
    "baseline_to",
    "calibrate",
    "find_traces",
    "folder_name",
    "load_baseline",
    "norm_results",
    "read_calibration",
    "run_benchmark",
    "status",
    "write_ensembles",
]
