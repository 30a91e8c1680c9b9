"""Benchmarks: what to run and where, what it costs, how far it has come, and the tables that come out."""

from advfrontier.bench.allocation import allocate_traces, find_traces, write_ensembles
from advfrontier.bench.baselines import run_autoattack
from advfrontier.bench.calibration import Calibration, calibrate, read_calibration
from advfrontier.bench.layout import Bench
from advfrontier.bench.results import NormResults, Results, norm_results
from advfrontier.bench.run import run_benchmark
from advfrontier.bench.status import Status, status

__all__ = [
    "Bench",
    "Calibration",
    "NormResults",
    "Results",
    "Status",
    "allocate_traces",
    "calibrate",
    "find_traces",
    "norm_results",
    "read_calibration",
    "run_autoattack",
    "run_benchmark",
    "status",
    "write_ensembles",
]
