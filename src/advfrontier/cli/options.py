"""Options that several commands share, each said once, and what they mean."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated

import torch
from cyclopts import Parameter

from advfrontier.engine import find_device
from advfrontier.errors import FrontierError
from advfrontier.evaluation.gate import Demand, parse_demands
from advfrontier.evaluation.radii import parse_radii
from advfrontier.execution import Machine as WorkMachine
from advfrontier.execution.local import cores
from advfrontier.record.folder import below, check_writable
from advfrontier.report.export import parse_formats
from advfrontier.report.html import MARK
from advfrontier.solvers import PUBLISHED, Solver
from advfrontier.sources import Samples, load_data, load_model
from advfrontier.threat.names import NORMS, norm_name

OUT = Parameter(name=("--out", "-o"))
Model = Annotated[
    str,
    Parameter(
        help="zoo:F3, file.py:factory, package.module:factory, robustbench:cifar10/Linf/NAME, timm:NAME, hf:NAME, "
        "onnx:FILE, export:FILE."
    ),
]
Norm = Annotated[str, Parameter(help="L0, L1, L2, Linf, several with commas, or all.")]
Seed = Annotated[int, Parameter(help="Of the random restarts.")]
RADII = ("--radii", "--eps")
Radii = Annotated[
    str | None,
    Parameter(
        name=RADII, help="Where robust accuracy is read: 4/255,8/255, or by norm L2=0.5,Linf=8/255."
    ),
]
Export = Annotated[
    str | None,
    Parameter(
        help="Write files beside the records as well, several with commas: csv or parquet (a row per sample), npz "
        "(with images and adversarials), png (adversarials), classes (a row per class), card, latex, sentence."
    ),
]
Json = Annotated[bool, Parameter(help="Print figures as JSON and nothing else.")]
Device = Annotated[
    str,
    Parameter(
        help="Where the model runs: cpu, cuda, cuda:1, mps, or auto for the first there is of cuda, mps, cpu."
    ),
]
# One thread by default: small models gain nothing from more, and results stay the same on any machine.
Threads = Annotated[
    int,
    Parameter(
        help="Threads of each worker. Results depend on them in the last bits, so a record keeps the number it began "
        "with."
    ),
]
WorkerCount = Annotated[
    int | None,
    Parameter(
        help="Worker processes, 0 for none. By default as many as the cores have room for, or one per GPU."
    ),
]


@Parameter(name="*")
@dataclass(frozen=True)
class Workers:
    """How many processes do the work, and a file that may hold any option: `cli/app.py` reads it."""

    config: str | None = field(default=None, kw_only=True)
    'A TOML file with options by their names, as in norm = "L2"; what is typed wins.'
    workers: WorkerCount = None
    ray: str | None = None
    "A Ray cluster: auto, an address, or local."
    max_minutes: float | None = None
    "Stop after so long, with exit code 75 if anything is left: the same command goes on."

    @property
    def until(self) -> float | None:
        """When to stop, from now on."""
        if self.max_minutes is not None and not self.max_minutes > 0:
            raise FrontierError(f"--max-minutes is {self.max_minutes:g}: expected more than 0")
        return None if self.max_minutes is None else time.time() + 60 * self.max_minutes

    def count(self, device: str, threads: int = 1) -> int:
        """Worker processes for a model on this device: 0 means this process."""
        if self.workers is not None:
            if self.workers < 0:
                raise FrontierError(
                    f"--workers is {self.workers}: expected 0 (this process) or more"
                )
            return self.workers
        if self.ray is not None:
            return 0  # the cluster knows its slots
        # Processes that share a GPU only take turns at it.
        room = (
            cores() // threads
            if device == "cpu"
            else torch.cuda.device_count()
            if device == "cuda"
            else 1
        )
        return room if room > 1 else 0


@Parameter(name="*")
@dataclass(frozen=True)
class Machine(Workers):
    """Where the work is done."""

    device: Device = "auto"
    threads: Threads = 1

    def resolved(self) -> tuple[int, int]:
        """Workers and threads."""
        if self.threads < 1:
            raise FrontierError(f"--threads is {self.threads}: expected at least 1")
        return self.count(self.found, self.threads), self.threads

    @property
    def found(self) -> str:
        """The device by name."""
        return str(find_device("auto")) if self.device == "auto" else self.device

    def machine(self, *, keep_state: bool = True) -> WorkMachine:
        """The machine that does the work."""
        find_device(self.found)
        workers, threads = self.resolved()
        return WorkMachine(
            self.found,
            threads=threads,
            workers=workers,
            ray=self.ray,
            keep_state=keep_state,
            until=self.until,
            progress=True,
        )


@Parameter(name="*")
@dataclass(frozen=True)
class Source:
    """Where the samples come from."""

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
        return load_data(
            self.data, samples=self.samples, seed=self.sample_seed, download=self.download
        )


@Parameter(name="*")
@dataclass(frozen=True)
class Data(Source):
    """What is evaluated on."""

    batch_size: int | None = None
    "Samples per batch, which are one unit of work: by default 50 on the CPU, where workers share them, else 100."


@Parameter(name="*")
@dataclass(frozen=True)
class Budget:
    """How many queries each sample is given."""

    tier: str | None = None
    "4k, 8k or 12k queries per sample."
    queries: int | None = None
    "Any other number of queries per sample."
    ensemble: str | None = None
    "Another kind of ensemble, such as paper-4k or greedy-8k, or a file that `advfrontier allocate` wrote."

    def chosen(self) -> str | int | None:
        """The one that was given, if any."""
        given = {f"--{name}": value for name, value in vars(self).items() if value is not None}
        if len(given) > 1:
            raise FrontierError(
                f"{' and '.join(given)} were given together: expected one of them; 300 queries of another kind are "
                "--ensemble paper-300"
            )
        return next(iter(given.values()), None)


@Parameter(name="*")
@dataclass(frozen=True)
class Attacks:
    """Which attacks are run."""

    runs: str | None = None
    "Some runs only, with commas: fmn,apgd_min-dlr:target1."
    pool: str | None = None
    "All runs of a pool: paper, extended (with attacks beyond it), or black-box (those that use no gradient)."
    published: bool = False
    "The solvers as their papers have them, without the departures that docs/solvers.md lists."
    eot: int = 1
    "For models that answer at random: so many passes per query, whose mean is taken, such as 20."

    def chosen(self) -> str | None:
        """The runs or the pool, if any was named."""
        if self.runs is not None and self.pool is not None:
            raise FrontierError("--runs and --pool were given together: expected one of them")
        named = self.pool if self.runs is None else self.runs
        if named == "":  # as from --runs "$RUNS"
            raise FrontierError(
                "--runs or --pool is empty: expected runs such as fmn,ddn, or a pool such as extended"
            )
        return named

    @property
    def solvers(self) -> Mapping[str, Solver] | None:
        """Solvers in place of the attacks' own."""
        return PUBLISHED if self.published else None


@Parameter(name="*")
@dataclass(frozen=True)
class Output:
    """What an evaluation ends with."""

    radii: Radii = None
    export: Export = None
    report: bool = True
    "Write report.html into the folder."
    json: Json = False
    require: tuple[str, ...] = ()
    "Robust accuracy to be met, Linf@8/255>=0.40, several with commas; if it is not, the exit code is 1."

    def demands(self, evaluated: Sequence[str]) -> tuple[Demand, ...]:
        """What is required, if it is in norms that are evaluated."""
        demands = parse_demands(self.require)
        for demand in demands:
            if demand.norm not in evaluated:
                raise FrontierError(
                    f"--require {demand}: {demand.norm} is not evaluated here, but {', '.join(evaluated)}; add it with "
                    f"`advfrontier evaluate --norm {demand.norm}`"
                )
        return demands

    def check(self, evaluated: Sequence[str] = (), folder: str | None = None) -> None:
        """Refuse, before anything is computed, what could not be shown in the end.

        That is demands in other norms, radii that are none, exports that cannot be written, and a report in the place
        of another file.
        """
        self.demands(evaluated)
        parse_radii(self.radii or "")
        parse_formats(self.export)
        if self.report and folder is not None and "://" not in folder:
            check_writable(below(folder, "report.html"), MARK)


def norms(text: str) -> tuple[str, ...]:
    """`Linf`, `l2,linf` or `all`."""
    if text.strip().lower() == "all":
        return NORMS
    return tuple(dict.fromkeys(norm_name(part) for part in text.split(",")))
