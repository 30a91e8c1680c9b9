"""Benchmarks: what to run and where, what it costs, how far it has come, and the tables that come out."""

from advfrontier.bench.baselines import run_autoattack
from advfrontier.bench.layout import Bench
from advfrontier.bench.results import NormResults, Results
from advfrontier.bench.run import run_benchmark
from advfrontier.bench.status import calibrate, status

__all__ = [
    "Bench",
    "NormResults",
    "Results",
    "calibrate",
    "run_autoattack",
    "run_benchmark",
    "status",
]
