"""Killed at random moments, whatever is being done: nothing finished is done again, and the end is
the same.

The quick test kills once, in the middle of the work; `make slow` kills two hundred times.
"""

import os
import random
import runpy
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from advfrontier import Machine

SHAPE = (1, 6, 6)
JOB = """
import json, os, sys
sys.path.insert(0, {tests!r})
import torch
torch.set_num_threads(1)
from support.models import conv_net, samples
from advfrontier import Evaluation, Machine, evaluate, trace
from advfrontier.pool import make_ensemble

STEPS = [
    {{"run": run, "queries": queries}}
    for run, queries in (
        ("fmn", 200), ("ddn", 100), ("alma", 100), ("fmn:restart1", 100), ("pdgd", 100),
        ("fmn", 600), ("ddn", 300), ("alma", 300), ("fmn:restart1", 200), ("pdgd", 400),
    )
]
SMALL = make_ensemble(name="small", norm="L2", steps=STEPS, total=600)
LARGER = make_ensemble(name="larger", norm="L2", steps=STEPS)

def job(kind, out, machine):
    model = conv_net({shape}, classes=10, seed=5)
    images, labels = samples(model, 24, {shape}, seed=5)
    options = dict(norm="L2", batch_size=4, machine=machine)
    if kind in ("evaluate", "small"):
        ensemble = LARGER if kind == "evaluate" else SMALL
        evaluate(model, images, labels, ensemble=ensemble, out=out, **options)
    elif kind == "extend":
        held = os.path.exists(out + "/L2/record.json") and Evaluation.load(out).finished
        if not held or Evaluation.load(out).ensemble.total < LARGER.total:
            try:
                evaluate(model, images, labels, ensemble=SMALL, out=out, **options)
            except Exception as error:
                words = str(error)  # it has been extended since
                assert "does not contain all of their steps" in words, error
        Evaluation.load(out).extend(LARGER, model=model, machine=machine)
    elif kind == "trace":
        runs = ["fmn", "ddn", "alma", "pdgd", "fmn:restart1"]
        trace(model, images, labels, runs=runs, queries=400, out=out, **options)
    else:
        from advfrontier.bench.folder import Bench
        from advfrontier.bench.run import run_benchmark

        bench = Bench.open({benchmark!r}, out)
        assert not run_benchmark(bench, norms=["L2", "Linf"], machine=machine)

if __name__ == "__main__":
    kind, out, workers = sys.argv[1:]
    job(kind, out, Machine(threads=1, workers=int(workers)))
"""
BENCHMARK = """
samples = 8
pool = ["fmn", "ddn", "apgd_min-dlr"]
budgets = [200, 400]

[data.fashion-mnist]
source = "fashion-mnist"
radii = { L2 = 1.1, Linf = 0.06 }

[[models]]
id = "F2"
source = "zoo:F2"
data = "fashion-mnist"
split = "train"
batch = 4

[[models]]
id = "F9"
source = "zoo:F9"
data = "fashion-mnist"
split = "held-out"
batch = 4
"""


def finished(place):
    """The files of finished units, with what tells whether one was written again."""
    found = {}
    for path in Path(place).rglob("*+*.safetensors"):
        if not path.name.startswith(".") and "units" in path.parts:
            try:
                found[path] = path.stat().st_mtime_ns, path.stat().st_ino
            except FileNotFoundError:  # a longer one has just replaced it
                continue
    return found


def contents(place):
    """All tensors of a record, which is all of it that does not depend on the clock."""
    from advfrontier.record.tensors import unpack  # noqa: PLC0415

    return {
        str(path.relative_to(place)): {
            name: t.numpy().tobytes() for name, t in unpack(path.read_bytes())[0].items()
        }
        for path in sorted(Path(place).rglob("*.safetensors"))
        if not path.name.startswith(".")
    }


def write_job(folder):
    """The script, and the benchmark that it may run."""
    (folder / "benchmark.toml").write_text(BENCHMARK)
    script, tests = folder / "job.py", str(Path(__file__).parent.parent)
    script.write_text(
        JOB.format(tests=tests, shape=SHAPE, benchmark=str(folder / "benchmark.toml"))
    )
    return script


def killed_often(tmp_path, kind, workers, kills, seed):
    """Start a job, kill it after a random while, and so on; returns how often it was killed."""
    script = write_job(tmp_path)
    rng, place = random.Random(seed), tmp_path / "killed"  # noqa: S311
    words = [sys.executable, str(script), kind]
    began = time.monotonic()
    subprocess.run([*words, str(tmp_path / "whole"), "0"], check=True)  # noqa: S603
    lasts, kept, done = time.monotonic() - began, {}, 0
    while done < kills:
        child = subprocess.Popen([*words, str(place), str(workers)], start_new_session=True)  # noqa: S603
        deadline = time.monotonic() + rng.uniform(0.3, 1.1) * lasts
        while time.monotonic() < deadline and child.poll() is None:
            time.sleep(0.01)
        over = child.poll() is not None
        if not over:
            os.killpg(child.pid, signal.SIGKILL)
            child.wait()
            done += 1
            time.sleep(0.05)  # a rename under way in a dying worker
        assert child.returncode in {0, -signal.SIGKILL}
        now = finished(place)
        again = {path: mark for path, mark in kept.items() if path in now and now[path] != mark}
        assert not again, "a finished unit was written again"
        kept = now
        if over:
            assert contents(place) == contents(tmp_path / "whole")
            subprocess.run(["rm", "-rf", str(place)], check=True)  # noqa: S603, S607
            kept = {}
    subprocess.run([*words, str(place), str(workers)], check=True)  # noqa: S603
    now = finished(place)
    assert not [path for path, mark in kept.items() if path in now and now[path] != mark]
    assert contents(place) == contents(tmp_path / "whole")
    return done


SLOW = [
    ("evaluate", 0, 35),
    ("evaluate", 2, 25),
    ("extend", 0, 35),
    ("extend", 2, 20),
    ("trace", 0, 25),
    ("trace", 2, 20),
    ("bench", 0, 20),
    ("bench", 2, 20),
]


@pytest.mark.skipif(sys.platform != "linux", reason="process groups are killed")
def test_killed_in_the_middle(tmp_path):
    """When a few units are finished and most are not: those few stay, and the end is that of a run
    left alone.
    """
    script, place = write_job(tmp_path), tmp_path / "killed"
    child = subprocess.Popen(  # noqa: S603
        [sys.executable, str(script), "small", str(place), "0"], start_new_session=True
    )
    while len(finished(place)) < 2 and child.poll() is None:
        time.sleep(0.01)
    assert child.poll() is None
    os.killpg(child.pid, signal.SIGKILL)
    child.wait()
    kept = finished(place)
    job = runpy.run_path(str(script))["job"]
    for folder in (place, tmp_path / "whole"):
        job("small", str(folder), Machine(threads=1))
    now = finished(place)
    assert 2 <= len(kept) < len(now) == 6
    assert {path: now[path] for path in kept} == kept
    assert contents(place) == contents(tmp_path / "whole")


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="process groups are killed")
@pytest.mark.parametrize(("kind", "workers", "kills"), SLOW)
def test_killed_two_hundred_times(tmp_path, kind, workers, kills):
    assert killed_often(tmp_path, kind, workers, kills, seed=2) == kills
