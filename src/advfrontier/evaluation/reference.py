"""The embedded reference pool: distances of the zoo's models at the three tiers, which a newcomer is ranked against."""

from __future__ import annotations

import json
from functools import lru_cache
from importlib.resources import files
from typing import TYPE_CHECKING

import numpy as np

from advfrontier.errors import FrontierError
from advfrontier.frontier.defence import ReferencePool
from advfrontier.pool import TIERS
from advfrontier.store import pack, unpack
from advfrontier.threat.names import norm_name

if TYPE_CHECKING:
    from collections.abc import Sequence

    from advfrontier.evaluation.record import Evaluation

REFERENCES = ("fashion-mnist",)


def reference_pool(norm: str, queries: int, *, name: str = "fashion-mnist") -> ReferencePool:
    """The models of a shipped pool in one norm at one tier."""
    if name not in REFERENCES:
        raise FrontierError(f"no reference pool {name!r}: expected one of {', '.join(REFERENCES)}")
    if queries not in TIERS:
        raise FrontierError(
            f"the reference pool has no distances at {queries} queries: expected one of {', '.join(map(str, TIERS))}; "
            "type `advfrontier extend RECORD --tier 4k`, 8k or 12k"
        )
    tables, words = _shipped(norm_name(norm))
    flags: dict[str, list[str]] = json.loads(words["flags"])
    return ReferencePool(
        norm=norm_name(norm),
        dataset=name,
        queries=queries,
        samples=tuple(json.loads(words["samples"])),
        distances={model: table[TIERS.index(queries)] for model, table in tables.items()},
        flags={model: tuple(why) for model, why in flags.items() if why},
    )


def pack_reference(evaluations: Sequence[Evaluation]) -> bytes:
    """The file of one norm out of evaluations with the largest tier, all on the same samples."""
    import torch  # noqa: PLC0415

    samples = evaluations[0].samples
    for evaluation in evaluations:
        if evaluation.samples != samples or evaluation.ensemble.total != TIERS[-1]:
            raise FrontierError(
                f"{evaluation.model} has {len(evaluation.samples)} samples and {evaluation.ensemble.total} queries: "
                f"expected the {len(samples)} samples of {evaluations[0].model} and {TIERS[-1]} queries"
            )
    tables = {e.model: torch.from_numpy(np.stack([e.distances_at(tier) for tier in TIERS])) for e in evaluations}
    words = {"samples": json.dumps(samples), "flags": json.dumps({e.model: trust_flags(e) for e in evaluations})}
    return pack(tables, words)


def trust_flags(evaluation: Evaluation) -> list[str]:
    """The flags that make a model's distances doubtful, so that it is ranked in brackets."""
    from advfrontier.evaluation.ranking import doubts  # noqa: PLC0415  # ranking builds on pools

    return list(doubts(evaluation))


@lru_cache(maxsize=4)
def _shipped(norm: str) -> tuple[dict[str, np.ndarray[tuple[int, int], np.dtype[np.float64]]], dict[str, str]]:
    content = files("advfrontier.zoo").joinpath("reference", f"{norm}.safetensors").read_bytes()
    tensors, words = unpack(content)
    return {model: tensor.numpy() for model, tensor in tensors.items()}, words
