"""What is left of a benchmark, and what it will cost."""

import math
import time
from pathlib import Path

import pytest
import torch

from advfrontier.bench import Bench, calibrate, run_benchmark, status
from advfrontier.bench.status import Calibration, disk_used, read_calibration
from advfrontier.errors import FrontierError
from advfrontier.record import Record
from advfrontier.report.benchmark import write_results


def test_status_says_what_is_left_and_what_it_will_cost(tiny):
    bench = tiny()
    before = status(bench)
    assert (sum(part.units for part in before.parts), before.queries) == (8, 2 * 2 * 80 * 8)
    assert math.isnan(before.seconds)
    assert not before.results
    known = calibrate(bench, bench.benchmark.models, device="cpu", threads=1)
    estimated = status(bench, known)
    assert estimated.seconds > 0
    began = disk_used(bench.out)
    results = run_benchmark(bench)
    units = [path for path in Path(bench.out).rglob("*.safetensors") if "units" in path.parts]
    size = sum(path.stat().st_size for path in units)
    assert size == pytest.approx(estimated.bytes, rel=0.25)
    assert disk_used(bench.out) > began + size
    write_results(results, bench.results)
    after = status(bench, known)
    assert (after.queries, after.seconds, after.bytes) == (0, 0, 0)
    assert after.results
    assert after.ensembles == ("ensembles/L2-40.toml", "ensembles/L2-80.toml")


def test_files_that_are_damaged_are_told_or_made_again(tiny):
    bench = tiny()
    out = Path(bench.out)
    out.mkdir()
    for content in ("[]", '{"device": ', '{"models": 3}'):
        (out / "calibration.json").write_text(content)
        assert read_calibration(bench.out, device="cpu", threads=1) == Calibration()
    for content in ("{", '[{"model": "plain"}]'):
        (out / "failures.json").write_text(content)
        with pytest.raises(FrontierError, match=r"failures.json is damaged"):
            status(bench)


def test_status_of_ten_thousand_units_is_a_matter_of_names(tiny):
    pool = [
        "fmn",
        *(f"fmn:restart{k}" for k in range(1, 6)),
        *(f"fmn:target{k}" for k in range(1, 5)),
    ]
    bench = tiny(models=("plain",), pool=pool, samples=1000)
    (model,) = bench.benchmark.models
    run_benchmark(Bench(tiny(models=("plain",), pool=["fmn"], samples=1).benchmark, bench.out))
    bench = tiny(models=("plain",), pool=pool, samples=1000)
    record = Record.find(bench.trace(model, "L2"))
    clean = record.clean
    record.write_clean(clean.rows(torch.zeros(6000, dtype=torch.int64)))
    folder = Path(record.place) / "units"
    for run in pool:
        target = folder / run.replace(":", ".")
        target.mkdir(parents=True, exist_ok=True)
        for first in range(0, 6000, 6):
            (target / f"{first:05d}+006-0080.safetensors").touch()
    began = time.process_time()
    found = status(bench)
    assert time.process_time() - began < 2
    assert found.parts[0].units == 10_000
    assert found.parts[0].done == 10_000
