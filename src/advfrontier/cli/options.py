"""Options that several commands share, each explained once.

Nothing here imports torch, SciPy or the report before a command runs: `--help` must be quick.
"""

# ruff: noqa: PLC0415

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from advfrontier.errors import FrontierError
from advfrontier.threat.names import NORMS, norm_name

if TYPE_CHECKING:
    from advfrontier.attacks.external import ExternalAttack
    from advfrontier.engine.data import Samples
    from advfrontier.evaluation.gate import Demand
    from advfrontier.execution import Machine as WorkMachine
    from advfrontier.solvers import Solver
    from advfrontier.threat.criteria import Criterion
    from advfrontier.threat.domain import Domain

DEFAULT_DATA = "fashion-mnist"
DEFAULT_BATCH = 100  # samples per batch of a trace or of AutoAttack

OUT = Parameter(name=("--out", "-o"))
Model = Annotated[
    str,
    Parameter(
        help="Source of the model: zoo:F3, file.py:factory, package.module:factory, "
        "robustbench:cifar10/Linf/NAME, timm:NAME, hf:NAME or onnx:FILE."
    ),
]
Norm = Annotated[
    str, Parameter(help="L0, L1, L2, Linf, L0pixel, several with commas, or all (the first four).")
]
Seed = Annotated[int, Parameter(help="Random seed.")]
RADII = ("--radii", "--eps")
Radii = Annotated[
    str | None,
    Parameter(
        name=RADII,
        help="Radii at which robust accuracy is read: 4/255,8/255, or per norm L2=0.5,Linf=8/255 "
        "(default: those usually quoted for the data).",
    ),
]
Export = Annotated[
    str | None,
    Parameter(
        help="Files to write beside the records, several with commas: csv or parquet (a row per "
        "sample), npz (with images and adversarial examples), png (adversarial examples), classes "
        "(a row per class), card, latex, sentence (default: none)."
    ),
]
Json = Annotated[bool, Parameter(help="Print the results as JSON and nothing else.")]
Device = Annotated[
    str,
    Parameter(
        help="Device of the model: cpu, cuda, cuda:1, mps, or auto for the first available of "
        "cuda, mps and cpu."
    ),
]
# One thread by default: small models gain nothing from more, and results stay the same on any
# machine.
Threads = Annotated[
    int,
    Parameter(
        help="Threads of each worker. They change results in the last bits, so a record keeps the "
        "number it was started with."
    ),
]
WorkerCount = Annotated[
    int | None,
    Parameter(
        help="Number of worker processes, 0 for none (default: as many as the cores allow, or one "
        "per GPU)."
    ),
]


@Parameter(name="*")
@dataclass(frozen=True)
class Workers:
    """Processes that do the work, and a file that may hold any option (`cli/app.py` reads it)."""

    config: str | None = field(default=None, kw_only=True)
    'TOML file of options, as in norm = "L2". Options on the command line override it.'
    workers: WorkerCount = None
    ray: str | None = None
    "Ray cluster: auto, an address, or local (default: no cluster)."
    max_minutes: float | None = None
    "Time limit in minutes; exit code 75 if work is left (default: none). The same command resumes."

    @property
    def until(self) -> float | None:
        """Return when to stop, as `time.time()` tells it; None without a limit."""
        if self.max_minutes is None:
            return None
        if not self.max_minutes > 0:
            raise FrontierError(f"--max-minutes is {self.max_minutes:g}: expected more than 0")
        return time.time() + 60 * self.max_minutes

    def count(self, device: str, threads: int = 1) -> int:
        """Return the number of worker processes for a model on a device; 0 means this process.

        Args:
            device: Name of the device, such as `cuda:1`.
            threads: CPU threads of each process.
        """
        if self.workers is not None:
            if self.workers < 0:
                raise FrontierError(
                    f"--workers is {self.workers}: expected 0 (this process) or more"
                )
            return self.workers
        if self.ray is not None:
            return 0  # the cluster knows its slots
        room = _room(device, threads)
        return room if room > 1 else 0


def _room(device: str, threads: int) -> int:
    """Return how many processes a device has room for; processes that share a GPU gain nothing."""
    if device == "cpu":
        from advfrontier.execution import local

        return local.cores() // threads
    if device == "cuda":
        import torch

        return torch.cuda.device_count()
    return 1


@Parameter(name="*")
@dataclass(frozen=True)
class Machine(Workers):
    """Device, processes and batches."""

    device: Device = "auto"
    threads: Threads = 1

    def resolved(self) -> tuple[int, int]:
        """Return the numbers of workers and of threads."""
        if self.threads < 1:
            raise FrontierError(f"--threads is {self.threads}: expected at least 1")
        return self.count(self.device_name, self.threads), self.threads

    @property
    def device_name(self) -> str:
        """Return the device by name; for `auto` the first that is available."""
        if self.device != "auto":
            return self.device
        from advfrontier import engine

        return str(engine.find_device("auto"))

    def machine(self, *, keep_state: bool = True) -> WorkMachine:
        """Return the machine that does the work.

        Args:
            keep_state: Keep what is needed to extend the work without repeating queries.
        """
        from advfrontier.engine import find_device
        from advfrontier.execution import Machine as WorkMachine

        device = self.device_name
        find_device(device)
        workers, threads = self.resolved()
        return WorkMachine(
            device,
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
    """Data source and selection of samples."""

    data: Annotated[str | None, Parameter(name=("--data", "-d"))] = None
    """Source of the samples: fashion-mnist (embedded), npz:FILE, cifar10:DIR, cifar100:DIR,
    imagefolder:DIR, folder:DIR?labels=FILE.csv or hf:NAME (default: fashion-mnist)."""
    samples: Annotated[int | None, Parameter(name=("--samples", "-n"))] = None
    "Number of samples: the first N, or N random ones with --sample-seed (default: all)."
    sample_seed: int | None = None
    "Random seed of the choice of samples (default: the first ones are taken)."
    data_name: str | None = None
    "Display name of the data (default: its source)."
    download: bool = False
    "Download a model or data that are not on this machine; otherwise nothing is downloaded."

    @property
    def name(self) -> str:
        """Return the source of the samples."""
        return DEFAULT_DATA if self.data is None else self.data

    def load(self, *models: str, unit: bool = True) -> Samples:
        """Return the samples.

        Args:
            models: Sources of models. Where downloads are allowed they are fetched now, so that
                workers find them.
            unit: Whether samples must be in [0, 1]; those of a domain need not be.
        """
        from advfrontier.sources import load_data, load_model

        if self.download:
            for model in models:
                load_model(model, download=True)
        samples = load_data(
            self.name,
            samples=self.samples,
            seed=self.sample_seed,
            download=self.download,
            unit=unit,
        )
        return samples if self.data_name is None else replace(samples, name=self.data_name)

    @property
    def notice(self) -> str:
        """Return a line that names the data where the command does not; else an empty string."""
        if self.data is not None:
            return ""
        return f"data: the embedded images of {DEFAULT_DATA}, because --data was not given"

    @contextmanager
    def explained(self) -> Iterator[None]:
        """Name the data in an error about shapes, where the command does not name them."""
        try:
            yield
        except FrontierError as error:
            if self.data is not None or "of shape" not in str(error):
                raise
            raise FrontierError(
                f"{error}. The images are those of {DEFAULT_DATA} (1×28×28, 10 classes), because "
                "--data was not given: type --data SOURCE to use others"
            ) from error


@Parameter(name="*")
@dataclass(frozen=True)
class Data(Source):
    """Samples and norms of an evaluation."""

    batch_size: int | None = None
    """Number of samples per batch, which is one unit of work (default: 50 on the CPU, where workers
    share them, else 100)."""


@Parameter(name="*")
@dataclass(frozen=True)
class Budget:
    """Queries per sample."""

    tier: str | None = None
    "Queries per sample: 4k, 8k or 12k."
    queries: int | None = None
    "Any other number of queries per sample."
    ensemble: str | None = None
    """Another kind of ensemble, such as paper-4k or greedy-8k, or a file written by
    `advfrontier allocate`."""

    def chosen(self) -> str | int | None:
        """Return the option that was given, if any."""
        given = {f"--{name}": value for name, value in vars(self).items() if value is not None}
        if len(given) > 1:
            raise FrontierError(
                f"{' and '.join(given)} were given together: expected one of them; for 300 queries "
                "of another kind type --ensemble paper-300"
            )
        return next(iter(given.values()), None)


@Parameter(name="*")
@dataclass(frozen=True)
class Attacks:
    """Attacks to run."""

    runs: str | None = None
    """Names of runs, several with commas: fmn,apgd_min-dlr:target1. Attacks of other libraries too:
    foolbox:DDNAttack?steps=100, mine.py:attack."""
    pool: str | None = None
    """All runs of a pool: paper, extended (with attacks beyond it), or black-box (those that use no
    gradient)."""
    published: bool = False
    "Use the solvers as published, without the changes that docs/solvers.md lists."
    eot: int = 1
    "Passes per query, whose mean is taken, such as 20 for models that answer at random."

    def chosen(self) -> str | None:
        """Return the runs or the pool, if any was named."""
        if self.runs is not None and self.pool is not None:
            raise FrontierError("--runs and --pool were given together: expected one of them")
        named = self.pool if self.runs is None else self.runs
        if named == "":  # as from --runs "$RUNS"
            raise FrontierError(
                "--runs or --pool is empty: expected runs such as fmn,ddn, or a pool such as "
                "extended"
            )
        return named

    def listed(self) -> str | list[str] | None:
        """Return the runs as a list, or the name of the pool, if any was named."""
        named = self.chosen()
        if self.runs is None:
            return named
        return [run.strip() for run in self.runs.split(",")]

    @property
    def solvers(self) -> Mapping[str, Solver] | None:
        """Return solvers to use instead of the attacks' own; None for the own ones."""
        if not self.published:
            return None
        from advfrontier.solvers import PUBLISHED

        return PUBLISHED


Trusted = Annotated[
    tuple[str, ...],
    Parameter(
        name="--attack",
        negative="",
        show_default=False,
        help="Attack that the record names and that runs code of a file or module, such as "
        "mine.py:attack; repeat the option for several.",
    ),
]


def trusted_attacks(names: Sequence[str], norm: str) -> dict[str, ExternalAttack]:
    """Return the attacks that were typed, imported when they run.

    Args:
        names: Names of external runs, such as `mine.py:attack`.
        norm: Name of the norm.
    """
    from advfrontier.attacks.external import ExternalAttack
    from advfrontier.pool import Run

    attacks = {}
    for name in names:
        run = Run.parse(name)
        if run.external is None:
            raise FrontierError(
                f"--attack {name}: expected an attack of a file or module, such as mine.py:attack"
            )
        attacks[str(run)] = ExternalAttack(str(run), norm)
    return attacks


DomainFile = Annotated[
    str | None,
    Parameter(
        name="--domain",
        show_default=False,
        help="File of numpy.savez with lower, upper, changeable and weights of the features "
        "(default: samples in [0, 1], all of whose features may change).",
    ),
]


def load_domain(path: DomainFile) -> Domain | None:
    """Return the domain of a file; None where none was named.

    Args:
        path: File of `numpy.savez`; None for samples in [0, 1].
    """
    from advfrontier.threat.domain import Domain

    return None if path is None else Domain.load(path)


@Parameter(name="*")
@dataclass(frozen=True)
class Success:
    """What counts as a success: misclassification, or one of these."""

    target: str | None = None
    """Targeted: the class to be taken for, such as 3, whose own samples are left out; or each:10 to
    attack each sample towards each of the other of 10 classes (default: any wrong class)."""
    top_k: int | None = None
    "The label is not among the K likeliest classes (default: 1)."
    reject_class: str | None = None
    """Misclassified and not rejected: the number of the class that means reject, or last
    (default: no class does)."""

    def criterion(self) -> Criterion | None:
        """Return the criterion as `evaluate` takes it; None for misclassification."""
        from advfrontier.threat.criteria import Rejecting, Targeted, TopK

        given = [self.target, self.top_k, self.reject_class]
        if sum(one is not None for one in given) > 1:
            raise FrontierError(
                "--target, --top-k and --reject-class exclude each other: expected one of them"
            )
        if self.top_k is not None:
            return TopK(self.top_k)
        if self.reject_class is not None:
            last = self.reject_class == "last"
            return Rejecting(-1 if last else _whole(self.reject_class, "--reject-class", "last"))
        if self.target is None:
            return None
        kind, colon, classes = self.target.partition(":")
        if colon and kind == "each":
            return Targeted(every=_whole(classes, "--target", "each:10"))
        return Targeted(_whole(self.target, "--target", "each:10"))


def _whole(text: str, option: str, other: str) -> int:
    """Return a class number of an option; raise with its other form if it is none."""
    if not text.isdecimal():
        raise FrontierError(
            f"{option} is {text!r}: expected the number of a class, such as 3, or {other}"
        )
    return int(text)


@Parameter(name="*")
@dataclass(frozen=True)
class Output:
    """Output of an evaluation."""

    radii: Radii = None
    export: Export = None
    report: bool = True
    "Write report.html into the output folder."
    json: Json = False
    require: Annotated[tuple[str, ...], Parameter(negative="", show_default=False)] = ()
    """Required robust accuracy, several with commas: Linf@8/255>=0.40. The exit code is 1 if a
    requirement is not met."""

    def demands(self, evaluated: Sequence[str]) -> tuple[Demand, ...]:
        """Return the requirements; raise if one is in a norm that is not evaluated.

        Args:
            evaluated: Names of the norms that are evaluated.
        """
        from advfrontier.evaluation.gate import parse_demands

        demands = parse_demands(self.require)
        for demand in demands:
            if demand.norm not in evaluated:
                raise FrontierError(
                    f"--require {demand}: {demand.norm} is not evaluated here, but "
                    f"{', '.join(evaluated)}; add it with `advfrontier evaluate --norm "
                    f"{demand.norm}`"
                )
        return demands

    def check(self, evaluated: Sequence[str] = (), folder: str | None = None) -> None:
        """Raise, before anything is computed, if the output could not be written in the end.

        Args:
            evaluated: Names of the norms that are evaluated.
            folder: Output folder, where a report must not replace another file.
        """
        from advfrontier.evaluation.radii import parse_radii
        from advfrontier.record.folder import below, check_writable
        from advfrontier.report.export import parse_formats
        from advfrontier.report.html import MARK

        self.demands(evaluated)
        parse_radii(self.radii or "")
        parse_formats(self.export)
        if self.report and folder is not None and "://" not in folder:
            check_writable(below(folder, "report.html"), MARK)


def norms(text: str) -> tuple[str, ...]:
    """Return the norms of a text such as `Linf`, `l2,linf` or `all`.

    Args:
        text: Names with commas between them, in upper or lower case, or `all`.
    """
    if text.strip().lower() == "all":
        return NORMS
    return tuple(dict.fromkeys(norm_name(part) for part in text.split(",")))
