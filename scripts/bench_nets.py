"""What the benchmarks share: the nets they run on and attack, the tables they print, and the files they leave."""

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

from advfrontier.engine import CleanPass, Oracle, RaceUnit, Unit, clean_pass, start_race, start_unit
from advfrontier.jsonable import jsonable
from advfrontier.pool import Race, Run, find_ensemble
from advfrontier.report.render import print_tables
from advfrontier.table import Table
from advfrontier.threat.norms import get_norm
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
    """Models of the zoo and nets of the shared folder, each with so many images; a line says which are missing."""
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
            correct = torch.cat([model(part).argmax(1) for part in images.split(100)]) == labels
        rows = correct.nonzero().squeeze(1)[:count]
        yield Net(name, model, images[rows].contiguous(), labels[rows])


@dataclass(frozen=True)
class Attacked:
    """A net that runs and races are started on, in one norm."""

    net: Net
    oracle: Oracle
    clean: CleanPass
    norm: str

    def unit(self, run: str, **options: Any) -> Unit:
        """A run that has not begun."""
        images, norm = self.net.images, get_norm(self.norm)
        return start_unit(
            self.oracle, Run.parse(run), images, self.clean, norm=norm, seed=42, **options
        )

    def race(self, queries: int) -> RaceUnit | None:
        """The race of so many queries; None where an ensemble has that many."""
        found = find_ensemble(queries, self.norm, self.clean.classes)
        return start_race(found, self.unit) if isinstance(found, Race) else None


@contextmanager
def attacked(net: Net, norm: str) -> Iterator[Attacked]:
    """The net after its clean pass."""
    with Oracle(net.model) as oracle:
        clean = clean_pass(
            oracle, net.images, net.labels, get_norm(norm), batch_size=len(net.images)
        )
        yield Attacked(net, oracle, clean, norm)


def shared_net(name: str, count: int) -> tuple[nn.Module, Tensor, Tensor]:
    """A net of the shared folder, and the first images of its data."""
    spec = importlib.util.spec_from_file_location("nets", SHARED / "nets.py")
    if spec is None or spec.loader is None:
        sys.exit(f"{SHARED} has no nets.py")
    module: Any = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    images, labels = module.images(module.NETS[name][0], count)
    return module.load(name).requires_grad_(requires_grad=False), images, labels


def references() -> dict[str, Mapping[str, NDArray[Any]]]:
    """By net what other implementations were recorded to reach on it, as far as such records lie beside the nets."""
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
