"""Identity of records: digests of model and samples, numerics, terms, and solvers.

These decide the bits of a unit. Every file of a record carries a mark made of them, so that a file
of another record is not taken for the record's own.
"""

from __future__ import annotations

import json
import platform
import re
from collections.abc import Iterable, Mapping
from dataclasses import fields, is_dataclass
from hashlib import blake2b

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from advfrontier.engine.whole import WholeAttack
from advfrontier.errors import FrontierError
from advfrontier.flags import Flag, Kind
from advfrontier.pool import Run
from advfrontier.pool.runs import is_external
from advfrontier.record.header import Header, Parameters, Versions, installed, solver_repr
from advfrontier.solvers import PUBLISHED, Solver, solver_of
from advfrontier.threat.names import UNIT_BOX

_ROUNDING = ("torch", "numpy")  # other versions of these round differently, and no more
_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")


def digest(*parts: bytes) -> str:
    """Return a digest short enough to be shown and long enough to be unique.

    Args:
        parts: Bytes to hash, one part after the other.
    """
    whole = blake2b(digest_size=16)
    for part in parts:
        whole.update(part)
    return whole.hexdigest()


def data_digest(ids: NDArray[np.uint64], labels: Tensor) -> str:
    """Return the digest of samples in their order.

    Args:
        ids: (n,), hashes of the images' contents.
        labels: (n,), their classes.
    """
    return digest(ids.tobytes(), labels.long().numpy().tobytes())


def mark(header: Header, *more: str) -> str:
    """Return what a file of a record carries: a digest of all that decides its content.

    Args:
        header: The record's header.
        more: Whatever else decides the content of the file, as text.
    """
    deciding = header.terms.model_dump()
    if deciding["domain"] == UNIT_BOX:  # which decides nothing that the samples do not
        del deciding["domain"]
    terms = json.dumps(deciding, sort_keys=True)
    numerics = json.dumps(header.numerics, sort_keys=True)
    parts = (header.model.digest, numerics, header.gradients, terms, *more)
    return digest("\0".join(parts).encode(errors="surrogatepass"))


def solver_parameters(solver: Solver | WholeAttack) -> Parameters:
    """Return a solver's class and hyper-parameters as text that is equal in every process.

    Args:
        solver: Solver or external attack.
    """
    if isinstance(solver, WholeAttack):
        return solver.identity()
    kind = type(solver)
    if is_dataclass(solver):
        parameters = {"class": kind.__qualname__}
        for each in fields(solver):
            if each.repr:
                parameters[each.name] = _without_addresses(getattr(solver, each.name))
        return parameters
    if kind.__repr__ is object.__repr__:
        return {"class": f"{kind.__module__}.{kind.__qualname__}"}
    return {"class": kind.__qualname__, "repr": _without_addresses(solver)}


def _without_addresses(value: object) -> str:
    """Return the repr without ` at 0x…`: functions lie elsewhere in every process."""
    return _ADDRESS.sub("", repr(value))


def solvers_of(
    attacks: Iterable[str], instead: Mapping[str, Solver | WholeAttack]
) -> dict[str, Parameters]:
    """Return the solver of each attack as parameters; attacks not installed here are left out.

    External runs are left out too, unless they are in `instead`: nothing is imported because a
    record names it.

    Args:
        attacks: Attacks, such as `apgd_min-ce`.
        instead: Attack to the solver that is used in place of its own.
    """
    solvers = {}
    for attack in attacks:
        if attack not in instead and is_external(attack):
            continue
        try:
            solver = instead[attack] if attack in instead else solver_of(Run.parse(attack))
        except (KeyError, FrontierError):
            continue
        solvers[attack] = solver_parameters(solver)
    return solvers


def settings(solvers: Mapping[str, Parameters]) -> dict[str, str]:
    """Return attack to the parameters, such as `alpha=1.0`, that its own solver has otherwise.

    Attacks with their own solver are left out. A parameter that is not named is one that a solver
    was given later; its default is what the solver did before.

    Args:
        solvers: Attack to its solver's class and parameters.
    """
    own = solvers_of(solvers, {})
    different = {}
    for attack, parameters in solvers.items():
        if is_external(attack):  # its name says its parameters
            continue
        usual = own.get(attack, {})
        if parameters.get("class") != usual.get("class"):
            different[attack] = solver_repr(parameters)
            continue
        changed = []
        for name, value in parameters.items():
            if usual.get(name) != value:
                changed.append(f"{name}={value}")
        if changed:
            different[attack] = ", ".join(changed)
    return different


def stand_ins(solvers: Mapping[str, Parameters]) -> Mapping[str, Solver]:
    """Return the published solvers that a record was made with, by attack.

    Args:
        solvers: Attack to its solver's class and parameters.
    """
    published = {}
    for attack, solver in PUBLISHED.items():
        if attack in solvers:
            published[attack] = solvers[attack] == solver_parameters(solver)
    if published and all(published.values()):
        return PUBLISHED  # also of attacks that come later
    return {attack: PUBLISHED[attack] for attack, same in published.items() if same}


def versions() -> Versions:
    """Return the versions of this process."""
    packages = {package: installed(package) for package in ("advfrontier", *_ROUNDING)}
    return Versions(python=platform.python_version(), platform=platform.machine(), **packages)


def several_versions(header: Header) -> tuple[Flag, ...]:
    """Return a flag if several versions of a library that rounds have worked on a record.

    Args:
        header: Header with the versions that have worked on the record.
    """
    flags = []
    for package in _ROUNDING:
        used = dict.fromkeys(getattr(each, package) for each in (header.versions, *header.later))
        if len(used) > 1:
            text = (
                f"computed with several versions of {package} ({', '.join(used)}), which may "
                "round differently"
            )
            flags.append(Flag(Kind.VERSIONS, text))
    return tuple(flags)


def rounds_alike(one: Versions, two: Versions) -> bool:
    """Tell whether the libraries that round have the same versions.

    Args:
        one: Versions of one computation.
        two: Versions of another.
    """
    return one.round_alike(two)
