"""Small ensembles and units of them, on a model with a few images."""

from __future__ import annotations

from functools import cache

import torch

from advfrontier.engine import Oracle, Shard, Unit, advance, clean_pass
from advfrontier.pool import Ensemble, make_ensemble
from advfrontier.threat.norms import make_norm
from support.models import samples, tanh_mlp

BLACK_BOX = {"L0": "sparse_min", "L1": "square_min", "L2": "square_min", "Linf": "square_min"}


def small_ensemble(norm: str) -> Ensemble:
    """Return 600 queries with every kind of step; `fmn` continues after a refinement and a fork."""
    search = BLACK_BOX[norm]
    steps = [
        {"run": "fmn", "queries": 60},
        {"run": "fmn:restart1", "queries": 60},
        {
            "fork": {
                "gained": [{"run": search, "queries": 80, "start": "best"}],
                "otherwise": [
                    {"run": "pdpgd", "queries": 40, "start": "beyond"},
                    {"run": "fmn", "queries": 40, "start": "best"},
                ],
            }
        },
        {"run": "pdpgd", "queries": 60},
        {"run": "fmn", "queries": 60, "start": "beyond", "reach": 2.0},
        {"run": search, "queries": 40, "start": "best"},
        {"run": "fmn", "queries": 160},
        {"run": "fmn:target1", "queries": 100},
        {"run": "fmn", "queries": 40, "start": "best"},
    ]
    return make_ensemble(name="small", norm=norm, steps=steps)


@cache
def problem(norm: str, dtype=torch.float32):
    """Return an oracle and a shard of eight correctly classified samples."""
    model = tanh_mlp(hidden=16, seed=3).to(dtype)
    images, labels = samples(model, 8, seed=3) if dtype == torch.float32 else _double(model)
    oracle = Oracle(model, dtype=dtype)
    measure = make_norm(norm, tuple(images.shape[1:]))
    with oracle:
        clean = clean_pass(oracle, images, labels, measure, batch_size=8)
        shard = Shard.of(oracle, images, clean, norm=measure, seed=42)
    return oracle, shard


def _double(model):
    images, _ = samples(model.float(), 8, seed=3)
    model.double()
    return images, model(images.double()).argmax(1)


def advanced(norm: str, *stops: int, ensemble: Ensemble | None = None) -> Unit:
    """Return a unit of the small ensemble, advanced to each number of queries in turn."""
    oracle, shard = problem(norm)
    unit = Unit.start(ensemble or small_ensemble(norm), shard)
    with oracle:
        for stop in stops:
            advance(oracle, unit, stop)
    return unit


def resumed(norm: str, unit: Unit, *stops: int, ensemble: Ensemble | None = None) -> Unit:
    """Return another unit that takes over what the first one stored, and is advanced further."""
    oracle, shard = problem(norm)
    other = Unit.start(ensemble or unit.ensemble, shard)
    other.restore(unit.tensors(), unit.queries, unit.ensemble.names)
    with oracle:
        for stop in stops:
            advance(oracle, other, stop)
    return other
