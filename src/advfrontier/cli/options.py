"""Options that several commands share, and what they mean."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import torch
from cyclopts import Parameter

from advfrontier.errors import FrontierError
from advfrontier.evaluation.radii import parse_radii, reference_radii
from advfrontier.execution.local import cores
from advfrontier.sources import Samples, load_model, load_samples
from advfrontier.threat.names import NORMS, norm_name


@Parameter(name="*")
@dataclass(frozen=True)
class Machine:
    """Where the work is done."""

    device: str = "cpu"
    "Where the model runs: cpu, cuda, cuda:1, mps."
    workers: int | None = None
    "Worker processes. By default one per core on a CPU, one per GPU, and none for a single unit of work."
    threads: int | None = None
    "Threads of each worker. Results depend on them in the last bits, so a record keeps the number it began with."
    ray: str | None = None
    "A Ray cluster: auto, an address, or local."
    batch_size: int = 100
    "Samples per batch, which are one unit of work."

    def resolved(self) -> tuple[int, int]:
        """Workers and threads."""
        if self.workers is not None and self.workers < 0:
            raise FrontierError(f"--workers is {self.workers}: expected 0 (this process) or more")
        if self.device.startswith("cuda"):
            gpus = torch.cuda.device_count() if self.device == "cuda" else 1
            return (gpus if gpus > 1 else 0) if self.workers is None else self.workers, self.threads or 1
        workers = cores() if self.workers is None else self.workers
        # One thread by default: small models gain nothing from more, and results stay the same on any machine.
        return (workers if workers > 1 else 0), self.threads or 1


@Parameter(name="*")
@dataclass(frozen=True)
class Data:
    """What is evaluated on."""

    data: Annotated[str, Parameter(name=("--data", "-d"))] = "fashion-mnist"
    "fashion-mnist (embedded), npz:FILE, cifar10:DIR, cifar100:DIR, imagefolder:DIR, hf:NAME."
    samples: Annotated[int | None, Parameter(name=("--samples", "-n"))] = None
    "How many samples: the first so many, or with --sample-seed so many at random. All by default."
    sample_seed: int | None = None
    "Draw the samples at random with this seed."
    download: bool = False
    "Fetch what the model or the data needs if it is not here yet; otherwise nothing is ever downloaded."

    def load(self, *models: str) -> Samples:
        """The samples; and where downloads are allowed, models are fetched now, so that workers find them."""
        for model in models if self.download else ():
            load_model(model, download=True)
        return load_samples(self.data, samples=self.samples, seed=self.sample_seed, download=self.download)


def norms(text: str) -> tuple[str, ...]:
    """`Linf`, `l2,linf` or `all`."""
    if text.strip().lower() == "all":
        return NORMS
    return tuple(dict.fromkeys(norm_name(part) for part in text.split(",")))


def radii_for(data: str, norm: str, text: str | None) -> tuple[tuple[str, float], ...]:
    """Those asked for, or those usually quoted."""
    return parse_radii(text) if text else reference_radii(data, norm)


def default_folder(model: str) -> Path:
    """Where a record goes if nobody says: `runs/` and the model's name without what a folder cannot hold."""
    name = "".join(c if c.isalnum() or c in "-_." else "-" for c in model).strip("-.")
    return Path("runs") / name
