"""The embedded reference pool: distances of the zoo's models at the three tiers, which a newcomer is ranked against."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import lru_cache
from importlib.resources import files

import numpy as np

from advfrontier.errors import FrontierError
from advfrontier.evaluation.compare import family, reached
from advfrontier.evaluation.evaluation import Evaluation
from advfrontier.flags import Flag, Kind
from advfrontier.frontier.defence import ReferencePool
from advfrontier.pool import TIERS, tier_label
from advfrontier.record.tensors import unpack
from advfrontier.threat.names import NORMS, norm_name

REFERENCES = ("fashion-mnist",)
_ATTACKED_WITH = "paper"  # the kind of ensemble that the shipped distances were made with
_TIERS = ", ".join(map(tier_label, TIERS))


def reference_pool(norm: str, queries: int, *, name: str = REFERENCES[0]) -> ReferencePool:
    """The models of a shipped pool in one norm at one tier."""
    if name not in REFERENCES:
        raise FrontierError(f"no reference pool {name!r}: expected one of {', '.join(REFERENCES)}")
    if queries not in TIERS:
        raise FrontierError(
            f"the reference pool has no distances at {tier_label(queries)} queries: expected one of {_TIERS}; type "
            f"`advfrontier extend RECORD --tier {tier_label(TIERS[0])}`"
        )
    tables, words = _shipped(norm_name(norm))
    flags: dict[str, list[dict[str, str]]] = json.loads(words["flags"])
    return ReferencePool(
        norm=norm_name(norm),
        dataset=name,
        queries=queries,
        samples=tuple(json.loads(words["samples"])),
        distances={model: table[TIERS.index(queries)] for model, table in tables.items()},
        flags={model: tuple(Flag(Kind(why["kind"]), why["text"]) for why in told) for model, told in flags.items()},
    )


def common_pool(evaluations: Sequence[Evaluation], norm: str, *, name: str = REFERENCES[0]) -> ReferencePool:
    """A shipped pool at the largest of its tiers that all of these evaluations in a norm went through."""
    tiers = [tier for tier in TIERS if all(tier in evaluation.ensemble.tiers for evaluation in evaluations)]
    pool = reference_pool(norm, tiers[-1] if tiers else TIERS[-1], name=name)
    for evaluation in evaluations:
        if extra := len(set(evaluation.samples) - set(pool.samples)):
            raise FrontierError(
                f"the reference models were run on the first {len(pool.samples)} samples of {name}, and {extra} of the "
                f"{len(evaluation.samples)} of {evaluation.model} are others: evaluate it with --data {name} "
                f"--samples {len(pool.samples)}"
            )
    if not tiers:
        found = ", ".join(f"{evaluation.model} with {tier_label(reached(evaluation))}" for evaluation in evaluations)
        raise FrontierError(
            f"the reference models were run with {_TIERS} queries per sample, {found}: expected tiers in common; type "
            f"--tier {tier_label(TIERS[0])}"
        )
    return pool


def reference_pools(evaluations: Sequence[Evaluation], *, name: str) -> dict[str, ReferencePool]:
    """A shipped pool in every norm that the evaluations are in, or in all, each at the largest tier they share."""
    norms = {evaluation.norm for evaluation in evaluations} or NORMS
    return {norm: common_pool([one for one in evaluations if one.norm == norm], norm, name=name) for norm in norms}


def unlike(evaluation: Evaluation) -> list[str]:
    """A note where a model was attacked otherwise than the reference models."""
    note = (
        f"the reference models were attacked with {_ATTACKED_WITH} ensembles, {evaluation.model} with "
        f"{evaluation.ensemble.name}: the DOI is too low where that finds smaller distances, too high where it finds "
        f"larger ones; --ensemble {_ATTACKED_WITH}-4k in a new folder gives one that compares like with like"
    )
    return [] if family(evaluation) == _ATTACKED_WITH else [note]


def embedded_pool(evaluation: Evaluation) -> tuple[ReferencePool | None, str | None]:
    """The embedded pool at the evaluation's tier; or why it cannot stand in it, if that could be expected of it."""
    try:
        return common_pool([evaluation], evaluation.norm), None
    except FrontierError as error:
        near = set(evaluation.samples) & set(reference_pool(evaluation.norm, TIERS[0]).samples)
        return None, str(error) if near else None


@lru_cache(maxsize=4)
def _shipped(norm: str) -> tuple[dict[str, np.ndarray[tuple[int, int], np.dtype[np.float64]]], dict[str, str]]:
    content = files("advfrontier.zoo").joinpath("reference", f"{norm}.safetensors").read_bytes()
    tensors, words = unpack(content)
    return {model: tensor.numpy() for model, tensor in tensors.items()}, words
