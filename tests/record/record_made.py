"""Records made by hand, without a model: the tests of the room need nothing that computes."""

from __future__ import annotations

import torch

from advfrontier.engine import CleanPass
from advfrontier.numerics import NUMERICS
from advfrontier.pool import Ensemble
from advfrontier.record import Header, HeaderChange, Record, StoredUnit, Terms
from advfrontier.record.header import DataIdentity, ModelIdentity
from advfrontier.record.identity import data_digest, versions
from advfrontier.record.images import store_images
from advfrontier.record.units import ENSEMBLE
from advfrontier.threat.random import sample_ids

CLASSES = 10
SHAPE = (1, 3, 3)
SMALL = Ensemble.of("small", "L2", {"fmn": 40, "ddn": 20})
LARGER = Ensemble.of("larger", "L2", {"fmn": 40, "ddn": 20, "alma": 20})
SOLVERS = {
    "fmn": {"class": "FMN", "alpha": "None"},
    "ddn": {"class": "DDN"},
    "alma": {"class": "ALMA"},
}


def images_of(samples):
    generator = torch.Generator().manual_seed(7)
    levels = torch.randint(0, 256, (samples, *SHAPE), generator=generator)
    return levels.float() / 255


def clean_of(samples, *, wrong=(1,)):
    """Return a clean pass in which these samples are misclassified."""
    generator = torch.Generator().manual_seed(3)
    labels = torch.randint(0, CLASSES, (samples,), generator=generator)
    logits = torch.rand((samples, CLASSES), generator=generator)
    correct = torch.ones(samples, dtype=torch.bool)
    correct[[row for row in wrong if row < samples]] = False
    rows = torch.arange(samples)
    logits[rows[correct], labels[correct]] = 2.0
    others = logits.clone()
    others[rows, labels] = -torch.inf
    return CleanPass(
        labels=labels,
        ids=sample_ids(images_of(samples).numpy()),
        logits=logits,
        correct=correct,
        targets=others.topk(9, dim=1).indices,
        boundary=torch.rand(samples, generator=generator) + 0.1,
    )


def header_of(clean, *, kind="evaluation", **fields):
    whole = {
        "kind": kind,
        "model": ModelIdentity(name="net", source=None, digest="0" * 32),
        "data": DataIdentity(
            name="made",
            samples=len(clean.labels),
            shape=SHAPE,
            digest=data_digest(clean.ids, clean.labels),
        ),
        "terms": Terms(norm="L2", shard=4),
        "gradients": "own",
        "numerics": dict(NUMERICS),
        "versions": versions(),
    }
    return Header(**whole | fields)


def unit_of(rows, queries, names, *, state=True, points=True):
    """Return a unit in which the last row is unbroken."""
    generator = torch.Generator().manual_seed(queries)
    steps = torch.rand((queries // 10, rows), generator=generator, dtype=torch.float64)
    trajectory = torch.cummin(steps + 0.5, 0).values
    trajectory[:, -1] = torch.inf
    broken = trajectory[-1] < torch.inf
    nobody = torch.full((rows,), -1, dtype=torch.int16)
    first = torch.where(broken, 0, nobody).to(torch.int16)
    found = torch.full((len(names), rows), torch.inf, dtype=torch.float64)
    found[0] = trajectory[-1]
    counts = torch.zeros((len(names), rows), dtype=torch.int32)
    features = torch.Size(SHAPE).numel()
    return StoredUnit(
        queries=queries,
        names=tuple(names),
        spent={"checks": 1, "attack": queries * rows, "verification": rows},
        seconds=1.25,
        trajectory=trajectory,
        classes=torch.where(broken, 3, -1),
        origin=first,
        winner=first.clone(),
        found=found,
        zero_gradients=counts,
        bad_gradients=counts.clone(),
        rejected=counts.clone(),
        unspent=torch.zeros(rows, dtype=torch.int32),
        best_point=torch.rand((rows, features), generator=generator) if points else None,
        state={"fmn.point": torch.rand((rows, 5), generator=generator)} if state else {},
    )


def made_record(place, *, samples=6, kind="evaluation", ensemble=SMALL):
    """Return a finished record of two shards: an evaluation, or a trace of fmn and ddn."""
    clean = clean_of(samples)
    record = Record.begin(place, header_of(clean, kind=kind))
    record.write_clean(clean)
    if kind == "trace":
        wanted = {"fmn": 40, "ddn": 40}
        record.change(HeaderChange(solvers=SOLVERS, runs=wanted))
    else:
        wanted = {ENSEMBLE: ensemble.total}
        record.change(HeaderChange(solvers=SOLVERS, ensemble=ensemble))
    for unit, rows in record.layout(wanted):
        names = ensemble.names if kind == "evaluation" else (unit.name,)
        stored = unit_of(len(rows), wanted[unit.name], names, state=kind == "evaluation")
        record.write_unit(unit, stored)
    for first, count in record.shards:
        store_images(record.folder, first, images_of(samples)[first : first + count])
    if kind == "evaluation":
        record.change(HeaderChange(finished=ensemble))
    return record
