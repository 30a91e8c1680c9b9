"""Inputs of users, as jobs take them: models, data and solvers, as objects or by name."""

from __future__ import annotations

import shutil
import tempfile
import weakref
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from os import PathLike
from typing import Any, cast

import numpy as np
import torch
from pydantic import ValidationError
from torch import Tensor
from torch.utils.data import Dataset

from advfrontier.attacks.external import ExternalAttack
from advfrontier.attacks.watched import Attack
from advfrontier.engine import find_device, own_device, own_dtype
from advfrontier.engine.data import Samples
from advfrontier.engine.whole import WholeAttack
from advfrontier.errors import FrontierError, whole_number
from advfrontier.execution import Machine
from advfrontier.jobs import Model, Prepared, prepare
from advfrontier.pool import ANY, Run, check_run, facts_of
from advfrontier.pool.runs import is_external
from advfrontier.record import Terms, norm_folder
from advfrontier.record.header import TYPED
from advfrontier.solvers import Solver
from advfrontier.sources import as_samples, load_data, load_model
from advfrontier.threat.criteria import Criterion, Targeted
from advfrontier.threat.domain import Domain, Space
from advfrontier.threat.names import UNIT_BOX, UNTARGETED, norm_name

Images = Tensor | np.ndarray[Any, Any] | Samples | Dataset[Any] | Iterable[Any] | str

Labels = Tensor | np.ndarray[Any, Any] | Iterable[int]


def as_model(model: Model | Callable[[Tensor], Tensor] | str, name: str | None = None) -> Model:
    """Return a model, loaded from its source or given as an object.

    Args:
        model: From images in [0, 1] to logits, or the name of a source.
        name: Display name; by default the source, or the class of the model.
    """
    if isinstance(model, Model):
        return model
    if isinstance(model, str):
        return Model(name or model, source=model, load=load_model)
    return Model(name or type(model).__name__, model)


def as_data(images: Images, labels: Labels | None, domain: Domain | Space | None = None) -> Samples:
    """Return samples of a source, tensors, arrays, lists, a Dataset, a DataLoader or batches.

    Args:
        images: Images, a Dataset, a DataLoader, `Samples`, or the name of a source.
        labels: One class per image; None where the images come with their labels.
        domain: Domain of the images; None for [0, 1].
    """
    if isinstance(images, str) and labels is not None:
        raise FrontierError(
            f"{images} comes with labels, and others were given beside it: leave them out"
        )
    unit = domain is None
    if isinstance(images, str):
        samples = load_data(images, unit=unit)
    else:
        samples = as_samples(images, labels, unit=unit)
    if isinstance(domain, Domain) and len(samples):
        shape = tuple(samples.read(torch.zeros(1, dtype=torch.int64)).shape[1:])
        domain = domain.space(shape)
    return replace(samples, space=domain) if isinstance(domain, Space) else samples


@dataclass(frozen=True)
class _Rows:
    """Reads some rows of samples, by their place among these.

    Args:
        read: Reads rows of all samples.
        rows: The rows that are used, in order.
    """

    read: Callable[[Tensor], Tensor]
    rows: Tensor

    def __call__(self, places: Tensor) -> Tensor:
        """Return the images at these places."""
        return self.read(self.rows[places])


def with_goals(samples: Samples, criterion: Criterion | None) -> Samples:
    """Return samples with the classes to reach; some are left out or repeated as targets ask.

    Args:
        samples: Samples to attack.
        criterion: Criterion of success; None for misclassification.
    """
    if not isinstance(criterion, Targeted):
        return samples
    rows, goals = criterion.rows(samples.labels.long().cpu())
    if not len(rows):
        raise FrontierError(
            f"all samples of {samples.name} are of the target's own class: expected others"
        )
    read = samples.read
    if not torch.equal(rows, torch.arange(len(samples))):
        read = _Rows(samples.read, rows)
    return replace(samples, labels=samples.labels[rows], read=read, goals=goals)


# Attack to solver, or external run to its function.
Solvers = Mapping[str, Solver | Attack | WholeAttack]


def check_solvers(solvers: Solvers) -> None:
    """Raise on objects that are no solvers, and on solvers for unknown attacks.

    Args:
        solvers: Attack to solver, and name of an external run to its function.
    """
    for name, solver in solvers.items():
        run = Run.parse(name)
        if run.external is not None:
            if not callable(solver) and not isinstance(solver, WholeAttack):
                raise FrontierError(
                    f"{solver!r} is no attack for {run}: expected a function "
                    "attack(model, images, labels)"
                )
            continue
        facts = facts_of(run.solver)
        check_run(run, facts.norms[0] if facts and facts.norms != ANY else "L2")
        if run != run.base:
            raise FrontierError(
                f"a solver for {name}: expected one for all runs of the attack, {run.attack!r}"
            )
        if isinstance(solver, type) or not callable(getattr(solver, "start", None)):
            raise FrontierError(
                f"{solver!r} is no solver of {name}: expected one such as FMN(alpha=1)"
            )


def joined_solvers(own: Mapping[str, Solver | WholeAttack], given: Solvers | None) -> Solvers:
    """Return the solvers of a record, or those given; functions of external runs join the record's.

    Args:
        own: Solvers that the record was made with, by attack.
        given: Solvers that the user gave; None for those of the record.
    """
    if given is None or all(map(is_external, given)):
        return {**own, **(given or {})}
    return given


def check_steered(attacks: Iterable[str], criterion: str) -> None:
    """Raise if attacks of other libraries are to follow a criterion: they know none.

    Args:
        attacks: Attacks or runs that will run.
        criterion: Name of the criterion.
    """
    others = [run for run in attacks if is_external(run)]
    if others and criterion != UNTARGETED:
        raise FrontierError(
            f"{', '.join(others)} with the criterion {criterion}: expected runs of advfrontier "
            "alone, because attacks of other libraries aim at misclassification"
        )


def solvers_in(
    norm: str, attacks: Iterable[str], solvers: Solvers
) -> dict[str, Solver | WholeAttack]:
    """Return the solvers, and the attack of every external run, imported.

    Args:
        norm: Name of the norm that external runs minimise.
        attacks: Attacks that will run, external runs among them.
        solvers: Solvers that the user gave by attack, and functions by external run.
    """
    found: dict[str, Solver | WholeAttack] = {}
    for name, solver in solvers.items():
        if not is_external(name):
            found[name] = cast("Solver", solver)
    given = {str(Run.parse(name)): solver for name, solver in solvers.items()}
    for name in attacks:
        if not is_external(name):
            continue
        function = given.get(name)
        if isinstance(function, WholeAttack):
            found[name] = function
            continue
        attack = ExternalAttack(name, norm, cast("Attack | None", function))
        attack.identity()  # a library that is missing should not cost a clean pass
        found[name] = attack
    return found


def as_terms(
    norm: str,
    model: Model,
    *,
    seed: int,
    batch_size: int | None,
    machine: Machine,
    eot: int = 1,
    criterion: Criterion | None = None,
    space: Space | None = None,
) -> Terms:
    """Return the terms of a record; device and precision default to the model's own.

    Args:
        norm: Name of the norm.
        model: Model, whose device and precision are the default.
        seed: Seed of the base runs.
        batch_size: Samples per batch; by default 50 on the CPU, else 100.
        machine: Device, threads and precision that the user asked for.
        eot: Passes that the gradient of a query is the mean of.
        criterion: Criterion of success; None for misclassification.
        space: Domain of the samples; None for [0, 1].
    """
    device = _device(machine, model)
    if batch_size is None:
        batch_size = 50 if device == "cpu" else 100
    values = {
        "norm": norm_name(norm),
        "seed": whole_number(seed, "seed"),
        "shard": whole_number(batch_size, "batch_size"),
        "device": device,
        "dtype": machine.dtype or str(own_dtype(model.function)).removeprefix("torch."),
        "threads": whole_number(machine.threads or torch.get_num_threads(), "threads"),
        "eot": whole_number(eot, "eot"),
        "criterion": UNTARGETED if criterion is None else criterion.name,
        "domain": UNIT_BOX if space is None else space.name,
    }
    if space is not None:
        space.check_norm(norm_name(norm))
    if eot > 1 and criterion is not None:
        raise FrontierError(
            f"the criterion {criterion.name} together with eot={eot}: expected one of them, "
            "because fresh passes are counted for misclassification alone"
        )
    try:
        return Terms.model_validate(values)
    except ValidationError as error:
        first = error.errors()[0]
        term, found, expected = (
            str(first["loc"][0]),
            first["input"],
            first["msg"].removeprefix("Input should be "),
        )
        option, name = TYPED.get(term, (term, "machine"))
        raise FrontierError(
            f"{option} (in Python {name}=) is {found!r}: expected {expected}; give such a value, "
            "or leave it out"
        ) from error


def _device(machine: Machine, model: Model) -> str:
    """Return the device's name in records; the first of several GPUs is `cuda`."""
    if machine.device not in {None, "auto"}:
        return str(machine.device)
    device = find_device("auto") if machine.device else own_device(model.function)
    return str(device) if device.index else device.type


def working_record(
    out: str | PathLike[str] | None, model: Model, samples: Samples, terms: Terms, **about: Any
) -> Prepared:
    """Prepare the record in `out/NORM`; without `out` a temporary one, removed when unused.

    Args:
        out: Output folder or address; None for a temporary folder.
        model: Model that is evaluated.
        samples: Samples that it is evaluated on.
        terms: Norm, seed, batches, device and precision, which decide the bits of every distance.
        about: The other arguments of `prepare`.
    """
    if out is not None:
        return prepare(norm_folder(out, terms.norm), model, samples, terms, **about)
    place = tempfile.mkdtemp(prefix="advfrontier-")
    try:
        prepared = prepare(norm_folder(place, terms.norm), model, samples, terms, **about)
    except BaseException:
        shutil.rmtree(place, ignore_errors=True)  # nobody could resume it
        raise
    weakref.finalize(prepared.record.folder, shutil.rmtree, place, ignore_errors=True)
    prepared.record.temporary = True
    return prepared
