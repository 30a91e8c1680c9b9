"""Nets, tables and files that the benchmarks share."""

from __future__ import annotations

import importlib.util
import json
import os
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from advfrontier.engine import CleanPass, Oracle, Search, Shard, Unit, clean_pass
from advfrontier.jsonable import jsonable
from advfrontier.pool import MAX_QUERIES, Run, find_ensemble
from advfrontier.report.render import print_tables
from advfrontier.solvers import solver_of
from advfrontier.table import Table
from advfrontier.threat.norms import make_norm
from advfrontier.zoo import images_and_labels, load

HERE = Path(__file__).resolve().parents[1]
SHARED = (
    Path(os.environ.get("SHARED", HERE.parent / "shared")) / "nets"
)  # real nets that may lie beside the repository
RESULTS = HERE / "build" / "bench"
NOISE = "ratios within one process on a shared machine, medians; absolute times would say nothing"


@dataclass(frozen=True)
class Net:
    """A classifier and the images it is attacked on, all of them classified correctly."""

    name: str
    model: nn.Module
    images: Tensor
    labels: Tensor


def one_thread() -> None:
    """Compute on one core, and with the same starting point each time."""
    torch.set_num_threads(1)
    torch.manual_seed(0)


def nets(names: Sequence[tuple[str, int]], only: Sequence[str] | None = None) -> Iterator[Net]:
    """Yield models of the zoo and of the shared folder; print which are missing."""
    for name, count in names:
        if only and name not in only:
            continue
        if name.startswith("zoo:"):
            model, (images, labels) = load(name.removeprefix("zoo:")), images_and_labels()
        elif (SHARED / f"{name}.safetensors").exists():
            model, images, labels = shared_net(name, 4 * count)
        else:
            print(
                f"{name} is left out: not in {SHARED}; SHARED=FOLDER make … names another folder",
                file=sys.stderr,
            )
            continue
        images, labels = images[: 4 * count], labels[: 4 * count]
        with torch.no_grad():
            correct = (
                torch.cat([model(part).argmax(1) for part in torch.split(images, 100)]) == labels
            )
        rows = correct.nonzero().squeeze(1)[:count]
        yield Net(name, model, images[rows].contiguous(), labels[rows])


@dataclass(frozen=True)
class Attacked:
    """A net after its clean pass in one norm, on which runs and ensembles are started."""

    net: Net
    oracle: Oracle
    clean: CleanPass
    shard: Shard

    def search(self, run: str, *, horizon: int = MAX_QUERIES) -> Search:
        """Return a run that has not begun."""
        parsed = Run.parse(run)
        return Search.start(self.shard, solver_of(parsed), parsed, horizon=horizon)

    def unit(self, ensemble: str) -> Unit:
        """Return an ensemble that has not begun."""
        found = find_ensemble(ensemble, self.shard.norm.name, self.clean.classes)
        return Unit.start(found, self.shard)


@contextmanager
def attacked(net: Net, norm: str) -> Iterator[Attacked]:
    """Yield the net after its clean pass."""
    measure = make_norm(norm, tuple(net.images.shape[1:]))
    with Oracle(net.model) as oracle:
        clean = clean_pass(oracle, net.images, net.labels, measure, batch_size=len(net.images))
        shard = Shard.of(oracle, net.images, clean, norm=measure, seed=42)
        yield Attacked(net, oracle, clean, shard)


def shared_net(name: str, count: int) -> tuple[nn.Module, Tensor, Tensor]:
    """Return a net of the shared folder, and the first images of its data."""
    spec = importlib.util.spec_from_file_location("nets", SHARED / "nets.py")
    if spec is None or spec.loader is None:
        sys.exit(f"{SHARED} has no nets.py")
    module: Any = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    images, labels = module.images(module.NETS[name][0], count)
    return module.load(name).requires_grad_(requires_grad=False), images, labels


def references() -> dict[str, Mapping[str, NDArray[Any]]]:
    """Return recorded distances of other implementations by net, where there are any."""
    return {
        path.stem: dict(np.load(path))
        for path in sorted((SHARED.parent / "reference").glob("*.npz"))
    }


def report(name: str, table: Table) -> None:
    """Print a table, and write it to build/bench/NAME.json with what it was measured with."""
    print_tables(table)
    print()
    RESULTS.mkdir(parents=True, exist_ok=True)
    content = {
        "title": table.title,
        "notes": list(table.notes),
        "torch": torch.__version__,
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "date": time.strftime("%Y-%m-%d"),
        "rows": jsonable(table.records()),
    }
    (RESULTS / f"{name}.json").write_text(
        json.dumps(content, indent=1, ensure_ascii=False) + "\n", encoding="utf-8"
    )
