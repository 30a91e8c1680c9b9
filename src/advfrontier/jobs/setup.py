"""Set a record up for work, or open the one that is there if it is of the same model, samples and terms.

It is tidied on the way: only files of the names that this program writes are ever removed.
"""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from advfrontier.engine import CleanPass, Oracle, accuracy_flag, check_data, check_model, clean_pass
from advfrontier.engine.data import Samples
from advfrontier.engine.gradients import has_surrogate
from advfrontier.errors import FrontierError, NoGradientError
from advfrontier.execution.tasks import threads
from advfrontier.flags import Flag, Kind
from advfrontier.jobs.driver import Model
from advfrontier.record import Header, Record, Terms
from advfrontier.record.folder import check_empty
from advfrontier.record.header import DataIdentity, ModelIdentity, RecordKind
from advfrontier.record.identity import code_digest, data_digest, solvers_of, versions
from advfrontier.record.images import IMAGES, VerifiedImages, image_file, keep_images
from advfrontier.record.images import store_images as store
from advfrontier.record.units import shards_of
from advfrontier.solvers import Solver
from advfrontier.threat.norms import get_norm
from advfrontier.threat.random import sample_ids

_SAME = 1e-3  # of the largest logit: what another machine may round differently
_CHECKED = 16  # samples on which the model is tried before any are attacked
_ABANDONED = 3600  # seconds after which a file that was being written is taken for what a kill left
_IMAGE_FILE = re.compile(rf"{IMAGES}/\d+\+\d+\.safetensors")
_NO_GRADIENTS = Flag(
    Kind.NO_GRADIENTS,
    "the model has no gradient with respect to its images: all queries went to runs without gradients, and distances "
    "may be far too large",
)
_SURROGATE = Flag(
    Kind.NO_GRADIENTS,
    "the model has no gradient of its own with respect to its images: attacks used surrogate ones, in which rounding, "
    "thresholds and saturation count as slopes, and distances may be too large",
)


def prepare(
    place: str,
    model: Model,
    samples: Samples,
    terms: Terms,
    *,
    kind: RecordKind,
    gradients: bool | None = True,
    store_images: bool = False,
    solvers: Mapping[str, Solver] | None = None,
) -> Record:
    """A record whose clean pass is done, so that work can begin, in a folder that holds it already, is empty or new.

    A new record costs a few queries to try the model, and 2 per sample for the clean pass. When it is opened again, a
    forward pass on a few samples tells whether the model answers as it did. More samples of the same data extend it.
    `gradients` says whether any run will need them; None if they are used where the model has any. `solvers` are used
    instead of their attacks' own.
    """
    record = Record.find(place)
    if record is None:
        check_empty(place)  # before anything is loaded
    ids = _identify(samples, terms.shard)
    asked = _header(model, samples, ids, terms, kind)
    if record is not None:
        _check_same(record, asked, samples, ids, solvers)
        terms = record.header.terms  # with its own number of threads, because bits depend on it
    images = VerifiedImages(samples.read, ids, terms.shard, samples.name)
    with threads(terms.threads), model.oracle(terms) as oracle:
        known = None
        if record is None:
            found = _try_model(oracle, images, samples.labels, gradients)
            if (
                Record.find(place) is not None
            ):  # another process has begun it at this moment: go on with that one
                return prepare(
                    place, model, samples, terms, kind=kind, gradients=gradients, store_images=store_images,
                    solvers=solvers,
                )  # fmt: skip
            record = Record.begin(place, asked.model_copy(update=found))
        elif (known := record.read_clean()) is not None and not answers_alike(
            record, oracle, images, known
        ):
            raise FrontierError(
                f"{record.place} holds a record of another model, which answers differently. Choose another folder, or "
                "remove this one"
            )
        oracle.surrogate = record.header.gradients == "surrogate"
        _complete(record, oracle, samples.labels.long(), images, known, store_images=store_images)
    if asked.model.source is not None and record.header.model.source is None:
        # A record that was begun with an object can say where the model comes from, now that it is known.
        data = record.header.data.model_copy(update={"name": asked.data.name})
        record.change(lambda _: {"model": asked.model, "data": data})
    return record


def _try_model(
    oracle: Oracle,
    images: VerifiedImages,
    labels: Tensor,
    gradients: bool | None,  # noqa: FBT001
) -> dict[str, Any]:
    """What a new record says of a model: its flags, and which gradients will be used."""
    few = few_rows(len(labels))
    sample = images(few), labels[few]
    flags, failure = [], None
    try:
        flags = check_model(oracle, *sample, gradients=gradients is not False)
    except NoGradientError as error:
        failure = error
    used = "own" if gradients is not False else "none"
    if failure is not None or any(flag.kind is Kind.NO_GRADIENTS for flag in flags):
        surrogate = has_surrogate(oracle, *sample)
        if surrogate or gradients is None:  # a race can do without any
            used, flag = ("surrogate", _SURROGATE) if surrogate else ("none", _NO_GRADIENTS)
            flags = [*check_model(oracle, *sample, gradients=False), flag]
        elif failure is not None:
            raise failure
    return {"flags": tuple(flags), "gradients": used}


def _try_again(record: Record, oracle: Oracle, images: VerifiedImages, labels: Tensor) -> None:
    """Try the model on some of all samples where there are more than before: a record tells what it would at once."""
    few, told = few_rows(len(labels)), {flag.kind for flag in record.header.flags}
    found = check_model(
        oracle, images(few), labels[few], gradients=record.header.gradients == "own"
    )
    record.change(
        lambda header: {
            "flags": (*header.flags, *(flag for flag in found if flag.kind not in told))
        }
    )


def _identify(samples: Samples, shard: int) -> NDArray[np.uint64]:
    """Content ids, shard by shard, so that the images never need to be in memory together; checked on the way."""
    found = []
    for first, count in shards_of(len(samples), shard):
        rows = torch.arange(first, first + count)
        images = check_data(samples.read(rows), samples.labels[rows])
        found.append(sample_ids(images.float().numpy()))
        keep_images(found[-1], images)
    if not found:
        raise FrontierError(f"{samples.name} holds no samples: expected at least one")
    return np.concatenate(found)


def _header(
    model: Model, samples: Samples, ids: NDArray[np.uint64], terms: Terms, kind: RecordKind
) -> Header:
    header = Header(
        kind=kind,
        model=ModelIdentity(name=model.name, source=model.source, digest=model.digest),
        data=DataIdentity(
            name=samples.name,
            samples=len(ids),
            digest=data_digest(ids, samples.labels),
            class_names=tuple(samples.class_names or ()),
        ),
        terms=terms,
        gradients="own",  # until the model has been tried
        code=code_digest(),
        versions=versions(),
    )
    return header.model_copy(update={"commands": header.with_command()})


def _check_same(
    record: Record,
    asked: Header,
    samples: Samples,
    ids: NDArray[np.uint64],
    solvers: Mapping[str, Solver] | None,
) -> None:
    """Refuse to go on with a record of another model, other terms or samples, or other solvers where any will run."""
    words = record.header.solvers if solvers is None else solvers_of(record.header.solvers, solvers)
    asked = asked.model_copy(update={"solvers": words})
    if mismatch := record.header.mismatch(asked):
        raise FrontierError(f"{record.place} holds a record of {mismatch}")
    n = record.header.data.samples
    if n > len(ids) or data_digest(ids[:n], samples.labels[:n]) != record.header.data.digest:
        raise FrontierError(
            f"{record.place} holds a record of {n} other samples: expected the same ones, or more that begin with them "
            f"({len(ids)} were given); choose another folder, or remove this one"
        )


def answers_alike(record: Record, oracle: Oracle, images: VerifiedImages, known: CleanPass) -> bool:
    """A model is recognised by its logits too: its numbers, if it has any, do not tell what it does with them."""
    rows = few_rows(len(known.labels))
    answers, expected = (
        oracle.logits(images(rows).to(oracle.device, oracle.dtype)),
        known.logits[rows],
    )
    varying = {flag.kind for flag in record.header.flags} & {Kind.RANDOM, Kind.EOT, Kind.BATCH}
    if varying or answers.shape != expected.shape:
        return answers.shape == expected.shape
    atol = _SAME * float(expected.abs().max())
    return torch.allclose(answers.cpu().to(expected), expected, rtol=_SAME, atol=atol)


def _complete(
    record: Record, oracle: Oracle, labels: Tensor, images: VerifiedImages, known: CleanPass | None, *,
    store_images: bool,
) -> None:  # fmt: skip
    """Take the clean pass of every shard that lacks it, and store images that are missing or damaged."""
    terms = record.header.terms
    done = set() if known is None else set(shards_of(len(known.labels), terms.shard))
    parts = []
    for first, count in shards_of(len(labels), terms.shard):
        rows = torch.arange(first, first + count)
        if known is not None and (first, count) in done:
            parts.append(known.rows(rows))
        else:
            record.check_code()
            parts.append(clean_pass(
                oracle, images(rows), labels[rows], get_norm(terms.norm), batch_size=terms.shard,
                gradients=record.header.gradients != "none", ids=images.ids[rows.numpy()], first=first,
            ))  # fmt: skip
        if store_images:
            store(record.folder, first, images(rows))
    grown = known is not None and len(known.labels) < len(labels)
    if grown:
        _try_again(record, oracle, images, labels)
    record.add_counts({"checks": oracle.counts.checks, "setup": oracle.counts.setup})
    if known is None or grown:
        clean = CleanPass.join(parts)
        record.write_clean(clean)
        record.replace_flag(Kind.CLEAN_ACCURACY, accuracy_flag(clean.correct, clean.classes))
    tidy(record)


def few_rows(samples: int) -> Tensor:
    """Rows on which the model is tried, and recognised later."""
    return torch.linspace(0, samples - 1, min(_CHECKED, samples)).long()


def tidy(record: Record) -> None:
    """Remove units that a longer one has replaced, files of shards that have grown, and what kills have left."""
    files, layout = sorted(record.unit_files()), set(record.shards)
    longest = dict(files)  # of one listing: others may be writing to the record just now
    grown = [(unit, queries) for unit, queries in files if unit.shard not in layout]
    if (
        grown
    ):  # their passes were spent: write that down before they go; nothing is known of a damaged one
        found = {unit.file(queries): record.read_unit(unit, queries, ()) for unit, queries in grown}
        spent = {name: dict(stored.spent) if stored else {} for name, stored in found.items()}
        record.change(lambda header: {"replaced": header.replaced | spent})
    for unit, queries in files:
        if unit.shard not in layout or queries < longest[unit]:
            record.folder.remove(unit.file(queries))
    wanted = {image_file(first, count) for first, count in layout}
    for name in record.folder.names(IMAGES):
        if name not in wanted and _IMAGE_FILE.fullmatch(name):
            record.folder.remove(name)
    for under in {"", *(name.rpartition("/")[0] for name in record.folder.names())}:
        record.folder.remove_abandoned(under, time.time() - _ABANDONED)
