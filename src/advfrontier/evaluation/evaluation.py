"""One evaluation, read from its record: distances, points, costs and flags per sample."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from os import PathLike
from typing import Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from advfrontier.engine.data import Samples
from advfrontier.engine.resolution import possible_excess, resolution_flag
from advfrontier.engine.whole import WholeAttack
from advfrontier.errors import FrontierError, printable, whole_number
from advfrontier.evaluation.inputs import Solvers, joined_solvers
from advfrontier.evaluation.outcome import Outcome, read_units
from advfrontier.evaluation.radii import as_radius
from advfrontier.execution import Machine
from advfrontier.flags import Flag, Kind
from advfrontier.frontier import Curve, Measure, aurec, robust_accuracy
from advfrontier.jobs import Model, UnitJob
from advfrontier.pool import CHECKPOINT, Ensemble, attack_of, tier_label
from advfrontier.record import Record, StoredUnit, UnitName
from advfrontier.record.identity import several_versions, stand_ins
from advfrontier.record.units import ENSEMBLE, unit_flags
from advfrontier.solvers import Solver
from advfrontier.threat.criteria import Aim, Criterion, Targeted, read_criterion
from advfrontier.threat.domain import Space
from advfrontier.views import ShownEvaluation

PURPOSES = ("checks", "setup", "attack", "verification")


class Evaluation(ShownEvaluation):
    """Evaluation of one model in one norm, read lazily from its record.

    If an extension was interrupted, the figures are those of the last ensemble that is complete,
    and a flag says so. Points, predictions and `found_by_run` are those of the units that went
    further already: the shorter ones are gone.

    Args:
        record: Record of the evaluation.
        job: Job that made the record, with the model at hand; None for a record that was opened.
    """

    def __init__(self, record: Record, job: UnitJob | None = None) -> None:
        header = record.header
        self.record = record
        self.place = record.place  # the folder of the record
        self.model, self.data = header.model.name, header.data.name
        self.class_names = header.data.class_names or None  # where the data source knows them
        self.norm = header.terms.norm
        self.seed = header.terms.seed  # of the base runs; restart k has k more
        self.eot = header.terms.eot  # passes through the model that each query is the mean of
        self._dtype: torch.dtype = getattr(torch, header.terms.dtype)
        self.versions = header.versions.model_dump()  # of what the record was made with
        self.commands = header.commands  # all that was typed to make the record, in order
        self.solver_parameters = header.solvers  # attack → parameters of its solver
        self.worked_with = (
            None if job is None else job.model
        )  # the model that this evaluation was just made with
        self._job = job
        self.solvers: Mapping[str, Solver | WholeAttack] = (
            stand_ins(header.solvers) if job is None else job.solvers
        )
        if header.ensemble is None:
            raise FrontierError(
                f"the evaluation in {record.place} is not finished: no unit is done; "
                f"{header.how_to_resume}"
            )
        done, units = record.finished({ENSEMBLE: header.ensemble.total})
        self.finished = done == units  # whether every unit of the last ensemble asked for is done
        self.ensemble = header.ensemble
        self._interrupted: tuple[Flag, ...] = ()
        if self.finished or header.finished is None:
            return
        kept, needed = record.finished({ENSEMBLE: header.finished.total})
        if kept == needed:  # else a unit of it is lost, which its reader names
            self.ensemble = header.finished
            text = (
                f"an extension to {tier_label(header.ensemble.total)} queries was interrupted "
                f"({done} of {units} units are done). Distances and curves are those of the "
                f"first {tier_label(header.finished.total)} queries; adversarial images, their "
                "classes and the distances of each run may be those of units that went further; "
                f"{header.how_to_resume}"
            )
            self._interrupted = (Flag(Kind.INTERRUPTED, text),)

    @classmethod
    def load(cls, path: str | PathLike[str]) -> Self:
        """Open the record in a folder, or in the folder of the only norm there.

        Args:
            path: Folder or address of a record, or the `out` of an evaluation in one norm.
        """
        return cls(Record.open(path, "evaluation"))

    def save(self, path: str | PathLike[str]) -> None:
        """Copy the record into `path/NORM`, which must be new or empty.

        Args:
            path: Folder or address to copy to.
        """
        self.record.copy(path)

    def extend(
        self,
        ensemble: Ensemble | str | int | Sequence[str],
        *,
        model: Model | Callable[[Tensor], Tensor] | str | None = None,
        machine: Machine | str | torch.device | None = None,
        solvers: Solvers | None = None,
    ) -> Evaluation:
        """Go on to a larger ensemble that holds this one, and return the evaluation with it.

        No query is repeated where states were kept. Interrupted? The same call resumes.

        Args:
            ensemble: Larger ensemble, as `evaluate` takes it; a number of queries alone continues
                the evaluation's own kind of ensemble.
            model: Model of the evaluation; needed where the record names no source that can be
                loaded without running code.
            machine: Workers and the like; device, threads and batches are those the record began
                with.
            solvers: Solvers that the evaluation was made with, where they are neither the attacks'
                own nor the published ones, and the functions of external runs.
        """
        from advfrontier.evaluation.evaluate import extend  # noqa: PLC0415  # which makes evaluations

        return extend(self, ensemble, model, machine, joined_solvers(self.solvers, solvers))

    @cached_property
    def samples(self) -> tuple[str, ...]:
        """Return an id of every sample, made of the content of its image."""
        return self.record.clean.names

    @property
    def radii(self) -> tuple[float, ...]:
        """Return the radii at which robust accuracy was asked for, if any."""
        return self.record.header.radii

    @property
    def criterion(self) -> Criterion | None:
        """Return the criterion of success; None for misclassification."""
        return read_criterion(self.record.header.terms.criterion)

    @property
    def space(self) -> Space | None:
        """Return the domain of the samples; None for [0, 1]."""
        return self.record.space

    def aim(
        self, rows: NDArray[np.int64] | Tensor, device: torch.device | None = None
    ) -> Aim | None:
        """Return the criterion for these samples; None for misclassification.

        Args:
            rows: Indices of samples, int64 (k,).
            device: Device of the tensors; by default the CPU.
        """
        if self.criterion is None:
            return None
        clean, chosen = self.record.clean, torch.as_tensor(rows)
        goals = clean.targets[chosen, 0] if isinstance(self.criterion, Targeted) else None
        goals = None if goals is None else goals.to(device)
        return Aim(self.criterion, clean.labels[chosen].to(device), goals)

    def aimed_samples(self) -> Samples:
        """Return the stored samples, with their targets where the criterion has any."""
        samples = self.record.samples()
        if not isinstance(self.criterion, Targeted):
            return samples
        return replace(samples, goals=self.record.clean.targets[:, 0])

    @property
    def labels(self) -> Tensor:
        """Return the true classes, (n,)."""
        return self.record.clean.labels

    @property
    def clean_logits(self) -> Tensor:
        """Return the logits of the unperturbed images, (n, classes)."""
        return self.record.clean.logits

    # What was found

    @property
    def distances(self) -> NDArray[np.float64]:
        """Return the distance per sample: 0 where misclassified unperturbed, inf where unbroken."""
        return self._outcome.distances

    @property
    def certified(self) -> NDArray[np.float64] | None:
        """Return certified radii, within which no point is misclassified, or None."""
        return self.record.read_certified()

    @property
    def winners(self) -> tuple[str | None, ...]:
        """Return per sample the run whose point was kept, even if refined since; or None."""
        return self._outcome.winners

    @property
    def refined_by(self) -> tuple[str | None, ...]:
        """Return per sample the refinement that moved the kept point last; None for none."""
        return self._outcome.refined_by

    @property
    def credits(self) -> tuple[str | None, ...]:
        """Return per sample the run whose point was kept, and its refinement: `fmn → pdpgd`."""
        found: list[str | None] = []
        for winner, refined in zip(self.winners, self.refined_by, strict=True):
            if winner is None or refined is None:
                found.append(winner)
            else:
                found.append(f"{winner} → {attack_of(refined)}")
        return tuple(found)

    def images(self, rows: Sequence[int] | Tensor | None = None) -> Tensor:
        """Return the unperturbed images of these samples, or of all; only their shards are read.

        Args:
            rows: Indices of samples; None for all.
        """
        return self.record.samples().read(self._rows(rows))

    def points(self, rows: Sequence[int] | Tensor | None = None) -> Tensor:
        """Return the nearest misclassified points of these samples, or of all; else the image.

        Args:
            rows: Indices of samples; None for all.
        """
        return self.points_over(self.images(rows), rows)

    def points_over(self, images: Tensor, rows: Sequence[int] | Tensor | None = None) -> Tensor:
        """Return the nearest misclassified points; the given image where there is none.

        Args:
            images: (k, …), the unperturbed images of these samples.
            rows: Indices of samples; None for all.
        """
        return self._filled(images.to(self._dtype), "best_point", rows)

    @cached_property
    def adversarials(self) -> Tensor:
        """Return the points of all samples."""
        return self.points()

    @cached_property
    def predictions(self) -> Tensor:
        """Return the class predicted for each adversarial point, or else for the image."""
        return self._filled(self.clean_logits.argmax(1), "classes")

    @cached_property
    def shares(self) -> NDArray[np.float64] | None:
        """Return the share of fresh passes that misclassify each point, with EOT."""
        none = torch.full((len(self.labels),), torch.nan, dtype=torch.float32)
        return self._filled(none, "shares").double().numpy() if self.eot > 1 else None

    @property
    def trajectory(self) -> NDArray[np.float64]:
        """Return (checkpoints, samples): the best distance after 10, 20, … queries per sample."""
        return self._outcome.trajectory

    @property
    def found_by_run(self) -> dict[str, NDArray[np.float64]]:
        """Return run or refinement to the nearest distance it found; inf where it found none."""
        return self._outcome.found

    @property
    def queries_by_run(self) -> dict[str, int]:
        """Return run or refinement to the queries that it spent on a sample."""
        return self.ensemble.queries

    def distances_at(self, budget: int) -> NDArray[np.float64]:
        """Return what the first `budget` queries of the ensemble found, per sample.

        Args:
            budget: Queries per sample, at most those of the evaluation.
        """
        budget = min(whole_number(budget, "budget"), self.ensemble.total)
        if budget < CHECKPOINT:
            return np.where(self.record.clean.correct.numpy(), np.inf, 0.0)
        found: NDArray[np.float64] = self.trajectory[budget // CHECKPOINT - 1]
        return found

    def robust_accuracy(self, epsilon: float | str) -> float:
        """Return the share of samples without a perturbation of size ≤ ε (0.5, "8/255").

        `curve().at` takes many ε.

        Args:
            epsilon: Radius in units of the norm: a number, or a text such as `8/255`.
        """
        return robust_accuracy(self.distances, as_radius(epsilon))

    def __repr__(self) -> str:
        spent = (
            f"{tier_label(self.ensemble.total)} queries{'' if self.finished else ', unfinished'}"
        )
        model = printable(self.model)
        return f"<Evaluation of {model} in {self.norm}, {len(self.samples)} samples, {spent}>"

    def curve(self) -> Curve:
        """Return robust accuracy against ε."""
        return Curve.of(self.distances)

    def aurec(self, E: float | None = None) -> Measure:
        """Return the area under the curve up to E.

        Args:
            E: End of the area, in units of the norm; by default the largest finite distance.
        """
        return aurec(self.distances, E=E)

    # What it took

    @property
    def queries(self) -> NDArray[np.int64]:
        """Return attack queries per sample, with EOT all passes; 0 where misclassified.

        They are the ensemble's total, less those that external runs left unspent.
        """
        self._require()
        correct = self.record.clean.correct.numpy()
        spent = np.where(correct, self.ensemble.total * self.eot, 0) - self._outcome.unspent
        return spent.astype(np.int64)

    @property
    def counts(self) -> dict[str, int]:
        """Return the rows passed through the model, forward plus backward, by purpose."""
        spent = self.record.spent() + self._outcome.spent
        return {key: spent[key] for key in PURPOSES}

    @property
    def seconds(self) -> float:
        """Return the seconds that the units took, summed over all processes."""
        return self._outcome.seconds

    @cached_property
    def flags(self) -> tuple[Flag, ...]:
        """Return the flags: reasons why these distances may be too large, or too good."""
        header = self.record.header
        flags = [
            *header.flags,
            *unit_flags(self._outcome.doubts),
            *several_versions(header),
            *self._interrupted,
        ]
        flags += self._outcome.beaten(self.ensemble, self.norm)
        excess = possible_excess(
            self.clean_logits,
            self.labels,
            self.distances,
            norm=self.norm,
            shape=header.data.shape,
            space=self.space,
        )
        attacked = int((self.distances > 0).sum())
        coarse = resolution_flag(excess, attacked, self.clean_logits.dtype)
        if coarse is not None:
            flags.append(coarse)
        if unbroken := int(np.isinf(self.distances).sum()):
            flags.append(Flag(Kind.UNBROKEN, f"{unbroken} samples were never broken by any run"))
        return tuple(flags)

    # How it is read

    def _require(self) -> None:
        """Raise if the record was never finished: its figures would be of no ensemble at all."""
        if self.finished or self._interrupted or self.record.header.finished is not None:
            return  # what was finished and is not any more has lost a unit, which its reader names
        done, units = self.record.finished({ENSEMBLE: self.ensemble.total})
        raise FrontierError(
            f"the evaluation in {self.place} with {self.ensemble.name} "
            f"({tier_label(self.ensemble.total)} queries per sample) is not finished: {done} of "
            f"{units} units are done; {self.record.header.how_to_resume}"
        )

    def _units(self, names: Sequence[str] = ()) -> Iterator[tuple[UnitName, Tensor, StoredUnit]]:
        """Yield every unit with the rows that it attacked, and of its large tensors those named."""
        self._require()
        totals = {ENSEMBLE: self.ensemble.total}
        yield from read_units(self.record, totals, names, job=self._job)

    def _filled(
        self, values: Tensor, name: str, rows: Sequence[int] | Tensor | None = None
    ) -> Tensor:
        """Put what units say of these samples into `values`, where a point was found."""
        chosen = self._rows(rows)
        large = ("best_point",) if name == "best_point" else ()
        for _, attacked, stored in self._units(large):
            if stored.queries > self.ensemble.total and not self._interrupted:
                raise FrontierError(
                    f"{self.place} was extended since it was opened: open it again to see its "
                    "points"
                )
            tensor = getattr(stored, name)
            broken = attacked[stored.classes >= 0]
            where = torch.isin(chosen, broken).nonzero().squeeze(1)
            own = torch.searchsorted(attacked, chosen[where])
            values[where] = tensor[own].view(-1, *values.shape[1:])
        return values

    @cached_property
    def _outcome(self) -> Outcome:
        clean = self.record.clean
        return Outcome.of(self._units(), self.ensemble, clean.labels, clean.correct.numpy())

    def _rows(self, rows: Sequence[int] | Tensor | None) -> Tensor:
        count = len(self.labels)
        if rows is None:
            return torch.arange(count)
        chosen = rows.cpu().numpy() if isinstance(rows, Tensor) else np.asarray(rows)
        if chosen.shape == (count,) and chosen.dtype == np.bool_:
            chosen = np.flatnonzero(chosen)
        if chosen.ndim != 1 or (chosen.size and chosen.dtype.kind not in "iu"):
            raise FrontierError(
                f"rows are {rows!r}: expected numbers of samples, such as [0, 3], or a mask of "
                f"{count}"
            )
        if chosen.size and not 0 <= chosen.min() <= chosen.max() < count:
            raise FrontierError(
                f"rows from {chosen.min()} to {chosen.max()}: expected some of 0 to {count - 1}"
            )
        return torch.from_numpy(chosen.astype(np.int64))
