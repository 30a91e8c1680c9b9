"""What tells records apart: three digests, of the model, of the samples, and of the code that computes distances.

A unit's bits are decided by these, its solver and the terms of the record. Every file of a record carries a mark
made of them, so that one which came into a record from elsewhere is not taken for its own.
"""

from __future__ import annotations

import ast
import json
import platform
import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from hashlib import blake2b
from importlib.metadata import PackageNotFoundError, version
from importlib.resources import files

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from advfrontier.flags import Flag, Kind
from advfrontier.pool import RACE, Race, Run
from advfrontier.record.header import Header, Versions
from advfrontier.solvers import PUBLISHED, Solver, solver_of

_DECIDING = (
    "threat",
    "pool",
    "solvers",
    "engine",
)  # the folders of the package whose code decides a distance
_ROUNDING = ("torch", "numpy")  # other versions of these round differently, and no more


def digest(*parts: bytes) -> str:
    """Short enough to be shown, long enough to be unique."""
    found = blake2b(digest_size=16)
    for part in parts:
        found.update(part)
    return found.hexdigest()


def data_digest(ids: NDArray[np.uint64], labels: Tensor) -> str:
    """Of samples: their contents and labels, in order."""
    return digest(ids.tobytes(), labels.long().numpy().tobytes())


@lru_cache(maxsize=1)
def code_digest() -> str:
    """Of the installed code that decides the bits of a distance."""
    parts: list[bytes] = []
    for folder in _DECIDING:
        place = files("advfrontier").joinpath(folder)
        for file in sorted(
            (file for file in place.iterdir() if file.name.endswith(".py")), key=lambda f: f.name
        ):
            parts += [f"{folder}/{file.name}".encode(), file.read_bytes()]
    return digest(*parts)


def mark(header: Header, *more: str) -> str:
    """What a file of a record carries: a digest of all that decides its content, `more` of its own included."""
    terms = json.dumps(header.terms.model_dump(), sort_keys=True)
    return digest(
        "\0".join((header.model.digest, header.code, header.gradients, terms, *more)).encode()
    )


def solver_words(solver: Solver) -> str:
    """A solver with its parameters, in words that are the same in every process."""
    kind = type(solver)
    if kind.__repr__ is object.__repr__:
        return f"{kind.__module__}.{kind.__qualname__}"
    return re.sub(
        r" at 0x[0-9a-fA-F]+", "", repr(solver)
    )  # where a parameter is a function: it lies elsewhere there


def policy_words(race: Race) -> str:
    """What decides the choices of a race, whatever its budget."""
    return digest(repr((race.order, sorted(race.hopes.items()), race.polish)).encode())


def solvers_of(attacks: Iterable[str], instead: Mapping[str, Solver]) -> dict[str, str]:
    """Attack → its solver in words: the one given in its place, or its own; none that is not installed here."""
    found = {}
    for attack in attacks:
        if attack == RACE:
            continue
        try:
            found[attack] = solver_words(instead.get(attack) or solver_of(Run.parse(attack)))
        except KeyError:
            continue
    return found


def settings(solvers: Mapping[str, str]) -> dict[str, str]:
    """Attack → the parameters, such as `alpha=1.0`, that are not those of its own solver; none where all are."""
    own = solvers_of(solvers, {})
    found = {
        attack: _difference(words, own.get(attack, ""))
        for attack, words in solvers.items()
        if attack != RACE
    }
    return {attack: text for attack, text in found.items() if text}


def stand_ins(solvers: Mapping[str, str]) -> Mapping[str, Solver]:
    """What stands in for attacks' own solvers in a record: it tells the published ones by their words."""
    same = {
        attack: solvers[attack] == solver_words(PUBLISHED[attack])
        for attack in PUBLISHED
        if attack in solvers
    }
    if same and all(same.values()):
        return PUBLISHED  # also of attacks that come later
    return {attack: PUBLISHED[attack] for attack in same if same[attack]}


def versions() -> Versions:
    """Of this process."""
    return Versions(
        python=platform.python_version(),
        platform=platform.machine(),
        **{package: _version(package) for package in ("advfrontier", *_ROUNDING)},
    )


def several_versions(header: Header) -> tuple[Flag, ...]:
    """A flag for a record that several versions of what rounds have worked on."""
    flags = []
    for package in _ROUNDING:
        found = dict.fromkeys(getattr(each, package) for each in (header.versions, *header.later))
        if len(found) > 1:
            text = f"computed with several versions of {package} ({', '.join(found)}), which may round differently"
            flags.append(Flag(Kind.VERSIONS, text))
    return tuple(flags)


def rounds_alike(one: Versions, two: Versions) -> bool:
    """Whether the libraries that round have the same versions."""
    return all(getattr(one, package) == getattr(two, package) for package in _ROUNDING)


def _difference(words: str, own: str) -> str:
    """The parameters that words name otherwise; all of the words where they are of another kind of solver.

    A parameter that is not named came after the words, and its own value is what was done before.
    """
    one, other = _parameters(words), _parameters(own)
    if one is None or other is None or one[0] != other[0]:
        return "" if words == own else words
    return ", ".join(
        f"{name}={value}" for name, value in one[1].items() if other[1].get(name) != value
    )


def _parameters(words: str) -> tuple[str, dict[str, str]] | None:
    """The name and the parameters in `Fmn(alpha=1.0, …)`. Nothing of it is evaluated."""
    try:
        call = ast.parse(words, mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    if not isinstance(call, ast.Call) or call.args:
        return None
    return ast.unparse(call.func), {
        str(each.arg): ast.unparse(each.value) for each in call.keywords
    }


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "unknown"
