"""Verify a record of someone else: test its claims with a model and data of one's own.

A point proves a distance: it lies in the box, at that distance from the image, and the model
misclassifies it. No point can prove that the attacks found nothing nearer, so some units are run
again.

The maintainer of a leaderboard keeps a list of verified records. It is no part of a record, so
submitters cannot verify their own.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from os import PathLike
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from torch import Tensor

from advfrontier.engine import find_device
from advfrontier.engine.data import Samples
from advfrontier.engine.margins import safety
from advfrontier.engine.whole import WholeAttack
from advfrontier.errors import FrontierError, whole_number
from advfrontier.evaluation.certify import AGREEMENT
from advfrontier.evaluation.claims import (
    TOLERANCE,
    difference,
    false_points,
    figures_digest,
    same_bits,
)
from advfrontier.evaluation.evaluate import check_typed, noise_flag, points_flags
from advfrontier.evaluation.evaluation import Evaluation
from advfrontier.evaluation.inputs import (
    Images,
    Labels,
    Solvers,
    as_data,
    as_model,
    check_solvers,
    joined_solvers,
    solvers_in,
    with_goals,
)
from advfrontier.execution.tasks import threads
from advfrontier.flags import Kind, doubts
from advfrontier.jobs import Model, UnitJob, prepare
from advfrontier.progress import progress_bar
from advfrontier.record import HeaderChange, Record, StoredUnit, Terms, UnitName
from advfrontier.record.header import solver_repr
from advfrontier.record.units import ENSEMBLE
from advfrontier.solvers import Solver
from advfrontier.threat.criteria import Criterion, Targeted, gap_of
from advfrontier.threat.domain import Domain


@dataclass(frozen=True)
class Verification:
    """Verified and false claims of a record in one norm.

    Args:
        norm: Name of the norm.
        place: Folder of the record.
        model: Name of the model.
        samples: Number of samples.
        points: Points in the record: of every unit, the nearest one of each sample that it broke.
        proved: Points whose class and distance were found again.
        units: Units of the record.
        again: Units that were run again.
        same: Of these, those that repeated bit for bit.
        close: Of these, those within the tolerance where rounding is not the same.
        seed: Seed with which these units were drawn.
        diagnosis: Images or points at which gradients were diagnosed again.
        false: One line for each false claim: what the record says and what was found.
        notes: Sentences on what was not verified, or only in part.
        digest: Digest of the figures that were verified.
    """

    norm: str
    place: str
    model: str
    samples: int
    points: int
    proved: int
    units: int
    again: int
    same: int
    close: int
    seed: int
    diagnosis: str
    false: tuple[str, ...]
    notes: tuple[str, ...]
    digest: str

    @property
    def holds(self) -> bool:
        """Return whether nothing is false."""
        return not self.false

    def __str__(self) -> str:
        wrong = f"{len(self.false)} false, " if self.false else ""
        held = (
            f"{self.proved} of {self.points} points proved: inside the box, at their distance, "
            "misclassified"
        )
        counts = {"bit for bit": self.same, f"within {TOLERANCE:.0%}": self.close}
        ways = [
            f"{count} of {self.units} units reproduced {how}"
            for how, count in counts.items()
            if count
        ]
        done = ", ".join(ways) or f"none of {self.again} units was reproduced"
        again = f"{done} (drawn with seed {self.seed})" if self.again else "no unit was run again"
        return f"{self.norm}: {wrong}{held}; {again}; {self.diagnosis}."


def verify(
    evaluation: Evaluation | str | PathLike[str],
    model: Model | Callable[[Tensor], Tensor] | str,
    images: Images,
    labels: Labels | None = None,
    *,
    rerun: str | int = "5%",
    seed: int | None = None,
    solvers: Solvers | None = None,
    progress: bool | None = None,
    criterion: Criterion | None = None,
    domain: Domain | None = None,
) -> Verification:
    """Try what an evaluation claims with a model and data of one's own. The record is only read.

    The samples, the model and the clean pass must be the record's; every stored point must lie
    inside the box, at the distance claimed, and be misclassified here; and some units, drawn at
    random, must be reproduced: bit for bit where code, libraries, device and the clean pass are
    the same to the last bit, else with distances that differ by no more than 5 % in the median.

    Args:
        evaluation: A finished one, or its folder.
        model: Model that the record claims to be of, as `evaluate` takes it.
        images: Data that the record claims to be of, or more that begin with them; as `evaluate`
            takes them.
        labels: One class per image.
        rerun: Units to run again: a share such as `5%`, or a number; 0 for none.
        seed: Random seed of the units that are run again; by default one that nobody could know
            beforehand.
        solvers: Solvers that the record was made with, where they are neither the attacks' own nor
            the published ones.
        progress: Show a progress bar; by default on terminals and in notebooks.
        criterion: Targets, if the record has any.
        domain: The domain that the record should be of; by default the one that it names.
    """
    claimed = evaluation if isinstance(evaluation, Evaluation) else Evaluation.load(evaluation)
    if not claimed.finished:
        raise FrontierError(
            f"{claimed.place} is not finished: expected a whole evaluation to verify"
        )
    parse_rerun(rerun)
    check_solvers(solvers or {})
    drawn = (
        secrets.randbelow(2**31)
        if seed is None
        else whole_number(seed, "the seed of the draw", least=0)
    )
    if isinstance(claimed.criterion, Targeted) and criterion is None:
        raise FrontierError(
            f"{claimed.place} is a record of targets ({claimed.criterion.name}): expected them "
            "too, as in criterion=Targeted(3), or --target 3"
        )
    subject, count = as_model(model), len(claimed.samples)
    held = claimed.space
    samples = with_goals(as_data(images, labels, held if domain is None else domain), criterion)
    if domain is not None and samples.space != held:
        here, there = ("[0, 1]" if each is None else each.words for each in (samples.space, held))
        raise FrontierError(
            f"{claimed.place} is a record of the domain {there}, not of {here}: expected the same"
        )
    kept = claimed.record.header.terms.criterion
    if criterion is not None and criterion.name != kept:
        raise FrontierError(
            f"{claimed.place} is a record of the criterion {kept}, not of {criterion.name}: "
            "expected the same"
        )
    if len(samples) < count:
        raise FrontierError(
            f"{claimed.place} is a record of {count} samples, and {samples.name} has "
            f"{len(samples)}: expected the data it was made with; name them with --data, "
            "--samples and --sample-seed as in the command that made it"
        )
    goals = None if samples.goals is None else samples.goals[:count]
    samples = replace(samples, labels=samples.labels[:count], goals=goals)
    with TemporaryDirectory(prefix="advfrontier-") as aside:
        place, gradients = (
            str(Path(aside) / claimed.norm),
            claimed.record.header.gradients != "none",
        )
        fresh = prepare(
            place, subject, samples, _terms_here(claimed), kind="evaluation", gradients=gradients
        )
        used = _used(claimed, solvers, units=parse_rerun(rerun)(len(claimed.samples)))
        verifying = _Verifying(claimed, fresh.record, subject, fresh.samples, used)
        return verifying.check(rerun, drawn, progress=progress)


def _used(
    claimed: Evaluation, solvers: Solvers | None, *, units: int
) -> Mapping[str, Solver | WholeAttack]:
    """Return the solvers to run units again with; none if no unit will be."""
    given = joined_solvers(claimed.solvers, solvers)
    if not units:
        return {}
    if claimed.worked_with is None:
        check_typed(claimed.ensemble, "", given, f"verify {claimed.place}")
    return solvers_in(claimed.norm, claimed.ensemble.attacks, given)


def parse_rerun(rerun: str | int) -> Callable[[int], int]:
    """Return a function from the number of units to the number to run again.

    Args:
        rerun: A share such as `5%`, or a number of units such as `3`.
    """
    text = str(rerun).strip()
    try:
        number = float(text.removesuffix("%"))
    except ValueError:
        number = -1.0
    share = text.endswith("%")
    if (
        not 0 <= number < float("inf")
        or (share and number > 100)
        or not (share or number.is_integer())
    ):
        raise FrontierError(
            f"cannot do {rerun!r} of the units again: expected a share, as in 5%, or a number, as "
            "in 3"
        )
    return lambda units: min(units, int(np.ceil(units * number / 100)) if share else int(number))


def _terms_here(claimed: Evaluation) -> Terms:
    """Return the record's terms, on an available device."""
    terms = claimed.record.header.terms
    try:
        find_device(terms.device)
    except FrontierError:
        terms = terms.model_copy(update={"device": str(find_device("auto"))})
    return terms


@dataclass
class _Verifying:
    """Comparison of a record with a new one of the same terms."""

    claimed: Evaluation
    fresh: Record
    model: Model
    samples: Samples
    solvers: Mapping[str, Solver | WholeAttack]
    false: list[str] = field(default_factory=list)
    rows: dict[int, str] = field(
        default_factory=dict
    )  # sample → what is false about it: the first reason found
    notes: list[str] = field(default_factory=list)
    diagnosis: str = "gradients not diagnosed"

    def check(self, rerun: str | int, seed: int, *, progress: bool | None) -> Verification:
        """Check all claims of the record; a check that rests on another one comes after it."""
        claimed = self.claimed
        units = sorted(unit for unit, _ in claimed.record.layout([ENSEMBLE]))
        places = np.random.default_rng(seed).choice(
            len(units), parse_rerun(rerun)(len(units)), replace=False
        )
        drawn = [units[k] for k in places]
        self._check_header()
        self._check_clean()
        if drawn and (self.false or self.rows):
            self.notes.append(
                "no unit was run again, because the model, the data or the clean pass differ"
            )
            drawn = []
        with progress_bar(progress, len(units) + len(drawn), unit="units") as bar:
            points, proved = self._check_points(units, bar.advance)
            if not (self.false or self.rows):
                self._check_gradients()
                self._check_noise()
                self._check_certified()
            bar.show(f"{claimed.norm} units run again")
            again, same, close = self._check_units(drawn, bar.advance)
        return Verification(
            norm=claimed.norm,
            place=claimed.place,
            model=claimed.model,
            samples=len(claimed.samples),
            points=points,
            proved=proved,
            units=len(units),
            again=again,
            same=same,
            close=close,
            seed=seed,
            diagnosis=self.diagnosis,
            false=(
                *self.false,
                *(f"sample {row}: {why}" for row, why in sorted(self.rows.items())),
            ),
            notes=tuple(self.notes),
            digest="" if self.false or self.rows else figures_digest(claimed),
        )

    def _check_header(self) -> None:
        """Check that the model is the record's, and that the record has all flags."""
        said, found = self.claimed.record.header, self.fresh.header
        if said.model.digest != found.model.digest:
            self.false.append(
                f"the record is of another model ({said.model.name}, {said.model.digest[:8]}) than "
                f"{found.model.name} ({found.model.digest[:8]})"
            )
        stored = {flag.kind for flag in said.flags}
        self.false += [
            f"the record lacks the flag: {f}" for f in doubts(found.flags) if f.kind not in stored
        ]
        if Kind.RANDOM in stored:
            self.notes.append(
                "the model is random, and was evaluated without --eot: its points may come and go"
            )

    def _check_gradients(self) -> None:
        """Add the diagnosis of gradients at the points found, if the record lacks its flags."""
        images = self.fresh.images(self.samples)
        flags, queries = points_flags(self.claimed, self.model, self.fresh.header, images)
        at_points = " and at the points found" if queries else ""
        if self.fresh.header.gradients in {"own", "doubted"}:
            self.diagnosis = f"gradients diagnosed again at the images{at_points}"
        stored = {flag.kind for flag in self.claimed.record.header.flags}
        for flag in flags:
            if flag.kind not in stored:
                self.false.append(f"the record lacks the flag: {flag}")

    def _check_noise(self) -> None:
        """Check whether random noise beats the distances without a flag in the record."""
        flag, _ = noise_flag(
            self.claimed, self.model, self.fresh.header.terms, self.fresh.images(self.samples)
        )
        if flag is not None and flag.kind not in {
            known.kind for known in self.claimed.record.header.flags
        }:
            self.false.append(f"the record lacks the flag: {flag}")

    def _check_certified(self) -> None:
        """Check whether a certified radius exceeds a distance that was found."""
        radii, distances = self.claimed.certified, self.claimed.distances
        if radii is None:
            return
        self.notes.append(
            "certified radii are only compared with the distances: `advfrontier certify` proves "
            "them"
        )
        for row in np.flatnonzero(~(radii <= distances * (1 + AGREEMENT))).tolist():
            self.rows[row] = (
                f"it is certified up to {radii[row]:.6g}, and broken at {distances[row]:.6g}"
            )

    def _check_clean(self) -> None:
        """Check images, labels, and which unperturbed images are misclassified."""
        said, found = self.claimed.record.clean, self.fresh.clean
        for row in np.flatnonzero(said.ids != found.ids).tolist():
            self.rows[row] = f"its image is another than that of {self.samples.name}"
        for row in (said.labels != found.labels).nonzero().flatten().tolist():
            label = int(found.labels[row])
            self.rows.setdefault(
                row, f"its label is {int(said.labels[row])} in the record, and {label} in the data"
            )
        aim = self.claimed.aim(np.arange(len(found.labels)))
        decided = gap_of(aim, found.logits, found.labels).abs() > safety(
            found.logits
        )  # rounding decides the others
        for row in ((said.correct != found.correct) & decided).nonzero().flatten().tolist():
            words = ["misclassified", "classified correctly"]
            here, there = words[bool(found.correct[row])], words[bool(said.correct[row])]
            self.rows.setdefault(
                row, f"its image is {here} by this model, and {there} in the record"
            )

    def _check_points(
        self, units: list[UnitName], tick: Callable[[int], object]
    ) -> tuple[int, int]:
        """Check every stored point; return the number of points and of those proved."""
        terms, clean, points, proved = self.fresh.header.terms, self.fresh.clean, 0, 0
        longest, images = self.claimed.record.units(), self.fresh.images(self.samples)
        with threads(terms.threads), self.model.oracle(terms) as oracle:
            for unit in units:
                tick(1)
                stored = self._stored(unit, longest.get(unit, 0))
                if stored is None:
                    continue
                rows = self.claimed.record.clean.attacked(*unit.shard)
                try:
                    count, wrong = false_points(
                        oracle,
                        images(rows),
                        clean.labels[rows],
                        terms.norm,
                        stored,
                        aim=self.claimed.aim(rows),
                        space=self.claimed.space,
                    )
                except ValueError as error:
                    self.false.append(f"{unit}: {error}")
                    continue
                points += count
                proved += count - len(wrong)
                for k, why in wrong.items():
                    self.rows.setdefault(int(rows[k]), f"{why} ({unit.name})")
        return points, proved

    def _stored(self, unit: UnitName, queries: int) -> StoredUnit | None:
        """Return a unit of the record as its readers see it; a refused one is false."""
        record, wanted = self.claimed.record, self.claimed.ensemble.total
        stored = None
        if queries == wanted:
            stored = record.read_unit(unit, queries, ("best_point",))
        if stored is None:
            held = f"it holds {queries} queries of {unit}" if queries else f"it lacks {unit}"
            reason = record.damaged.get(unit.file(queries), held)
            self.false.append(
                f"the record does not hold what it claims, {wanted} queries of {unit}: {reason}"
            )
        return stored

    def _check_units(
        self, units: list[UnitName], tick: Callable[[int], object]
    ) -> tuple[int, int, int]:
        """Run units again; return how many there were, how many had equal bits or rounding."""
        same, close = 0, 0
        if not units:
            return 0, 0, 0
        job = UnitJob(
            model=self.model,
            samples=self.samples,
            record=self.fresh,
            wanted={ENSEMBLE: self.claimed.ensemble},
            solvers=self.solvers,
            keep="points",
            change=HeaderChange(ensemble=self.claimed.ensemble),
        )
        job.check()
        self.fresh.change(job.changes())
        said, here = (record.header.solvers for record in (self.claimed.record, self.fresh))
        if others := sorted(attack for attack in here if said.get(attack) != here[attack]):
            self.notes.append(
                "no unit was run again, because the record was made with "
                f"{solver_repr(said.get(others[0], {}))} as {others[0]}, and here is "
                f"{solver_repr(here[others[0]])}: in Python, verify(…, solvers={{…}}) takes others"
            )
            return 0, 0, 0
        for unit in units:
            exact = same_bits(self.claimed.record, self.fresh, unit)
            different = difference(self.claimed, job, unit, exact=exact)
            if different is not None:
                self.false.append(f"{unit} was not reproduced: {different}")
            same += different is None and exact
            close += different is None and not exact
            tick(1)
        if close:
            self.notes.append(
                "code, libraries, device or rounding are not those of the record: a unit holds if "
                f"its distances differ by no more than {TOLERANCE:.0%} in the median"
            )
        return len(units), same, close
