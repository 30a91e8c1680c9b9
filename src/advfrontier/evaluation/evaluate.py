"""Evaluate a model with an ensemble: the smallest perturbation of every sample that any of its runs found."""

from __future__ import annotations

import shutil
import tempfile
import weakref
from collections import Counter
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, cast

import numpy as np
import torch
from torch import Tensor

from advfrontier.engine import CHECKPOINT
from advfrontier.errors import FrontierError
from advfrontier.evaluation.originals import StoredSamples
from advfrontier.evaluation.session import Session, Workers, doubtful, flags_of, open_session, read_units, units_of
from advfrontier.evaluation.trace import sample_names
from advfrontier.evaluation.units import Terms, read_clean
from advfrontier.frontier.curve import Curve, aurec, robust_accuracy
from advfrontier.pool import TARGETS, Ensemble, paper_ensemble, tier_queries
from advfrontier.sources import as_samples, load_samples
from advfrontier.store import Store
from advfrontier.threat.names import norm_name

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from os import PathLike

    from numpy.typing import NDArray

    from advfrontier.evaluation.units import Clean
    from advfrontier.frontier.measure import Measure
    from advfrontier.sources import Samples
    from advfrontier.store import StoredUnit, UnitName

_WHOLE = "paper-12k"  # the largest tier: every smaller budget is a prefix of it
EVALUATION = "evaluation"


def evaluate(
    model: Callable[[Tensor], Tensor] | str,
    images: Tensor | Samples | Iterable[Any] | str,
    labels: Tensor | None = None,
    *,
    norm: str,
    ensemble: Ensemble | str | int = "4k",
    seed: int = 42,
    out: str | PathLike[str] | None = None,
    name: str | None = None,
    batch_size: int = 100,
    device: str = "cpu",
    dtype: str = "float32",
    threads: int | None = None,
    workers: int = 0,
    ray: str | None = None,
    keep_state: bool = True,
    progress: bool = False,
    command: str = "",
) -> Evaluation:
    """Find the smallest perturbation of every sample that an ensemble of attacks can.

    `model` maps images in [0, 1] to logits, or names a source (`zoo:F3`, `file.py:factory`). `images` are a tensor
    with `labels`, a DataLoader, or the name of a data source (`fashion-mnist`, `npz:FILE`). `ensemble` is a tier (`4k`,
    `8k`, `12k`), any number of queries, an `Ensemble` or the path of its file. With `out` the record is written there
    unit by unit: killed at any moment, the same call continues.
    """
    find_ensemble(ensemble, norm_name(norm), TARGETS + 1)  # a mistake here should not cost a clean pass
    samples = _samples(images, labels)
    place = str(out) if out is not None else _temporary()
    terms = Terms(norm_name(norm), seed, batch_size, device, dtype, threads or torch.get_num_threads())
    session = open_session(
        place,
        kind=EVALUATION,
        model=model,
        model_name=name,
        samples=samples,
        terms=terms,
        keep_points=True,
        keep_state=keep_state,
        command=command,
    )
    wanted = find_ensemble(ensemble, terms.norm, session.classes)
    _run(session, wanted, Workers(workers, ray), progress=progress)
    evaluation = Evaluation(session.store, session)
    if out is None:
        weakref.finalize(evaluation, shutil.rmtree, place, ignore_errors=True)
    return evaluation


def find_ensemble(ensemble: Ensemble | str | int, norm: str, classes: int) -> Ensemble:
    """A tier by name (`4k`, `paper-8k`), a number of queries, the path of an ensemble file, or the ensemble itself."""
    if isinstance(ensemble, Ensemble):
        found = ensemble
    elif isinstance(ensemble, str) and ensemble.endswith(".toml"):
        if not Path(ensemble).is_file():
            raise FrontierError(f"no ensemble file {ensemble}: `advfrontier allocate` writes such files")
        found = Ensemble.load(ensemble)
    elif str(ensemble).startswith("paper-"):
        found = paper_ensemble(str(ensemble), norm)
    else:
        budget = tier_queries(ensemble)
        whole = paper_ensemble(_WHOLE, norm)
        if budget > whole.total:
            raise FrontierError(f"{budget} queries are more than the largest tier: expected at most {whole.total}")
        found = whole.at(budget)
    if found.norm != norm:
        raise FrontierError(f"ensemble {found.name} is for {found.norm}, the evaluation in {norm}: expected the same")
    found = found.for_classes(classes)
    found.check(classes=classes)
    return found


@dataclass(frozen=True, eq=False)
class _Found:
    """What one pass over the units gives."""

    distances: NDArray[np.float64]
    winners: tuple[str | None, ...]
    trajectories: dict[str, NDArray[np.float64]]
    spent: Counter[str]
    doubts: Counter[tuple[str, str]]
    seconds: float


class Evaluation:
    """One model in one norm: what was found, sample by sample, and what it took. Reads lazily from its record."""

    def __init__(self, store: Store, session: Session | None = None) -> None:
        self.store = store
        self._session = session
        held = store.record()
        if held is None or held.get("kind") != EVALUATION or "ensemble" not in held:
            raise FrontierError(
                f"{store.place} holds no evaluation: expected a folder that `advfrontier evaluate --out` has written"
            )
        self.record: dict[str, Any] = held
        done = store.units()
        units = [unit for unit, _ in units_of(self._clean, held["shard"], self.ensemble.runs)]
        if left := sum(done.get(unit, 0) < self.ensemble.queries[unit.run] for unit in units):
            raise FrontierError(
                f"the evaluation in {store.place} is not finished: {len(units) - left} of {len(units)} units are done; "
                f"type the same command again{f': {self.command}' if self.command else ''}"
            )

    @classmethod
    def load(cls, path: str | PathLike[str]) -> Self:
        """Open a record."""
        return cls(Store(str(path)))

    def save(self, path: str | PathLike[str]) -> None:
        """Copy the record to another folder."""
        target = Store(str(path))
        if target.record() is not None:
            raise FrontierError(f"{path} holds a record already: expected a new folder")
        names = [name for under in ("units", "originals") for name in self.store.folder.names(under)]
        for name in (*names, "clean.safetensors", "record.json"):  # the record last: without it nothing counts
            content = self.store.folder.read(name)
            if content is not None:
                target.folder.write(name, content)

    def extend(
        self,
        ensemble: Ensemble | str | int,
        *,
        model: Callable[[Tensor], Tensor] | str | None = None,
        workers: int = 0,
        ray: str | None = None,
        progress: bool = False,
    ) -> Self:
        """Go on to a larger ensemble that holds this one. No query is repeated where states were kept."""
        session = self._session if model is None and self._session is not None else self._reopen(model)
        wanted = find_ensemble(ensemble, self.norm, session.classes)
        _run(session, wanted, Workers(workers, ray), progress=progress)
        fresh = type(self)(self.store, session)
        self.__dict__.clear()  # everything found so far was read from the shorter record
        self.__dict__.update(fresh.__dict__)
        return self

    def _reopen(self, model: Callable[[Tensor], Tensor] | str | None) -> Session:
        source = model if model is not None else self.record["model"]["source"]
        if source is None:
            raise FrontierError(
                f"the record does not say where {self.model} comes from, because it was given as an object: "
                "expected it again, as in evaluation.extend('12k', model=model)"
            )
        return open_session(
            self.store.place,
            kind=EVALUATION,
            model=source,
            model_name=self.model,
            samples=self._samples,
            terms=self._terms,
            keep_points=True,
            keep_state=self.record["keep_state"],
        )

    # What it is of

    @property
    def model(self) -> str:
        """The model's name."""
        return str(self.record["model"]["name"])

    @property
    def data(self) -> str:
        """The data's name."""
        return str(self.record["data"]["name"])

    @property
    def norm(self) -> str:
        """The norm distances are measured in."""
        return str(self.record["norm"])

    @property
    def seed(self) -> int:
        """The seed of the base runs; restart k has k more."""
        return int(self.record["seed"])

    @cached_property
    def ensemble(self) -> Ensemble:
        """How many queries each run was given."""
        return Ensemble.from_toml(self.record["ensemble"])

    @cached_property
    def samples(self) -> tuple[str, ...]:
        """Content ids."""
        return sample_names(self._clean.ids)

    @property
    def labels(self) -> Tensor:
        """The true classes."""
        return self._clean.labels

    @property
    def class_names(self) -> tuple[str, ...] | None:
        """Where the data source knows them."""
        return tuple(self.record["class_names"]) or None

    @property
    def clean_logits(self) -> Tensor:
        """Of the unperturbed images."""
        return self._clean.passed.logits

    @property
    def versions(self) -> dict[str, str]:
        """What the record was made with."""
        return dict(self.record["versions"])

    @property
    def command(self) -> str:
        """What was typed, if it was."""
        return str(self.record["command"])

    # What was found

    @property
    def distances(self) -> NDArray[np.float64]:
        """Per sample: 0 where it is misclassified anyway, inf where it was never broken."""
        return self._found.distances

    @property
    def winners(self) -> tuple[str | None, ...]:
        """The run that found each sample's point; None where there is none to find, or none was found."""
        return self._found.winners

    @cached_property
    def originals(self) -> Tensor:
        """The unperturbed images."""
        return self._samples.images(torch.arange(len(self.labels)))

    @cached_property
    def adversarials(self) -> Tensor:
        """The nearest misclassified point of each sample; the image itself where there is none."""
        points = self.originals.to(self._terms.precision, copy=True)
        for rows, won, stored in self._winning():
            points[rows] = stored["best_point"][won].view(-1, *points.shape[1:])
        return points

    @cached_property
    def predictions(self) -> Tensor:
        """The class each adversarial point is taken for; that of the image itself where there is none."""
        classes = self.clean_logits.argmax(1)
        for rows, won, stored in self._winning():
            classes[rows] = stored["classes"][won]
        return classes

    def by_run(self) -> Iterator[tuple[str, Tensor, Tensor]]:
        """Of every run, one after the other: its name, its nearest points, and the classes they are taken for."""
        points, classes, name = self.originals.clone(), self.clean_logits.argmax(1), ""
        for unit, rows, stored in self._units():
            if name and unit.run != name:
                yield name, points, classes
                points, classes = self.originals.clone(), self.clean_logits.argmax(1)
            name = unit.run
            points[rows] = stored.tensors["best_point"].view(-1, *points.shape[1:]).to(points)
            found = stored.tensors["classes"]
            classes[rows] = torch.where(found >= 0, found, classes[rows])
        if name:
            yield name, points, classes

    @property
    def trajectories(self) -> dict[str, NDArray[np.float64]]:
        """Run → (checkpoint, sample): the best distance after 10, 20, … queries of that run."""
        return self._found.trajectories

    def distances_at(self, budget: int) -> NDArray[np.float64]:
        """What the first `budget` queries of the ensemble found."""
        best = np.where(self._clean.passed.correct.numpy(), np.inf, 0.0)
        for run, queries in self.ensemble.at(budget).queries.items():
            best = np.minimum(best, self.trajectories[run][queries // CHECKPOINT - 1])
        return best

    def robust_accuracy(self, epsilon: float) -> float:
        """The share of samples that no perturbation of size ≤ ε was found for."""
        return robust_accuracy(self.distances, epsilon)

    def curve(self) -> Curve:
        """Robust accuracy against ε."""
        return Curve.of(self.distances)

    def aurec(self, E: float | None = None) -> Measure:
        """The area under the curve up to E."""
        return aurec(self.distances, E=E)

    # What it took

    @property
    def queries(self) -> NDArray[np.int64]:
        """Attack queries per sample: the ensemble's total, or 0 for those misclassified anyway."""
        return np.where(self._clean.passed.correct.numpy(), self.ensemble.total, 0).astype(np.int64)

    @property
    def counts(self) -> dict[str, int]:
        """Rows passed through the model, forward plus backward, by purpose."""
        spent = Counter(self.record["counts"]) + self._found.spent
        return {key: spent[key] for key in ("checks", "setup", "attack", "verification")}

    @property
    def seconds(self) -> float:
        """Time that the units took, all processes together."""
        return self._found.seconds

    @cached_property
    def flags(self) -> tuple[str, ...]:
        """In words: what may make these distances too large, or too good."""
        flags = [*self.record["flags"], *flags_of(self._found.doubts)]
        if unbroken := int(np.isinf(self.distances).sum()):
            flags.append(f"{unbroken} samples were never broken by any run")
        return tuple(flags)

    # How it is read

    def _units(self) -> Iterator[tuple[UnitName, Tensor, StoredUnit]]:
        redo = self._session.redo if self._session is not None else None
        return read_units(self.store, self._clean, self._terms.shard, self.ensemble.queries, redo)

    def _winning(self) -> Iterator[tuple[Tensor, Tensor, dict[str, Tensor]]]:
        """Of every unit the samples it won, their places in the unit, and its tensors."""
        winners = np.array([winner or "" for winner in self.winners])
        for unit, rows, stored in self._units():
            won = torch.from_numpy(winners[rows.numpy()] == unit.run)
            if won.any():
                yield rows[won], won, stored.tensors

    @cached_property
    def _found(self) -> _Found:
        n = len(self.labels)
        distances = np.where(self._clean.passed.correct.numpy(), np.inf, 0.0)
        winners: list[str | None] = [None] * n
        trajectories = {run: np.zeros((queries // CHECKPOINT, n)) for run, queries in self.ensemble.queries.items()}
        spent: Counter[str] = Counter()
        doubts: Counter[tuple[str, str]] = Counter()
        seconds = 0.0
        for unit, rows, stored in self._units():
            where, table = rows.numpy(), trajectories[unit.run]
            table[:, where] = stored.tensors["trajectory"][: len(table)].numpy()
            better = table[-1, where] < distances[where]
            distances[where] = np.minimum(distances[where], table[-1, where])
            for row in where[better].tolist():
                winners[row] = unit.run
            spent += Counter({key: int(stored.words[key]) for key in ("attack", "verification")})
            doubts += doubtful(unit.run, stored.queries, stored.tensors)
            seconds += float(stored.words["seconds"])
        return _Found(distances, tuple(winners), trajectories, spent, doubts, seconds)

    @cached_property
    def _terms(self) -> Terms:
        return Terms(**{key: self.record[key] for key in asdict(Terms("L2"))})

    @cached_property
    def _clean(self) -> Clean:
        clean = read_clean(self.store)
        if clean is None:
            raise FrontierError(
                f"{self.store.place}/clean.safetensors is missing or was damaged; type the evaluate command again"
            )
        return clean

    @cached_property
    def _samples(self) -> StoredSamples:
        mark = self._clean.mark
        return StoredSamples(self.store.place, self.data, self.labels, self._terms.shard, mark, self.class_names)


def _run(session: Session, wanted: Ensemble, workers: Workers, *, progress: bool) -> None:
    """Write down where the record is going, then go there."""
    held = session.store.record() or {}
    if "ensemble" in held and not wanted.contains(before := Ensemble.from_toml(held["ensemble"])):
        raise FrontierError(
            f"{session.store.place} holds {before.name} with {before.total} queries, which {wanted.name} with "
            f"{wanted.total} does not contain: expected an ensemble that goes further, or another folder"
        )
    session.store.write_record({**held, "ensemble": wanted.to_toml(), "keep_state": session.keep_state})
    session.fulfil(wanted.queries, workers=workers, progress=progress)


def _samples(images: Tensor | Samples | Iterable[Any] | str, labels: Tensor | None) -> Samples:
    if isinstance(images, str):
        return load_samples(images)
    if hasattr(images, "images") and hasattr(images, "labels"):
        return cast("Samples", images)
    return as_samples(cast("Tensor | Iterable[Any]", images), labels)


def _temporary() -> str:
    return tempfile.mkdtemp(prefix="advfrontier-")
