"""Benchmarks: what to run and where, what it costs, how far it has come. The tables are made by `experiment`."""

from advfrontier.evaluation.bench.allocating import allocate_places, write_ensembles
from advfrontier.evaluation.bench.baselines import BASELINE, baseline_to, load_baseline
from advfrontier.evaluation.bench.costs import Calibration, calibrate, read_calibration
from advfrontier.evaluation.bench.layout import Bench, folder_name
from advfrontier.evaluation.bench.run import Failure, Resources, run_benchmark
from advfrontier.evaluation.bench.status import Part, Status, disk_used, status

__all__ = [
    "BASELINE",
    "Bench",
    "Calibration",
    "Failure",
    "Part",
    "Resources",
    "Status",
    "allocate_places",
    "baseline_to",
    "calibrate",
    "disk_used",
    "folder_name",
    "load_baseline",
    "read_calibration",
    "run_benchmark",
    "status",
    "write_ensembles",
]
