"""When a record is not gone on with: it is of another model, other samples, or other terms than those asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from advfrontier.errors import FrontierError
from advfrontier.evaluation.identity import answers_as, data_mark, solver_for, solver_words
from advfrontier.evaluation.units import few_rows, read_images

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray
    from torch import Tensor

    from advfrontier.engine import Oracle
    from advfrontier.evaluation.units import Clean
    from advfrontier.solvers import Solver
    from advfrontier.sources import Samples
    from advfrontier.store import Store


def refuse_remains(store: Store) -> None:
    """Files of work without the record that says what they are of could be of anything."""
    if remains := [name for under in ("units", "radii") for name in store.folder.names(under)]:
        raise FrontierError(
            f"{store.place} holds {len(remains)} files such as {remains[0]}, but no record.json that says which model "
            "and data they are of: choose another folder, or remove this one"
        )


def refuse_other(place: str, held: Mapping[str, Any], asked: Mapping[str, Any], solvers: Mapping[str, Solver]) -> None:
    """A record is of one model, norm, seed, layout and set of solvers; say which differs."""
    differences = [
        f"another {key}: {held.get(key)}, not {value}"
        for key, value in asked.items()
        if key != "model" and held.get(key) != value
    ]
    there, here = held["model"], asked["model"]
    if there["fingerprint"] != here["fingerprint"]:
        marks = there["fingerprint"][:8], here["fingerprint"][:8]
        differences.insert(0, f"another model: {there['name']} ({marks[0]}), not {here['name']} ({marks[1]})")
    for attack, words in held["solvers"].items():
        own = solver_for(attack, solvers)
        if own is not None and solver_words(own) != words:
            differences.append(f"another solver of {attack}: {words}, not {solver_words(own)}")
    if differences:
        raise FrontierError(
            f"{place} holds a record of {'; '.join(differences)}. Choose another folder, or remove this one"
        )


def refuse_other_samples(
    place: str, held: Mapping[str, Any], clean: Clean | None, ids: NDArray[np.uint64], labels: Tensor
) -> None:
    """The samples of a record must be the first of those asked for, with the same labels."""
    if clean is not None:
        n = len(clean.labels)
        same = n <= len(ids) and np.array_equal(clean.ids, ids[:n]) and torch.equal(clean.labels, labels[:n])
    else:
        n = held["data"]["samples"]
        same = n <= len(ids) and data_mark(ids[:n], labels[:n]) == held["data"]["fingerprint"]
    if not same:
        raise FrontierError(
            f"{place} holds a record of {n} other samples: expected the same ones, or more that begin with them "
            f"({len(ids)} were given); choose another folder, or remove this one"
        )


def refuse_other_answers(place: str, held: Mapping[str, Any], oracle: Oracle, samples: Samples, clean: Clean) -> None:
    """A model is recognised by its logits too: its numbers, if it has any, do not tell what it does with them."""
    rows = few_rows(len(clean.labels))
    images = read_images(samples, rows, clean).to(oracle.device, oracle.dtype)
    if not answers_as(oracle.logits(images), clean.passed.logits[rows], held["flags"]):
        raise FrontierError(
            f"{place} holds a record of another model, which answers differently. Choose another folder, or remove "
            "this one"
        )
