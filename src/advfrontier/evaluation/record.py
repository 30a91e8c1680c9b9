"""One evaluation as it lies in its record: what was found, sample by sample, and what it took."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import torch
from torch import Tensor

from advfrontier.engine import CHECKPOINT
from advfrontier.engine.data import Samples
from advfrontier.errors import FrontierError
from advfrontier.evaluation.identity import mixed
from advfrontier.evaluation.originals import StoredSamples
from advfrontier.evaluation.reading import DOUBTS, doubtful, flags_of, read_units, spent_by, terms_of
from advfrontier.evaluation.session import Session, Workers, open_session, units_of
from advfrontier.evaluation.trace import sample_names
from advfrontier.evaluation.units import SPENT, read_clean
from advfrontier.frontier.curve import Curve, aurec, robust_accuracy
from advfrontier.pool import Ensemble, find_ensemble
from advfrontier.store import Store
from advfrontier.threat.names import NORMS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from os import PathLike

    from numpy.typing import NDArray

    from advfrontier.evaluation.units import Clean, Terms
    from advfrontier.frontier.measure import Measure
    from advfrontier.store import StoredUnit, UnitName

EVALUATION = "evaluation"


def bring(session: Session, wanted: Ensemble, workers: Workers, *, progress: bool, command: str) -> None:
    """Bring a record to an ensemble that goes at least as far as the units it holds."""
    held = session.store.record() or {}
    beyond = [unit for unit, queries in session.store.units().items() if queries > wanted.queries.get(unit.run, 0)]
    if beyond and "ensemble" in held:
        done, units = progress_of(session.store, held, session.clean)
        before = Ensemble.from_toml(held["ensemble"])
        state = "" if done == units else f", unfinished ({_to_go_on(held)})"
        raise FrontierError(
            f"{session.store.place} holds {before.total} queries per sample{state}, which the {wanted.total} asked for "
            "do not contain: expected an ensemble that goes further, or another folder"
        )
    note: dict[str, Any] = {"ensemble": wanted.to_toml(), "keep_state": session.keep_state}
    if command or note["ensemble"] != held.get("ensemble"):  # what will go on with it, should this be interrupted
        note["command"] = command
        note["commands"] = [*dict.fromkeys([*held.get("commands", []), *([command] if command else [])])]
    session.fulfil(wanted.queries, workers=workers, progress=progress, note=note)


def progress_of(store: Store, held: dict[str, Any], clean: Clean) -> tuple[int, int]:
    """How many units of an evaluation are done, and how many there are to do."""
    queries, done = Ensemble.from_toml(held["ensemble"]).queries, store.units()
    units = [unit for unit, _ in units_of(clean, held["shard"], queries)]
    return sum(done.get(unit, 0) >= queries[unit.run] for unit in units), len(units)


def _to_go_on(held: dict[str, Any]) -> str:
    return f"to go on, type {held['command']}" if held["command"] else "the same call as before goes on"


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
    """One model in one norm. Reads lazily from its record, and of that only what is asked for.

    A record that is not finished can be opened and extended; who asks it for figures is told how to go on.
    """

    def __init__(self, store: Store, session: Session | None = None) -> None:
        self.store = store
        self._session = session
        held = store.record()
        if held is None or held.get("kind") != EVALUATION:
            below = [norm for norm in NORMS if Store(f"{store.place}/{norm}").record() is not None]
            where = f"it holds {', '.join(below)}: open {store.place}/{below[0]}" if below else ""
            raise FrontierError(
                f"{store.place} holds no evaluation: "
                + (where or "expected a folder that `advfrontier evaluate --out` has written, or one of a norm in it")
            )
        if "ensemble" not in held:
            raise FrontierError(f"the evaluation in {store.place} is not finished: no unit is done; {_to_go_on(held)}")
        self.record: dict[str, Any] = held
        self._seen = False  # to be finished; a unit that is lost later can be done again

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
        command: str = "",
    ) -> Self:
        """Go on to a larger ensemble that holds this one. No query is repeated where states were kept.

        Killed at any moment, the same call continues.
        """
        session = self._session if model is None and self._session is not None else self._reopen(model)
        wanted = find_ensemble(ensemble, self.norm, session.classes)
        try:
            bring(session, wanted, Workers(workers, ray), progress=progress, command=command)
        finally:  # also when it was interrupted: what was found so far was read from the shorter record
            fresh = type(self)(session.store, session)
            self.__dict__.clear()
            self.__dict__.update(fresh.__dict__)
        return self

    def _reopen(self, model: Callable[[Tensor], Tensor] | str | None) -> Session:
        source = model if model is not None else self.record["model"]["source"]
        if source is None:
            raise FrontierError(
                f"the record does not say where {self.model} comes from, because it was given as an object: "
                "expected it again, as in evaluation.extend('12k', model=model) or `advfrontier extend --model`"
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
    def finished(self) -> bool:
        """Whether every unit of the ensemble is done."""
        done, units = progress_of(self.store, self.record, self._clean)
        return done == units

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
        """What was typed last, if it was: it goes on where the record is not finished."""
        return str(self.record["command"])

    @property
    def commands(self) -> tuple[str, ...]:
        """All that was typed to make the record, in order."""
        return tuple(self.record["commands"])

    # What was found

    @property
    def distances(self) -> NDArray[np.float64]:
        """Per sample: 0 where it is misclassified anyway, inf where it was never broken."""
        return self._found.distances

    @property
    def winners(self) -> tuple[str | None, ...]:
        """The run that found each sample's point; None where there is none to find, or none was found."""
        return self._found.winners

    def images(self, rows: Sequence[int] | Tensor | None = None) -> Tensor:
        """The unperturbed images of these samples, or of all; only the shards they lie in are read."""
        return self._samples.read(self._rows(rows))

    def points(self, rows: Sequence[int] | Tensor | None = None) -> Tensor:
        """The nearest misclassified points of these samples, or of all; the image itself where there is none.

        Only the units that found them are read, one after the other.
        """
        chosen = self._rows(rows)
        points = self.images(chosen).to(self._terms.precision)
        for where, own, stored in self._winning(chosen, "best_point"):
            points[where] = stored[own].view(-1, *points.shape[1:])
        return points

    @cached_property
    def originals(self) -> Tensor:
        """All unperturbed images."""
        return self.images()

    @cached_property
    def adversarials(self) -> Tensor:
        """The points of all samples."""
        return self.points()

    @cached_property
    def predictions(self) -> Tensor:
        """The class each adversarial point is taken for; that of the image itself where there is none."""
        classes = self.clean_logits.argmax(1)
        for where, own, stored in self._winning(torch.arange(len(classes)), "classes"):
            classes[where] = stored[own]
        return classes

    def by_run(self) -> Iterator[tuple[str, Tensor, Tensor]]:
        """Of every run, one after the other: its name, its nearest points, and the classes they are taken for."""
        points, classes, name = self.originals.clone(), self.clean_logits.argmax(1), ""
        for unit, rows, stored in self._units(("best_point", "classes")):
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
        """The share of samples that no perturbation of size ≤ ε was found for; `curve().at` takes many ε."""
        return robust_accuracy(self.distances, epsilon)

    def __repr__(self) -> str:
        spent = f"{self.ensemble.total} queries{'' if self.finished else ', unfinished'}"
        return f"<Evaluation of {self.model} in {self.norm}, {len(self.samples)} samples, {spent}>"

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
        self._require()
        return np.where(self._clean.passed.correct.numpy(), self.ensemble.total, 0).astype(np.int64)

    @property
    def counts(self) -> dict[str, int]:
        """Rows passed through the model, forward plus backward, by purpose."""
        spent = spent_by(self.record) + self._found.spent
        return {key: spent[key] for key in ("checks", "setup", "attack", "verification")}

    @property
    def seconds(self) -> float:
        """Time that the units took, all processes together."""
        return self._found.seconds

    @cached_property
    def flags(self) -> tuple[str, ...]:
        """In words: what may make these distances too large, or too good."""
        flags = [*self.record["flags"], *flags_of(self._found.doubts), *mixed(self.record)]
        if unbroken := int(np.isinf(self.distances).sum()):
            flags.append(f"{unbroken} samples were never broken by any run")
        return tuple(flags)

    # How it is read

    def _require(self) -> None:
        """Refuse figures of a record that is not finished: they would be of no ensemble at all."""
        if self._seen or self.finished:
            self._seen = True
            return
        done, units = progress_of(self.store, self.record, self._clean)
        raise FrontierError(
            f"the evaluation in {self.store.place} with {self.ensemble.name} ({self.ensemble.total} queries per "
            f"sample) is not finished: {done} of {units} units are done; {_to_go_on(self.record)}"
        )

    def _units(
        self, names: Sequence[str], only: Callable[[UnitName, Tensor], bool] | None = None
    ) -> Iterator[tuple[UnitName, Tensor, StoredUnit]]:
        """Of every unit, or of some, the tensors named."""
        self._require()
        redo = self._session.redo if self._session is not None else None
        queries = self.ensemble.queries
        for unit, rows, stored in read_units(
            self.store, self.record, self._clean, queries, redo=redo, names=names, only=only
        ):
            if stored.queries > queries[unit.run] and "trajectory" not in names:
                raise FrontierError(
                    f"{self.store.place} was extended since it was opened: open it again to see the points it holds now"
                )
            yield unit, rows, stored

    def _winning(self, chosen: Tensor, name: str) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        """Of every unit that won any of the chosen rows: their places among these and in the unit, and its tensor."""
        won_by = np.array([self.winners[row] or "" for row in chosen.tolist()])

        def won(unit: UnitName, rows: Tensor) -> NDArray[np.bool_]:
            return np.asarray((won_by == unit.run) & np.isin(chosen.numpy(), rows.numpy()))

        for unit, rows, stored in self._units((name,), only=lambda unit, rows: bool(won(unit, rows).any())):
            where = torch.from_numpy(np.flatnonzero(won(unit, rows)))
            yield where, torch.searchsorted(rows, chosen[where]), stored.tensors[name]

    @cached_property
    def _found(self) -> _Found:
        n = len(self.labels)
        distances = np.where(self._clean.passed.correct.numpy(), np.inf, 0.0)
        winners: list[str | None] = [None] * n
        trajectories = {run: np.zeros((queries // CHECKPOINT, n)) for run, queries in self.ensemble.queries.items()}
        spent: Counter[str] = Counter()
        doubts: Counter[tuple[str, str]] = Counter()
        seconds = 0.0
        for unit, rows, stored in self._units(("trajectory", *DOUBTS)):
            where, table = rows.numpy(), trajectories[unit.run]
            table[:, where] = stored.tensors["trajectory"][: len(table)].numpy()
            better = table[-1, where] < distances[where]
            distances[where] = np.minimum(distances[where], table[-1, where])
            for row in where[better].tolist():
                winners[row] = unit.run
            spent += Counter({key: int(stored.words[key]) for key in SPENT})
            doubts += doubtful(unit.run, stored.queries, stored.tensors)
            seconds += float(stored.words["seconds"])
        return _Found(distances, tuple(winners), trajectories, spent, doubts, seconds)

    def _rows(self, rows: Sequence[int] | Tensor | None) -> Tensor:
        return torch.arange(len(self.labels)) if rows is None else torch.as_tensor(rows, dtype=torch.int64)

    @cached_property
    def _terms(self) -> Terms:
        return terms_of(self.record)

    @cached_property
    def _clean(self) -> Clean:
        clean = read_clean(self.store)
        if clean is None:
            raise FrontierError(
                f"{self.store.place}/clean.safetensors is missing or was damaged; type the evaluate command again"
            )
        return clean

    @cached_property
    def _samples(self) -> Samples:
        mark = self._clean.mark
        stored = StoredSamples(self.store.place, self.data, self.labels, self._terms.shard, mark, self.class_names)
        return Samples(self.data, self.labels, stored.read, self.class_names)
