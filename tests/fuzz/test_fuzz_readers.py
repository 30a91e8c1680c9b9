"""Readers of files that others wrote, on files changed at random.

Each case ends in what the file holds or in a FrontierError, within seconds. `ADVFRONTIER_FUZZ=1000` runs so many cases
per format; a failure names its case, which is the same in every run.
"""

import logging
import os
import signal
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
from fuzz.mutate import mutate_archive, mutate_bytes, mutate_text
from torch import nn

from advfrontier.bench.benchmark import load_benchmark
from advfrontier.errors import FrontierError
from advfrontier.pool import Ensemble, Race, Run, find_ensemble, paper_ensemble
from advfrontier.sources import load_data, load_model

CASES = int(os.environ.get("ADVFRONTIER_FUZZ", "0"))
SECONDS = 20
RNG = np.random.default_rng(0)
PIXELS = RNG.integers(0, 256, (12, 6, 5, 3), dtype=np.uint8)
LABELS = RNG.integers(0, 3, 12)

pytestmark = pytest.mark.filterwarnings("ignore")


class TooSlowError(BaseException):
    """Not an Exception, so that no reader can turn it into a FrontierError."""


@contextmanager
def time_limit():
    def stop(*_):
        raise TooSlowError

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(SECONDS)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


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
        for number in range(CASES or self.quick):
            random = Random(f"{self.path.name} {number}")  # noqa: S311 (no secrets here)
            target = self.path.with_name(f"case{self.path.suffix}")
            if self.mutate is mutate_archive:
                mutate_archive(self.path, target, random)
            else:
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


def read_race(path):
    """Read a race and do what is done with one."""
    race = find_ensemble(str(path), "L2", 10)
    if isinstance(race, Race):  # a file that has lost its order is read as an ensemble's
        assert Race.from_toml(race.to_toml()) == race
        assert race.for_classes(3).total <= race.total
        nothing = np.zeros((2, len(race.runs)), dtype=np.int64)
        assert race.choose(nothing, np.full(nothing.shape, np.inf)).tolist() == [0, 0]
    return race


def read_benchmark(path):
    """Read a benchmark and do what is done with one."""
    benchmark = load_benchmark(path)
    for model in benchmark.models:
        assert benchmark[model.id] == model
        assert benchmark.data_source(model.id)
        assert model.baseline_batch >= 1
    for run in benchmark.pool:
        Run.parse(run)
    assert all(
        0 < radius < float("inf")
        for data in benchmark.data.values()
        for r in data.radii.values()
        for radius in r
    )
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


def read_model(source):
    """Load a model and let it compute."""

    def read(path):
        torch.manual_seed(0)
        logits = load_model(source.format(path))(torch.rand(2, 3, 8, 8))
        return logits.detach().numpy().tobytes()

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
        whole = paper_ensemble("paper-12k", "L2")
        made = Ensemble("greedy", "L2", whole.moves, 0.9, 0.95, ("a flag",))
        return toml("ensemble.toml", made.to_toml(), read_ensemble)

    def benchmark():
        text = files("advfrontier").joinpath("benchmarks", "small.toml").read_text(encoding="utf-8")
        return toml("benchmark.toml", text, read_benchmark)

    def cifar():
        from sources.test_sources_cifar import python2_pickle  # noqa: PLC0415

        flat = RNG.integers(0, 256, (3, 3072), dtype=np.uint8)
        folder = tmp_path / "cifar"
        folder.mkdir()
        (folder / "test_batch").write_bytes(python2_pickle({b"data": flat, b"labels": [1, 2, 3]}))

        def read(path):
            if path.name != "test_batch":
                target = tmp_path / "other" / "test_batch"
                target.parent.mkdir(exist_ok=True)
                path = path.rename(target)
            return read_data("cifar10:{}")(path.parent)

        return Format(folder / "test_batch", read, exact=False)  # the format has no checksum

    def onnx():
        with quiet():
            from sources.test_sources_onnx import network  # noqa: PLC0415

            from advfrontier.sources.reading import fit_torchvision  # noqa: PLC0415

            fit_torchvision()
            library = pytest.importorskip("onnx")
            pytest.importorskip("onnx2torch")
        library.save(network(library), tmp_path / "net.onnx")
        return Format(
            tmp_path / "net.onnx", read_weights("onnx:{}"), quick=20, exact=False
        )  # has no checksum

    def exported(name):
        pytest.importorskip(
            "torch.export.pt2_archive", reason="the archives of torch.export.save need torch 2.9"
        )
        net = nn.Sequential(nn.Conv2d(3, 2, 3), nn.ReLU(), nn.Flatten(), nn.Linear(72, 4)).eval()
        program = torch.export.export(
            net, (torch.rand(2, 3, 8, 8),), dynamic_shapes=({0: torch.export.Dim("batch")},)
        )
        torch.export.save(program, tmp_path / name)
        return tmp_path / name

    return {
        "ensemble": ensemble,
        "race": lambda: toml("race.toml", find_ensemble("12k", "L2", 10).to_toml(), read_race),
        "benchmark": benchmark,
        "stored npz": lambda: npz(np.savez, "stored.npz"),
        "compressed npz": lambda: npz(np.savez_compressed, "compressed.npz"),
        "cifar": cifar,
        "onnx": onnx,
        "pt2": lambda: Format(exported("net.pt2"), read_model("export:{}"), quick=20),
        "pt2 program": lambda: Format(
            exported("program.pt2"),
            read_weights("export:{}"),
            mutate_archive,
            quick=15,
            exact=False,
        ),
    }


@pytest.mark.parametrize(
    "name",
    [
        "ensemble",
        "race",
        "benchmark",
        "stored npz",
        "compressed npz",
        "cifar",
        "onnx",
        "pt2",
        "pt2 program",
    ],
)
def test_changed_files_are_read_as_they_were_or_refused(make, name):
    chosen = make[name]()
    ends = chosen.check()
    if CASES:
        print(f"{name}: {dict(ends)}", file=sys.__stderr__)
    assert not ends["failed"]
    assert ends["refused"]
    if chosen.exact:
        assert not ends["other"]
