"""Evaluate a model with an ensemble: the smallest perturbation of every sample that any of its runs found."""

from __future__ import annotations

import shutil
import tempfile
import weakref
from contextlib import contextmanager
from typing import TYPE_CHECKING

import numpy as np

from advfrontier.engine import noise_check
from advfrontier.errors import FrontierError
from advfrontier.evaluation.evaluation import Evaluation
from advfrontier.evaluation.inputs import as_data, as_model, as_terms
from advfrontier.evaluation.settings import solvers_for
from advfrontier.execution import as_machine
from advfrontier.flags import Kind
from advfrontier.jobs import UnitJob, drive, needs_gradients, prepare
from advfrontier.jobs.setup import threads
from advfrontier.pool import TARGETS, Race, find_ensemble, find_larger, tier_label
from advfrontier.record import norm_folder
from advfrontier.record.header import packed, unpacked
from advfrontier.sources import runs_code
from advfrontier.threat.names import norm_name

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from os import PathLike

    import torch
    from torch import Tensor

    from advfrontier.evaluation.inputs import Images, Labels
    from advfrontier.execution import Machine
    from advfrontier.jobs import Model
    from advfrontier.pool import Ensemble
    from advfrontier.record import Record
    from advfrontier.solvers import Solver

_IN_PYTHON = {"extend": "evaluation.extend('12k', model=model)", "certify": "certify(evaluation, model=model)"}
_TRIED = 200  # samples on which noise is tried


def evaluate(
    model: Model | Callable[[Tensor], Tensor] | str,
    images: Images,
    labels: Labels | None = None,
    *,
    norm: str,
    ensemble: Ensemble | Race | str | int | Sequence[str] = "4k",
    seed: int = 42,
    solvers: Mapping[str, Solver] | None = None,
    out: str | PathLike[str] | None = None,
    name: str | None = None,
    batch_size: int | None = None,
    machine: Machine | str | torch.device | None = None,
    eot: int = 1,
) -> Evaluation:
    """Find the smallest perturbation of every sample that an ensemble of attacks can.

    Args:
        model: From images in [0, 1] to logits; or the name of a source, such as `zoo:F3` or `file.py:factory`.
        images: A tensor, an array or a list with `labels`; a Dataset, a DataLoader; or the name of a data source, such
            as `fashion-mnist` or `npz:FILE`. 8-bit images are divided by 255, channels that come last put first.
        labels: One class per image: a tensor, an array or a list.
        norm: `L0`, `L1`, `L2` or `Linf`.
        ensemble: A tier (`4k`, `8k`, `12k`), any number of queries, an `Ensemble`, a `Race` or the path of its file; or
            runs, such as `["fmn", "alma:target1"]`, or a pool (`paper`, `extended`, `black-box`), which take turns
            until each has spent its 1000 queries, or with `black-box@2000` 2000 queries in all.
        seed: Of the random restarts.
        solvers: Solvers in place of their attacks' own: `{"fmn": Fmn(alpha=1)}`, or `PUBLISHED` for all as in their
            papers. By default those that the ensemble was learned with.
        out: The record is written to `out/NORM`, unit by unit: killed at any moment, the same call continues. Without
            it the record is temporary.
        name: What tables call the model.
        batch_size: Samples per batch, which are one unit of work: by default 50 on the CPU, where workers share them,
            else 100.
        machine: Where the work is done: a `Machine`, or a device such as `cuda`. By default here, where the model is.
        eot: How many passes the gradient of a query is the mean of, for models that answer at random.
    """
    machine, threat = as_machine(machine), norm_name(norm)
    first = find_ensemble(ensemble, threat, TARGETS + 1)  # a mistake here should not cost a clean pass
    solvers = dict(solvers_for(first, solvers))
    samples, subject = as_data(images, labels), as_model(model, name)
    terms = as_terms(threat, subject, seed=seed, batch_size=batch_size, machine=machine, eot=eot)
    gradients = needs_gradients(first.runs, threat)
    or_without = isinstance(first, Race) and first.without_gradients() is not None
    with record_folder(out, threat) as (place, keep):
        record = prepare(place, subject, samples, terms, kind="evaluation", gradients=gradients, or_without=or_without,
                         store_images=True, solvers=solvers)  # fmt: skip
        keep(record)
        wanted = _for_model(find_ensemble(ensemble, threat, record.clean.classes), record)
        return _reach(record, subject, wanted, machine, solvers)


def extend(
    evaluation: Evaluation,
    ensemble: Ensemble | Race | str | int | Sequence[str],
    *,
    model: Model | Callable[[Tensor], Tensor] | str | None = None,
    machine: Machine | str | torch.device | None = None,
) -> Evaluation:
    """Go on to a larger ensemble that holds this one; see `Evaluation.extend`."""
    header = evaluation.record.header
    subject = own_model(evaluation, "extend") if model is None else as_model(model, header.model.name)
    record = evaluation.record
    before, classes = None if header.ensemble is None else unpacked(header.ensemble), record.clean.classes
    wanted = find_ensemble(find_larger(ensemble, before, classes), header.terms.norm, classes)
    wanted = _for_model(wanted, record)
    solvers = solvers_for(wanted, evaluation.solvers)
    if subject is not evaluation.worked_with:
        old = record.samples()
        record = prepare(record.place, subject, old, header.terms, kind="evaluation", gradients=header.gradients,
                         solvers=solvers)  # fmt: skip
    return _reach(record, subject, wanted, as_machine(machine), solvers)


def _for_model(wanted: Ensemble | Race, record: Record) -> Ensemble | Race:
    """What is asked for, or of a race only the runs that need no gradient, where the model has none."""
    if record.header.gradients or not isinstance(wanted, Race):
        return wanted
    return wanted.without_gradients() or wanted


def own_model(evaluation: Evaluation, command: str) -> Model:
    """The model that the evaluation was just made with, or the one that its record names, if that runs no code.

    `command` is what the user asked for, and can ask for again with the model beside it.
    """
    if evaluation.worked_with is not None:
        return evaluation.worked_with
    name, source = evaluation.record.header.model.name, evaluation.record.header.model.source
    if source is None:
        raise FrontierError(
            f"the record does not say where {name} comes from, because it was given as an object: expected it again, "
            f"as in {_IN_PYTHON[command]} or `advfrontier {command} RECORD --model SOURCE`"
        )
    if runs_code(source):
        raise FrontierError(
            f"the record names {source}, which would run code on this machine, and a record may come from anyone: if "
            f"you trust it, type it yourself, as in `advfrontier {command} {evaluation.record.place} --model {source}`"
        )
    return as_model(source, name)


def _reach(
    record: Record,
    model: Model,
    wanted: Ensemble | Race,
    machine: Machine,
    solvers: Mapping[str, Solver],
) -> Evaluation:
    """Bring a record to an ensemble that goes at least as far as the units it holds."""
    header = record.header
    beyond = [unit for unit, queries in record.units().items() if queries > wanted.queries.get(unit.run, 0)]
    if beyond and header.ensemble is not None:
        before = unpacked(header.ensemble)
        done, units = record.finished(before.queries)
        state = "" if done == units else f", unfinished ({header.how_to_go_on})"
        raise FrontierError(
            f"{record.place} holds {tier_label(before.total)} queries per sample of {before.name}{state}, which the "
            f"{tier_label(wanted.total)} of {wanted.name} asked for do not contain: expected an ensemble that goes "
            "further, or another folder"
        )
    stored = packed(wanted)
    job = UnitJob(
        model=model,
        samples=record.samples(),
        wanted=wanted.queries,
        race=wanted if isinstance(wanted, Race) else None,
        solvers=solvers,
        pack=machine.pack,
        keep_state=machine.keep_state and header.keep_state,
        note={"ensemble": stored, "keep_state": machine.keep_state and header.keep_state},
    )
    ready = drive(record, job, machine)
    if header.finished != stored:
        record.change(lambda _: {"finished": stored})
        _try_noise(Evaluation(record, ready), model)
    return Evaluation(record, ready)


def _try_noise(evaluation: Evaluation, model: Model) -> None:
    """Flag distances that random noise beats: then the gradients mislead, whatever they looked like at the images."""
    record, terms = evaluation.record, evaluation.record.header.terms
    attacked = np.flatnonzero(evaluation.distances > 0)
    rows = attacked[np.unique(np.linspace(0, max(len(attacked) - 1, 0), min(_TRIED, len(attacked))).astype(int))]
    if not len(rows):
        return
    with threads(terms.threads), model.oracle(terms) as oracle:
        found = noise_check(
            oracle,
            evaluation.images(rows.tolist()),
            evaluation.labels[rows],
            evaluation.distances[rows],
            norm=terms.norm,
            seed=terms.seed,
        )
    record.add_counts({"verification": oracle.counts.verification})
    record.replace_flag(Kind.BEATEN, found)


@contextmanager
def record_folder(out: str | PathLike[str] | None, norm: str) -> Iterator[tuple[str, Callable[[Record], object]]]:
    """The folder of a record and what to do once it is there: a temporary one goes when nobody uses it any more."""
    if out is not None:
        yield norm_folder(out, norm), lambda _: None
        return
    place = tempfile.mkdtemp(prefix="advfrontier-")
    try:
        inside = norm_folder(place, norm)
        yield inside, lambda record: weakref.finalize(record, shutil.rmtree, place, ignore_errors=True)
    except BaseException:
        shutil.rmtree(place, ignore_errors=True)  # nobody could go on with it
        raise
