"""Any attack that is a callable `attack(model, images, labels)`, measured as the solvers of the pool are.

An attack that drops rows, or evaluates several points of a sample at once, is noticed and run again one sample at a
time. One that changes the order of rows but keeps their number cannot be noticed: run it with `alone=True`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial

import numpy as np
import torch
from torch import Tensor

from advfrontier.attacks.callable import Attack, Watched, watched_batches
from advfrontier.engine import Oracle, check_data, clean_pass
from advfrontier.errors import whole_number
from advfrontier.evaluation.trace import Traces, check_queries
from advfrontier.flags import Flag, Kind
from advfrontier.pool import CHECKPOINT, MAX_QUERIES, Run
from advfrontier.progress import progress_bar
from advfrontier.threat.norms import make_norm


@dataclass(frozen=True, eq=False)
class Found:
    """What a callable found: a trajectory that joins others, and the points it belongs to."""

    traces: Traces
    points: Tensor  # like the images; the image itself where there is no adversarial


def run_callable(
    attack: Attack,
    model: Callable[[Tensor], Tensor],
    images: Tensor,
    labels: Tensor,
    *,
    name: str,
    norm: str,
    queries: int = MAX_QUERIES,
    batch_size: int = 100,
    alone: bool = False,
    seed: int = 42,
    device: str | torch.device | None = None,
    progress: bool | None = None,
) -> Found:
    """Run `attack(model, images, labels)` against a model, and record the best distance per sample every 10 queries.

    The attack sees the samples that are classified correctly, `batch_size` at a time, each time with PyTorch's random
    state set to `seed`. `name` is what its run is called.
    """
    Run.parse(name)
    queries, seed = check_queries(queries), whole_number(seed, "seed")
    batch_size = whole_number(batch_size, "batch_size", least=1)
    images, labels = check_data(images, labels).detach().cpu().float(), labels.detach().cpu()
    threat = make_norm(norm, tuple(images.shape[1:]))
    distances = np.zeros((queries // CHECKPOINT, len(images)))
    doubts = Counter[tuple[Kind, str]]()
    with torch.enable_grad(), Oracle(model, device=device) as oracle:
        points = images.to(oracle.dtype, copy=True)  # as they were judged
        clean = clean_pass(oracle, images, labels, threat, batch_size=batch_size, gradients=False)
        watched = partial(Watched, oracle, images, clean, norm=threat, queries=queries)
        attacked = clean.correct.nonzero().squeeze(1)
        with progress_bar(progress, len(attacked), unit="samples", label=name) as bar:
            for rows, watch in watched_batches(
                attack, attacked, 1 if alone else batch_size, watched, seed
            ):
                distances[:, rows.numpy()] = watch.trajectory()
                points[rows] = watch.points.cpu()
                doubts += watch.doubts()
                bar.advance(len(rows))
    checkpoints = np.arange(CHECKPOINT, queries + 1, CHECKPOINT)
    flags = tuple(Flag(kind, f"{name}: {count} {what}") for (kind, what), count in doubts.items())
    traces = Traces(
        (name,),
        checkpoints,
        distances[None],
        clean.names,
        threat.name,
        flags=flags,
        counts=asdict(oracle.counts),
    )
    return Found(traces, points)
