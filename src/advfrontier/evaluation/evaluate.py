"""Evaluate a model with an ensemble: search the smallest perturbation of every sample."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from os import PathLike
from typing import overload

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from advfrontier.engine import diagnose_points, noise_check
from advfrontier.engine.diagnose import diagnosed
from advfrontier.engine.whole import WholeAttack
from advfrontier.errors import FrontierError
from advfrontier.evaluation.evaluation import Evaluation
from advfrontier.evaluation.inputs import (
    Images,
    Labels,
    Solvers,
    as_data,
    as_model,
    as_terms,
    check_solvers,
    check_steered,
    solvers_in,
    with_goals,
    working_record,
)
from advfrontier.evaluation.radii import parse_radii, remember_radii
from advfrontier.execution import Machine, as_machine
from advfrontier.execution.tasks import threads
from advfrontier.flags import Flag, Kind
from advfrontier.jobs import Model, Prepared, UnitJob, drive, needs_gradients, prepare
from advfrontier.pool import TARGETS, Ensemble, Run, find_ensemble, find_larger, tier_label
from advfrontier.pool.runs import is_external
from advfrontier.record import Header, HeaderChange, Record, Terms
from advfrontier.record.identity import settings, solvers_of
from advfrontier.record.units import ENSEMBLE
from advfrontier.solvers import PUBLISHED, Solver, check_published
from advfrontier.sources import runs_code
from advfrontier.threat.criteria import Criterion
from advfrontier.threat.domain import Domain, Space
from advfrontier.threat.names import UNTARGETED, norm_name

_IN_PYTHON = {
    "extend": "evaluation.extend('12k', model=model)",
    "certify": "certify(evaluation, model=model)",
}
_TRIED = 200  # samples on which noise is tried


Eps = float | str | Sequence[float | str] | Mapping[str, "Eps"]


@overload
def evaluate(
    model: Model | Callable[[Tensor], Tensor] | str,
    images: Images,
    labels: Labels | None = None,
    *,
    norm: str,
    ensemble: Ensemble | str | int | Sequence[str] = "4k",
    eps: Eps | None = None,
    seed: int = 42,
    solvers: Solvers | None = None,
    out: str | PathLike[str] | None = None,
    name: str | None = None,
    batch_size: int | None = None,
    machine: Machine | str | torch.device | None = None,
    device: str | torch.device | None = None,
    dtype: str | torch.dtype | None = None,
    eot: int = 1,
    criterion: Criterion | None = None,
    domain: Domain | None = None,
) -> Evaluation: ...


@overload
def evaluate(
    model: Model | Callable[[Tensor], Tensor] | str,
    images: Images,
    labels: Labels | None = None,
    *,
    norm: list[str] | tuple[str, ...],
    ensemble: Ensemble | str | int | Sequence[str] = "4k",
    eps: Eps | None = None,
    seed: int = 42,
    solvers: Solvers | None = None,
    out: str | PathLike[str] | None = None,
    name: str | None = None,
    batch_size: int | None = None,
    machine: Machine | str | torch.device | None = None,
    device: str | torch.device | None = None,
    dtype: str | torch.dtype | None = None,
    eot: int = 1,
    criterion: Criterion | None = None,
    domain: Domain | None = None,
) -> dict[str, Evaluation]: ...


def evaluate(
    model: Model | Callable[[Tensor], Tensor] | str,
    images: Images,
    labels: Labels | None = None,
    *,
    norm: str | list[str] | tuple[str, ...],
    ensemble: Ensemble | str | int | Sequence[str] = "4k",
    eps: Eps | None = None,
    seed: int = 42,
    solvers: Solvers | None = None,
    out: str | PathLike[str] | None = None,
    name: str | None = None,
    batch_size: int | None = None,
    machine: Machine | str | torch.device | None = None,
    device: str | torch.device | None = None,
    dtype: str | torch.dtype | None = None,
    eot: int = 1,
    criterion: Criterion | None = None,
    domain: Domain | None = None,
) -> Evaluation | dict[str, Evaluation]:
    """Find the smallest perturbation of every sample that an ensemble of attacks can.

    Args:
        model: From images in [0, 1] to logits; or the name of a source, such as `zoo:F3` or
            `file.py:factory`.
        images: A tensor, an array or a list; a Dataset, a DataLoader; or the name of a source, such
            as `npz:FILE`. 8-bit images are divided by 255, channels that come last put first.
        labels: One class per image, where the images do not come with their labels.
        norm: `L0`, `L1`, `L2` or `Linf`; or a list of norms.
        ensemble: A budget (`4k`, `8k`, `12k` or any number of queries), an `Ensemble` or the path
            of its file; or runs, such as `["fmn", "fmn:target1"]`, or a pool (`paper`, `extended`,
            `black-box`), which advance alternately, 100 queries at a time, up to 1000 queries each,
            or with `black-box@2000` to 2000 in all.
        eps: Radii at which robust accuracy is read: a size such as 8/255 or "8/255", several in a
            list, or norm to sizes. By default the radii usually quoted.
        seed: Random seed of restarts and of random starting points.
        solvers: In place of those that the ensemble was learned with: `{"fmn": FMN(alpha=1)}`, or
            all as `PUBLISHED`. Functions for external runs: `{"callable:mine": attack}`.
        out: Folder or address; the record is `out/NORM`, and the same call resumes it. By default
            the record is temporary.
        name: Display name of the model; by default its source or its class.
        batch_size: Samples per batch, which are one unit of work: by default 50 on the CPU, else
            100.
        machine: A `Machine`, or a device such as `cuda`. By default this process, on the device of
            the model.
        device: Device of the model; the same as in `machine`.
        dtype: `float32` or `float64`; the same as in `machine`.
        eot: How many passes the gradient of a query is the mean of, for models that answer at
            random.
        criterion: Criterion of success: `Targeted(3)`, `TopK(5)` or `Rejecting()`; by default
            misclassification.
        domain: What samples may be, where that is not [0, 1]; which features may change, and what
            a change of each costs.

    Returns:
        The evaluation; for a list of norms, norm to evaluation.
    """
    where = _machine(machine, device, dtype)
    norms = [norm] if isinstance(norm, str) else list(norm)
    if not norms:
        raise FrontierError('no norm was named: expected some, such as norm=["L2", "Linf"]')
    sizes = {each: _radii_text(eps, norm_name(each)) for each in norms}
    found = {}
    for each in norms:
        evaluation = _evaluate_norm(
            model,
            images,
            labels,
            norm=each,
            ensemble=ensemble,
            seed=seed,
            solvers=solvers,
            out=out,
            name=name,
            batch_size=batch_size,
            machine=where,
            eot=eot,
            criterion=criterion,
            domain=domain,
        )
        remember_radii(evaluation, sizes[each])
        found[evaluation.norm] = evaluation
    return found[norm_name(norm)] if isinstance(norm, str) else found


def _machine(
    machine: Machine | str | torch.device | None,
    device: str | torch.device | None,
    dtype: str | torch.dtype | None,
) -> Machine:
    """Return the machine with a device and a precision that were named beside it."""
    if device is not None and machine is not None and not isinstance(machine, Machine):
        raise FrontierError(
            f"machine={machine!r} and device={device!r} were given together: expected one of them"
        )
    found = as_machine(device if machine is None else machine)
    if device is not None and found.device is None:
        found = replace(found, device=device)
    return found if dtype is None else replace(found, dtype=dtype)


def _radii_text(eps: Eps | None, norm: str) -> str | None:
    """Return radii as `remember_radii` takes them; None where none were given in this norm."""
    if isinstance(eps, Mapping):
        named = {norm_name(name): sizes for name, sizes in eps.items()}
        return _radii_text(named[norm], norm) if norm in named else None
    if eps is None or isinstance(eps, str):
        text = eps
    elif isinstance(eps, Sequence):
        text = ",".join(str(size) for size in eps)
    else:
        text = repr(float(eps))
    parse_radii(text or "", norm)  # a mistake here should not cost an evaluation
    return text


def _evaluate_norm(
    model: Model | Callable[[Tensor], Tensor] | str,
    images: Images,
    labels: Labels | None,
    *,
    norm: str,
    ensemble: Ensemble | str | int | Sequence[str],
    seed: int,
    solvers: Solvers | None,
    out: str | PathLike[str] | None,
    name: str | None,
    batch_size: int | None,
    machine: Machine,
    eot: int,
    criterion: Criterion | None,
    domain: Domain | None,
) -> Evaluation:
    """Evaluate in one norm; see `evaluate`."""
    threat = norm_name(norm)
    first = find_ensemble(
        ensemble, threat, TARGETS + 1
    )  # a mistake here should not cost a clean pass
    check_solvers(solvers or {})
    check_steered(first.attacks, UNTARGETED if criterion is None else criterion.name)
    samples = with_goals(as_data(images, labels, domain), criterion)
    _check_in_domain(first, samples.space)
    used = solvers_for(first, solvers)
    subject = as_model(model, name)
    terms = as_terms(
        threat,
        subject,
        seed=seed,
        batch_size=batch_size,
        machine=machine,
        eot=eot,
        criterion=criterion,
        space=samples.space,
    )
    prepared = working_record(
        out,
        subject,
        samples,
        terms,
        kind="evaluation",
        gradients=_gradients(first),
        store_images=True,
        solvers=used,
    )
    record = prepared.record
    if name is not None:  # the record may have been begun under another one
        record.change(HeaderChange(model_name=name), optional=True)
    wanted = _for_model(find_ensemble(ensemble, threat, record.clean.classes), record)
    return _run_to(prepared, subject, wanted, machine, used)


def _check_in_domain(wanted: Ensemble, space: Space | None) -> None:
    """Raise if attacks of other libraries are to stay in a domain: they know [0, 1] alone."""
    others = [run for run in wanted.attacks if is_external(run)]
    if others and space is not None:
        raise FrontierError(
            f"{', '.join(others)} in a domain ({space.words}): expected runs of advfrontier alone, "
            "because attacks of other libraries search in [0, 1], without masks or weights"
        )


def _gradients(wanted: Ensemble) -> bool | None:
    """Tell whether an ensemble needs gradients; None if it can do without where there are none."""
    needed = needs_gradients(wanted.attacks, wanted.norm)
    return None if needed and wanted.without_gradients() is not None else needed


def extend(
    evaluation: Evaluation,
    ensemble: Ensemble | str | int | Sequence[str],
    model: Model | Callable[[Tensor], Tensor] | str | None,
    machine: Machine | str | torch.device | None,
    solvers: Solvers,
) -> Evaluation:
    """Go on to a larger ensemble that holds this one; see `Evaluation.extend`.

    Args:
        evaluation: Finished evaluation to extend.
        ensemble: Larger ensemble, as `evaluate` takes it.
        model: Model of the evaluation; needed where the record names none that can be loaded.
        machine: Device and processes.
        solvers: Solvers in place of the attacks' own, as `evaluate` takes them.
    """
    record, header = evaluation.record, evaluation.record.header
    classes = record.clean.classes
    asked = find_larger(ensemble, header.ensemble, classes)
    wanted = _for_model(find_ensemble(asked, header.terms.norm, classes), record)
    check_solvers(solvers)
    check_steered(wanted.attacks, header.terms.criterion)
    _check_in_domain(wanted, record.space)
    if isinstance(ensemble, str | int) and evaluation.worked_with is None:
        check_typed(wanted, ensemble, solvers, f"extend {evaluation.place}")
    used = solvers_for(wanted, solvers)
    subject, prepared = recognised(evaluation, model, "extend", used)
    return _run_to(prepared, subject, wanted, as_machine(machine), used)


def check_typed(ensemble: Ensemble, asked: str | int, solvers: Solvers, command: str) -> None:
    """Raise if an ensemble of a record names a file or module that nobody typed here.

    Args:
        ensemble: Ensemble that a record names.
        asked: Budget or ensemble that the user typed.
        solvers: Solvers that the user gave, by attack.
        command: Command to repeat in the message, such as `extend runs/mine`.
    """
    if str(asked).endswith(".toml"):
        return
    typed = {str(Run.parse(name)) for name in solvers}
    for name in ensemble.attacks:
        external = Run.parse(name).external
        if external is None or not external.runs_code or name in typed or name in str(asked):
            continue
        raise FrontierError(
            f"the record names the attack {name}, which would run code on this machine, and a "
            "record may come from anyone: if you trust it, type it yourself, as in "
            f"`advfrontier {command} --attack {shlex.quote(name)}`, or in Python give "
            f'solvers={{"{name}": attack}}'
        )


def _for_model(wanted: Ensemble, record: Record) -> Ensemble:
    """Return the ensemble as it runs on a model.

    Without gradients that is its black-box attack alone; with gradients that the diagnosis doubts,
    half of it is a search without them; with surrogate gradients, it has more of an attack that can
    use these. More of what the record holds is taken as it is.
    """
    header = record.header
    if header.ensemble is not None and wanted.holds(header.ensemble):
        return wanted
    if not needs_gradients(wanted.attacks, wanted.norm):
        return wanted
    if header.gradients == "none":
        return wanted.without_gradients() or wanted
    return wanted.for_gradients(header.gradients)


def recognised(
    evaluation: Evaluation,
    model: Model | Callable[[Tensor], Tensor] | str | None,
    command: str,
    solvers: Mapping[str, Solver | WholeAttack] | None = None,
) -> tuple[Model, Prepared]:
    """Return the model of an evaluation and its record; raise if another model is given.

    Without any it is the one that the evaluation was just made with, or the one that the record
    names, if that runs no code. `command` is what the user asked for, and can ask for again with
    the model beside it.

    Args:
        evaluation: Evaluation whose model is wanted.
        model: Model that the user gave; None for the one that the record names.
        command: Name of the command, `extend` or `certify`, for messages.
        solvers: Solvers instead of the attacks' own.
    """
    record, header = evaluation.record, evaluation.record.header
    name, source = header.model.name, header.model.source
    model = evaluation.worked_with if model is None else model
    if model is None and source is None:
        raise FrontierError(
            f"the record does not say where {name} comes from, because it was given as an object: "
            f"expected it again, as in {_IN_PYTHON[command]} or `advfrontier {command} RECORD "
            "--model SOURCE`"
        )
    if model is None and runs_code(str(source)):
        typed = shlex.join(["advfrontier", command, record.place, "--model", str(source)])
        raise FrontierError(
            f"the record names {source}, which would run code on this machine, and a record may "
            f"come from anyone: if you trust it, type it yourself, as in `{typed}`"
        )
    subject = as_model(str(source) if model is None else model, name)
    if subject.given is not None:
        # It may have been trained further since: look at its numbers again.
        subject = Model(subject.name, subject.given)
    prepared = prepare(
        record.place,
        subject,
        evaluation.aimed_samples(),
        header.terms,
        kind="evaluation",
        gradients=header.gradients != "none",
        solvers=solvers,
    )
    # A temporary folder stays as long as this record.
    prepared.record.folder, prepared.record.temporary = record.folder, record.temporary
    return subject, prepared


def _run_to(
    prepared: Prepared,
    model: Model,
    wanted: Ensemble,
    machine: Machine,
    solvers: Mapping[str, Solver | WholeAttack],
) -> Evaluation:
    """Run an ensemble that begins with what the record holds, and store its flags."""
    record, header = prepared.record, prepared.record.header
    before = header.ensemble
    # An extension that has spent nothing yet may be taken back.
    spent = max(record.units().values(), default=0)
    if before is not None and not wanted.holds(before.at(spent)):
        done, units = record.finished({ENSEMBLE: before.total})
        state = "" if done == units else f", unfinished ({header.how_to_resume})"
        raise FrontierError(
            f"{record.place} holds {tier_label(before.total)} queries per sample of {before.name}"
            f"{state}, and {wanted.name} with {tier_label(wanted.total)} does not contain all of "
            f"their steps: expected a larger budget of {before.name}, or another folder (--out)"
        )
    keep_state = machine.keep_state and header.keep_state
    job = UnitJob(
        model=model,
        samples=prepared.samples,
        wanted={ENSEMBLE: wanted},
        solvers=solvers,
        keep="states" if keep_state else "points",
        change=HeaderChange(ensemble=wanted, keep_state=keep_state),
    )
    ready = drive(record, job, machine)
    if record.header.finished != wanted:
        evaluation = Evaluation(record, ready)
        noise, passes = noise_flag(evaluation, model, header.terms, ready.images)
        misled, checks = points_flags(evaluation, model, header, ready.images)
        # In one change: if it is stopped before, both are tried again.
        change = HeaderChange(
            add_counts={"verification": passes, "checks": checks},
            add_flags=misled,
            set_flags={Kind.NOISE: noise},
            finished=wanted,
        )
        record.change(change)
    return Evaluation(record, ready)


def noise_flag(
    evaluation: Evaluation, model: Model, terms: Terms, images: Callable[[Tensor], Tensor]
) -> tuple[Flag | None, int]:
    """Return a flag if random noise beats the distances, and the passes of the test.

    Args:
        evaluation: Finished evaluation.
        model: Model of the evaluation.
        terms: Terms of its record: norm, seed, device and batches.
        images: Returns the images of given rows, int64 (k,).
    """
    rows = _spread_out(np.flatnonzero(evaluation.distances > 0), _TRIED)
    if not len(rows):
        return None, 0
    with threads(terms.threads), model.oracle(terms) as oracle:
        samples = (
            images(torch.from_numpy(rows)),
            evaluation.labels[rows],
            evaluation.distances[rows],
        )
        found = noise_check(
            oracle,
            *samples,
            norm=terms.norm,
            seed=terms.seed,
            batch_size=terms.shard,
            aim=evaluation.aim(rows, oracle.device),
            space=evaluation.space,
        )
    return found, oracle.counts.verification


def points_flags(
    evaluation: Evaluation, model: Model, header: Header, images: Callable[[Tensor], Tensor]
) -> tuple[tuple[Flag, ...], int]:
    """Return flags for gradients that mislead at the points found, and the queries that it took.

    Nothing is asked where the gradients are not the model's own, where they are doubted already,
    or where the model's answers vary.

    Args:
        evaluation: The evaluation, whose units are done.
        model: Model of the evaluation.
        header: Header of the record: flags so far, gradients and terms.
        images: Returns the images of given rows, int64 (k,).
    """
    terms = header.terms
    varying = {Kind.RANDOM, Kind.EOT, Kind.BATCH, Kind.MISLEADING_GRADIENTS}
    asked = varying.isdisjoint(flag.kind for flag in header.flags)
    asked = asked and header.gradients in {"own", "doubted"}
    distances = evaluation.distances
    rows = _spread_out(
        np.flatnonzero((distances > 0) & np.isfinite(distances)), diagnosed(terms.shard)
    )
    if not asked or not len(rows) or not needs_gradients(evaluation.ensemble.attacks, terms.norm):
        return (), 0
    chosen = torch.from_numpy(rows)
    with threads(terms.threads), model.oracle(terms) as oracle:
        clean = images(chosen)
        points = evaluation.points_over(clean.clone(), chosen)
        space = evaluation.space
        flags = diagnose_points(oracle, clean, evaluation.labels[rows], points, space)
    return tuple(flags), oracle.counts.checks


def _spread_out(rows: NDArray[np.int64], most: int) -> NDArray[np.int64]:
    """Return some of these rows, from all over them."""
    places = np.linspace(0, max(len(rows) - 1, 0), min(most, len(rows)))
    chosen: NDArray[np.int64] = rows[np.unique(places.astype(int))]
    return chosen


def solvers_for(ensemble: Ensemble, given: Solvers | None) -> dict[str, Solver | WholeAttack]:
    """Return the solvers of an ensemble: those given, else those that it was learned with.

    Raise if a solver that was given differs from the one that the ensemble was learned with.
    Attacks of external runs are imported.

    Args:
        ensemble: Ensemble that will be run.
        given: Solvers that the user gave; None if none were given.
    """
    attacks = [attack for attack in ensemble.attacks if not is_external(attack)]
    learned = {attack: ensemble.solvers[attack] for attack in attacks if attack in ensemble.solvers}
    published = settings(solvers_of(attacks, PUBLISHED))
    if given is None:
        given = PUBLISHED if learned and learned == published else {}
    solvers = solvers_in(ensemble.norm, ensemble.attacks, given)
    found = settings(solvers_of(attacks, solvers))
    for attack in attacks if learned else ():
        if learned.get(attack) != found.get(attack):
            own, named = (
                "its own settings",
                ", ".join(f'"{key}": …({words})' for key, words in learned.items()),
            )
            cure = (
                f"in Python give solvers={{{named}}}"
                if learned
                else "leave --published out (in Python: solvers=)"
            )
            cure = (
                "type --published (in Python: solvers=PUBLISHED)" if learned == published else cure
            )
            raise FrontierError(
                f"{ensemble.name} was learned with {attack} at {learned.get(attack, own)}, here "
                f"it has {found.get(attack, own)}: expected the same; {cure}, or an ensemble that "
                "is learned on nothing, such as --ensemble paper-4k"
            )
    if dict(given) == dict(PUBLISHED):
        check_published(attacks)
    return solvers
