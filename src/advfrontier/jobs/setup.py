"""Set a record up for work, or open the one that is there if it is of the same model and samples.

It is tidied on the way: only files of the names that this program writes are ever removed.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import NamedTuple

import torch
from torch import Tensor

from advfrontier.command import current_command
from advfrontier.engine import CleanPass, Oracle, accuracy_flag, check_model, clean_pass
from advfrontier.engine.data import Samples
from advfrontier.engine.diagnose import diagnosed, has_surrogate
from advfrontier.engine.whole import WholeAttack
from advfrontier.errors import FrontierError, NoGradientError
from advfrontier.execution.tasks import threads
from advfrontier.flags import Flag, Kind
from advfrontier.jobs.driver import Model
from advfrontier.numerics import NUMERICS
from advfrontier.record import Header, HeaderChange, Record, Terms
from advfrontier.record.folder import check_empty
from advfrontier.record.header import DataIdentity, Gradients, ModelIdentity, RecordKind
from advfrontier.record.identity import data_digest, solvers_of, versions
from advfrontier.record.images import IMAGES, VerifiedImages, image_file
from advfrontier.record.images import store_images as store
from advfrontier.record.units import shards_of
from advfrontier.solvers import Solver
from advfrontier.threat.criteria import read_criterion

_SAME = 1e-3  # of the largest logit: what another machine may round differently
_RECOGNISED = 16  # samples on which a model is recognised
_ABANDONED = 3600  # seconds after which a file that was being written counts as left by a kill
_IMAGE_FILE = re.compile(rf"{IMAGES}/\d+\+\d+\.safetensors")
_NO_GRADIENTS = Flag(
    Kind.NO_GRADIENTS,
    "the model has no gradient with respect to its images: all queries went to runs without "
    "gradients, and distances may be far too large",
)
# Flags of a new record that make its evaluation spend more on searches without gradients.
_DOUBTED = {Kind.ZERO_GRADIENTS, Kind.BAD_GRADIENTS, Kind.MISLEADING_GRADIENTS}
_SURROGATE = Flag(
    Kind.NO_GRADIENTS,
    "the model has no gradient of its own with respect to its images: attacks used surrogate "
    "ones, in which rounding, thresholds and saturation count as slopes, and distances may be too "
    "large",
)


class Prepared(NamedTuple):
    """Record that is ready for work, and its verified samples in memory.

    Args:
        record: Record, with its clean pass.
        samples: Samples whose images were compared with the record's ids.
    """

    record: Record
    samples: Samples


def prepare(
    place: str,
    model: Model,
    samples: Samples,
    terms: Terms,
    *,
    kind: RecordKind,
    gradients: bool | None = True,
    store_images: bool = False,
    solvers: Mapping[str, Solver | WholeAttack] | None = None,
) -> Prepared:
    """Open the record in a folder, or begin one in a new or empty folder; its clean pass is done.

    A new record costs a few queries to try the model, and 2 per sample for the clean pass. When it
    is opened again, a forward pass on a few samples tells whether the model answers as it did. More
    samples of the same data extend it.

    Args:
        place: Folder of the record: a path or an address.
        model: Model that the record is of.
        samples: Samples that the record is of.
        terms: Norm, seed, batches, device and precision, which decide the bits of every distance.
        kind: Kind of the record.
        gradients: Whether any run needs gradients; None if they are used where the model has any.
        store_images: Whether the images are stored beside the record.
        solvers: Attack to solver, where it is not the attack's own.
    """
    record = Record.find(place)
    if record is None:
        check_empty(place)  # before anything is loaded
    images = VerifiedImages.of(samples, terms.shard)
    asked = _header(model, samples, images, terms, kind)
    if record is not None:
        _check_same(record, asked, samples, images, solvers)
        terms = record.header.terms  # with its own number of threads, because bits depend on it
    with threads(terms.threads), model.oracle(terms) as oracle:
        known = None
        if record is None:
            used, flags = try_model(oracle, images, samples.labels, gradients, terms.shard)
            begun = asked.model_copy(update={"gradients": used, "flags": flags})
            record = Record.begin(place, begun)
            if record is None:  # another process has begun it at this moment: open that one
                return prepare(
                    place,
                    model,
                    samples,
                    terms,
                    kind=kind,
                    gradients=gradients,
                    store_images=store_images,
                    solvers=solvers,
                )
        else:
            known = record.read_clean()
            if known is not None and not answers_alike(record, oracle, images, known):
                raise FrontierError(
                    f"{record.place} holds a record of another model, which answers differently. "
                    "Choose another folder, or remove this one"
                )
        if samples.space is not None:
            record.write_space(samples.space)
        oracle.surrogate = record.header.gradients == "surrogate"
        _complete(record, oracle, samples, images, known, store_images=store_images)
    if model.source is not None and record.header.model.source is None:
        # A record that was begun with an object can say where the model comes from, now it is
        # known.
        change = HeaderChange(
            model_name=model.name, model_source=model.source, data_name=samples.name
        )
        record.change(change, optional=True)
    return Prepared(record, replace(samples, read=images))


def try_model(
    oracle: Oracle,
    images: VerifiedImages,
    labels: Tensor,
    gradients: bool | None,  # noqa: FBT001
    batch_size: int,
) -> tuple[Gradients, tuple[Flag, ...]]:
    """Return which gradients will be used, and the flags of a model.

    Args:
        oracle: Model on its device; its passes are counted as checks.
        images: Images of all samples.
        labels: True classes of all samples, int64 (n,).
        gradients: Whether any run needs gradients; None if they are used where the model has any.
        batch_size: Samples per batch of the attacks.
    """
    few = few_rows(len(labels), diagnosed(batch_size))
    sample = images(few), labels[few]
    flags: list[Flag] = []
    failure = None
    try:
        flags = check_model(oracle, *sample, gradients=gradients is not False, space=images.space)
    except NoGradientError as error:
        failure = error
    if failure is None and all(flag.kind is not Kind.NO_GRADIENTS for flag in flags):
        if gradients is False:
            return "none", tuple(flags)
        doubted = not _DOUBTED.isdisjoint(flag.kind for flag in flags)
        return ("doubted" if doubted else "own"), tuple(flags)
    surrogate = has_surrogate(oracle, *sample)
    if surrogate or gradients is None:  # None: the ensemble can do without any
        used: Gradients = "surrogate" if surrogate else "none"
        flags = check_model(oracle, *sample, gradients=False, space=images.space)
        return used, (*flags, _SURROGATE if surrogate else _NO_GRADIENTS)
    if failure is not None:
        raise failure
    return "own", tuple(flags)


def _header(
    model: Model, samples: Samples, images: VerifiedImages, terms: Terms, kind: RecordKind
) -> Header:
    command = current_command()
    return Header(
        kind=kind,
        model=ModelIdentity(name=model.name, source=model.source, digest=model.digest),
        data=DataIdentity(
            name=samples.name,
            samples=len(images.ids),
            shape=images.shape,
            digest=data_digest(images.ids, samples.labels),
            class_names=tuple(samples.class_names or ()),
        ),
        terms=terms,
        gradients="own",  # until the model has been tried
        numerics=dict(NUMERICS),
        versions=versions(),
        commands=(command,) if command else (),
    )


def _check_same(
    record: Record,
    asked: Header,
    samples: Samples,
    images: VerifiedImages,
    solvers: Mapping[str, Solver | WholeAttack] | None,
) -> None:
    """Raise if the record is of another model, other terms or samples, or other solvers."""
    used = record.header.solvers
    if solvers is not None:
        used = solvers_of(used, solvers)
    asked = asked.model_copy(update={"solvers": used})
    if mismatch := record.header.mismatch(asked):
        raise FrontierError(f"{record.place} holds a record of {mismatch}")
    ids, count = images.ids, record.header.data.samples
    same = count <= len(ids)
    if same:
        same = data_digest(ids[:count], samples.labels[:count]) == record.header.data.digest
    if not same:
        raise FrontierError(
            f"{record.place} holds a record of {count} other samples: expected the same ones, or "
            f"more that begin with them ({len(ids)} were given); choose another folder, or remove "
            "this one"
        )


def answers_alike(
    record: Record, oracle: Oracle, images: Callable[[Tensor], Tensor], known: CleanPass
) -> bool:
    """Tell whether a model answers as it did in the clean pass, on a few samples.

    Args:
        record: Record, whose flags tell whether answers may vary.
        oracle: Model on its device.
        images: Returns the images of given rows, int64 (k,).
        known: Clean pass of the record.
    """
    rows = few_rows(len(known.labels))
    answers = oracle.logits(images(rows).to(oracle.device, oracle.dtype))
    expected = known.logits[rows]
    varying = {flag.kind for flag in record.header.flags} & {Kind.RANDOM, Kind.EOT, Kind.BATCH}
    if varying or answers.shape != expected.shape:
        return answers.shape == expected.shape
    atol = _SAME * float(expected.abs().max())
    return torch.allclose(answers.cpu().to(expected), expected, rtol=_SAME, atol=atol)


def _complete(
    record: Record,
    oracle: Oracle,
    samples: Samples,
    images: VerifiedImages,
    known: CleanPass | None,
    *,
    store_images: bool,
) -> None:
    """Make the clean pass of every shard that lacks it; store missing or damaged images."""
    terms, labels, goals = record.header.terms, samples.labels.long(), samples.goals
    norm = record.norm(oracle)
    criterion = read_criterion(terms.criterion)
    done = set() if known is None else set(shards_of(len(known.labels), terms.shard))
    parts = []
    for first, count in shards_of(len(labels), terms.shard):
        rows = torch.arange(first, first + count)
        if known is not None and (first, count) in done:
            parts.append(known.rows(rows))
        else:
            record.check_numerics()
            part = clean_pass(
                oracle,
                images(rows),
                labels[rows],
                norm,
                batch_size=terms.shard,
                gradients=record.header.gradients != "none",
                ids=images.ids[rows.numpy()],
                first=first,
                criterion=criterion,
                goals=None if goals is None else goals[rows],
            )
            parts.append(part)
        if store_images:
            store(record.folder, first, images(rows), record.limits)
    grown = known is not None and len(known.labels) < len(labels)
    if grown:  # try the model on some of all samples, as if all had been given at first
        few = few_rows(len(labels), diagnosed(terms.shard))
        own = record.header.gradients in {"own", "doubted"}
        flags = check_model(oracle, images(few), labels[few], gradients=own, space=record.space)
        record.change(HeaderChange(add_flags=tuple(flags)))
    counts = {"checks": oracle.counts.checks, "setup": oracle.counts.setup}
    record.change(HeaderChange(add_counts=counts), optional=True)
    if known is None or grown:
        clean = CleanPass.join(parts)
        record.write_clean(clean)
        flag = accuracy_flag(clean.logits.argmax(1) == clean.labels, clean.classes)
        record.change(HeaderChange(set_flags={Kind.CLEAN_ACCURACY: flag}))
    tidy(record)


def few_rows(samples: int, most: int = _RECOGNISED) -> Tensor:
    """Return rows from all over the data, on which a model is tried or recognised.

    Args:
        samples: Number of samples.
        most: Number of rows, at most.
    """
    return torch.linspace(0, samples - 1, min(most, samples)).long()


def tidy(record: Record) -> None:
    """Remove units that a longer one replaced, files of grown shards, and partial files.

    Args:
        record: Record to tidy.
    """
    files, layout = sorted(record.unit_files()), set(record.shards)
    longest = dict(files)  # of one listing: others may be writing to the record just now
    replaced = {}
    for unit, queries in files:
        if unit.shard not in layout:  # its passes were spent; nothing is known of a damaged one
            stored = record.read_unit(unit, queries, ())
            replaced[unit.file(queries)] = dict(stored.spent) if stored else {}
    if replaced:
        record.change(HeaderChange(replaced=replaced))
    for unit, queries in files:
        if unit.shard not in layout or queries < longest[unit]:
            record.remove_unit(unit, queries)
    wanted = {image_file(first, count) for first, count in layout}
    for name in record.folder.names(IMAGES):
        if name not in wanted and _IMAGE_FILE.fullmatch(name):
            record.folder.remove(name)
    for under in {"", *(name.rpartition("/")[0] for name in record.folder.names())}:
        record.folder.remove_abandoned(under, time.time() - _ABANDONED)
