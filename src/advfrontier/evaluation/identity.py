"""What tells records apart: the model, the samples, the solvers, and the code that computed them.

A unit's bits are decided by all of these and by the terms of the record. Every unit is marked with a hash of them, so
that a file which came into a record from elsewhere is not taken for one of its own.
"""

from __future__ import annotations

import json
import platform
from functools import lru_cache
from hashlib import blake2b
from importlib.metadata import PackageNotFoundError, version
from importlib.resources import files
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from advfrontier.engine.checks import BATCH_DEPENDENT, RANDOM
from advfrontier.errors import FrontierError
from advfrontier.pool import Run
from advfrontier.solvers import solver_of

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    import numpy as np
    from numpy.typing import NDArray

    from advfrontier.solvers import Solver

_DECIDING = ("solvers", "engine", "threat")  # the folders of the package whose code decides the bits of a distance
_ROUNDING = ("torch", "numpy")  # other versions of these round differently, and no more
SEVERAL = "computed with several versions of"  # how the flag begins that tells of them
_SAME = 1e-3  # of the largest logit: what another machine may round differently


def fingerprint(model: Callable[[Tensor], Tensor]) -> str:
    """A hash that tells models apart: of an nn.Module its structure and all its numbers, else its name.

    What a model computes with them cannot be seen: see `answers_as`.
    """
    if not isinstance(model, nn.Module):
        return digest(
            f"{getattr(model, '__module__', '')}.{getattr(model, '__qualname__', type(model).__name__)}".encode()
        )
    found = blake2b(str(model).encode(), digest_size=16)
    for name, tensor in model.state_dict().items():
        found.update(f"{name} {tuple(tensor.shape)}".encode())
        found.update(tensor.detach().cpu().float().contiguous().numpy().tobytes())
    return found.hexdigest()


def answers_as(answers: Tensor, known: Tensor, flags: Collection[str]) -> bool:
    """Whether these logits are the known ones, up to rounding. A model whose logits vary cannot be told by them."""
    if answers.shape != known.shape:
        return False
    if RANDOM.text in flags or BATCH_DEPENDENT.text in flags:
        return True
    scale = float(known.abs().max())
    return torch.allclose(answers.cpu().to(known), known, rtol=_SAME, atol=_SAME * scale)


def data_mark(ids: NDArray[np.uint64], labels: Tensor) -> str:
    """A hash of samples: their contents and labels, in order."""
    return digest(ids.tobytes() + labels.long().numpy().tobytes())


def solver_words(solver: Solver) -> str:
    """A solver with its parameters, in words that are the same in every process."""
    kind = type(solver)
    return f"{kind.__module__}.{kind.__qualname__}" if kind.__repr__ is object.__repr__ else repr(solver)


def solver_for(attack: str, instead: Mapping[str, Solver]) -> Solver | None:
    """The solver of an attack: the one given in its place, or its own; None if no such attack is installed here."""
    try:
        return instead.get(attack) or solver_of(Run.parse(attack))
    except KeyError:
        return None


@lru_cache(maxsize=1)
def sources() -> str:
    """A hash of the installed code that decides the bits of a distance."""
    found = blake2b(digest_size=16)
    for folder in _DECIDING:
        place = files("advfrontier").joinpath(folder)
        for file in sorted((file for file in place.iterdir() if file.name.endswith(".py")), key=lambda f: f.name):
            found.update(f"{folder}/{file.name}".encode())
            found.update(file.read_bytes())
    return found.hexdigest()


def versions() -> dict[str, str]:
    """What to install to see the same numbers."""
    found = {"python": platform.python_version(), "platform": platform.machine()}
    for package in ("advfrontier", *_ROUNDING):
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = "unknown"
    return found


def go_on(place: str, held: Mapping[str, Any]) -> dict[str, Any]:
    """The record as it is to be when more is computed now. Refused where that would mix the figures of two codes."""
    here = versions()
    if held["sources"] != sources():
        there = held["versions"]["advfrontier"]
        raise FrontierError(
            f"{place} was computed by other code: advfrontier {there}, whose {', '.join(_DECIDING)} have the mark "
            f"{held['sources'][:8]}; here is {here['advfrontier']} with {sources()[:8]}. Distances of both do not "
            "belong in one record: choose a new folder, or install that version to go on; what the record holds can "
            "still be read"
        )
    newer = {package: here[package] for package in _ROUNDING}
    known = [held["versions"], *held["also"]]
    if any(all(before[package] == number for package, number in newer.items()) for before in known):
        return dict(held)
    return {**held, "also": [*held["also"], newer]}


def mixed(held: Mapping[str, Any]) -> list[str]:
    """A flag for a record that several versions of what rounds have worked on."""
    return [
        f"{SEVERAL} {package} ({', '.join(found)}), which may round differently"
        for package in _ROUNDING
        if len(found := list(dict.fromkeys(each[package] for each in (held["versions"], *held["also"])))) > 1
    ]


def basis(held: Mapping[str, Any], terms: Mapping[str, Any]) -> str:
    """A hash of what decides the bits of all units of a record, besides their solver and samples."""
    return digest(json.dumps([held["model"]["fingerprint"], held["sources"], dict(terms)], sort_keys=True).encode())


def unit_mark(of: str, solver: str, ids: NDArray[np.uint64], labels: Tensor) -> str:
    """A hash of all that decides a unit's bits: the record's basis, its solver, and the samples of its shard."""
    return digest(f"{of} {solver} {data_mark(ids, labels)}".encode())


def digest(content: bytes) -> str:
    """Short enough to be shown, long enough to be unique."""
    return blake2b(content, digest_size=16).hexdigest()
