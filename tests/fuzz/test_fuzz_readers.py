"""Readers of files that others wrote, on files changed at random.

Each case ends in what the file holds or in a FrontierError, within seconds. `ADVFRONTIER_FUZZ=1000`
runs so many cases per format; a failure names its case, which is the same in every run.
"""

import logging
import sys
import traceback
import warnings
from collections import Counter
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from random import Random

import numpy as np
import pytest
import torch

from advfrontier.bench.benchmark import load_benchmark
from advfrontier.errors import FrontierError
from advfrontier.pool import POOLS, Ensemble, Run, make_ensemble
from advfrontier.sources import load_data, load_model
from fuzz.limits import CASES, QUICK, TooSlowError, time_limit
from fuzz.mutate import mutate_bytes, mutate_text

RNG = np.random.default_rng(0)
PIXELS = RNG.integers(0, 256, (12, 6, 5, 3), dtype=np.uint8)
LABELS = RNG.integers(0, 3, 12)

STEPS = [
    {"run": "apgd_min-ce", "queries": 600},
    {"run": "fab_min:target1", "queries": 100},
    {"run": "apgd_min-dlr", "queries": 200, "start": "beyond", "reach": 3.0},
    {"run": "square_min", "queries": 200, "start": "best"},
    {
        "fork": {
            "gained": [{"run": "square_min", "queries": 100, "start": "best"}],
            "otherwise": [{"run": "fmn", "queries": 100, "start": "beyond"}],
        }
    },
    {"run": "apgd_min-ce", "queries": 1000},
]

pytestmark = pytest.mark.filterwarnings("ignore")


@dataclass
class Format:
    """A file, how it is read, and how many cases the quick profile takes."""

    path: Path
    read: object  # path → what the file holds
    mutate: object = mutate_bytes
    quick: int = 40
    exact: bool = True  # whether a changed file that is read must hold what the original does

    def check(self):
        """Run the cases; return how many ended how."""
        original, content = self.read(self.path), self.path.read_bytes()
        ends = Counter()
        for number in range(self.quick if CASES == QUICK else CASES):
            random = Random(f"{self.path.name} {number}")  # noqa: S311 (no secrets here)
            target = self.path.with_name(f"case{self.path.suffix}")
            target.write_bytes(self.mutate(content, random))
            with quiet(), time_limit():
                try:
                    found = self.read(target)
                except FrontierError:
                    ends["refused"] += 1
                    continue
                except (Exception, TooSlowError):  # noqa: BLE001 (any other end is what is looked for)
                    ends["failed"] += 1
                    print(
                        f"{self.path.name}, case {number}:\n{traceback.format_exc()}",
                        file=sys.__stderr__,
                    )
                    continue
            same = found == original
            ends["same" if same else "other"] += 1
            if self.exact and not same:
                print(f"{self.path.name}, case {number}: other content", file=sys.__stderr__)
        return ends


@contextmanager
def quiet():
    logging.disable(logging.CRITICAL)  # torch writes whole tracebacks
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            yield
        finally:
            logging.disable(logging.NOTSET)


def read_ensemble(path):
    """Read an ensemble and do what is done with one."""
    ensemble = Ensemble.load(path)
    assert Ensemble.from_toml(ensemble.to_toml()) == ensemble
    ensemble.at(ensemble.total // 20 * 10).check()
    ensemble.for_classes(3).check()
    return ensemble


def read_benchmark(path):
    """Read a benchmark and do what is done with one."""
    benchmark = load_benchmark(path)
    for model in benchmark.models:
        assert benchmark[model.id] == model
        assert model.data in benchmark.data
        assert benchmark.baseline_on(model) in {True, False}
    for run in benchmark.pool:
        assert run in POOLS or Run.parse(run)
    for data in benchmark.data.values():
        assert all(0 < radius < float("inf") for radius in data.radii.values())
    return benchmark


def read_data(source):
    """Read all images, as bytes that can be compared."""

    def read(path):
        samples = load_data(source.format(path))
        images = samples.read(torch.arange(len(samples)))
        assert images.min() >= 0
        assert images.max() <= 1
        return images.numpy().tobytes(), samples.labels.tolist(), samples.class_names

    return read


def read_weights(source):
    """Load a model; whether it takes the images of the original is another matter."""

    def read(path):
        return {
            name: value.numpy().tobytes()
            for name, value in load_model(source.format(path)).state_dict().items()
        }

    return read


@pytest.fixture
def make(tmp_path):
    """The format of this name."""

    def npz(save, name):
        save(
            tmp_path / name,
            images=PIXELS,
            labels=LABELS,
            class_names=np.array(["cat", "dog", "eel"]),
        )
        return Format(tmp_path / name, read_data("npz:{}"))

    def toml(name, content, read):
        (tmp_path / name).write_text(content, encoding="utf-8")
        return Format(tmp_path / name, read, mutate_text, exact=False)

    def ensemble():
        made = make_ensemble(
            name="4k", norm="L2", steps=STEPS, aoi=0.9, bound=0.95, flags=("a flag",)
        )
        return toml("ensemble.toml", made.to_toml(), read_ensemble)

    def benchmark():
        text = files("advfrontier").joinpath("benchmarks", "small.toml").read_text(encoding="utf-8")
        return toml("benchmark.toml", text, read_benchmark)

    def onnx():
        with quiet():
            from sources.test_onnx import network  # noqa: PLC0415

            from advfrontier.sources.reading import fit_torchvision  # noqa: PLC0415

            fit_torchvision()

            library = pytest.importorskip("onnx")
            pytest.importorskip("onnx2torch")
        library.save(network(library), tmp_path / "net.onnx")
        return Format(
            tmp_path / "net.onnx", read_weights("onnx:{}"), quick=20, exact=False
        )  # has no checksum

    return {
        "ensemble": ensemble,
        "benchmark": benchmark,
        "stored npz": lambda: npz(np.savez, "stored.npz"),
        "compressed npz": lambda: npz(np.savez_compressed, "compressed.npz"),
        "onnx": onnx,
    }


@pytest.mark.parametrize("name", ["ensemble", "benchmark", "stored npz", "compressed npz", "onnx"])
def test_changed_files_are_read_as_they_were_or_refused(make, name):
    chosen = make[name]()
    ends = chosen.check()
    if CASES != QUICK:
        print(f"{name}: {dict(ends)}", file=sys.__stderr__)
    assert not ends["failed"]
    assert ends["refused"]
    if chosen.exact:
        assert not ends["other"]
