"""Evaluate a model with an ensemble: the smallest perturbation of every sample that any of its runs found."""

from __future__ import annotations

import shutil
import tempfile
import weakref
from typing import TYPE_CHECKING, Any, cast

import torch

from advfrontier.evaluation.record import EVALUATION, Evaluation, bring
from advfrontier.evaluation.session import Workers, needs_gradients, open_session
from advfrontier.evaluation.units import Terms
from advfrontier.pool import TARGETS, find_ensemble
from advfrontier.sources import as_samples, load_data
from advfrontier.threat.names import norm_name

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from os import PathLike

    from torch import Tensor

    from advfrontier.pool import Ensemble
    from advfrontier.sources import Samples

__all__ = ["EVALUATION", "Evaluation", "evaluate"]


def evaluate(
    model: Callable[[Tensor], Tensor] | str,
    images: Tensor | Samples | Iterable[Any] | str,
    labels: Tensor | None = None,
    *,
    norm: str,
    ensemble: Ensemble | str | int = "4k",
    seed: int = 42,
    out: str | PathLike[str] | None = None,
    name: str | None = None,
    batch_size: int = 100,
    device: str = "cpu",
    dtype: str = "float32",
    threads: int | None = None,
    workers: int = 0,
    ray: str | None = None,
    keep_state: bool = True,
    progress: bool = False,
    command: str = "",
) -> Evaluation:
    """Find the smallest perturbation of every sample that an ensemble of attacks can.

    `model` maps images in [0, 1] to logits, or names a source (`zoo:F3`, `file.py:factory`). `images` are a tensor
    with `labels`, a DataLoader, or the name of a data source (`fashion-mnist`, `npz:FILE`). `ensemble` is a tier (`4k`,
    `8k`, `12k`), any number of queries, an `Ensemble` or the path of its file. With `out` the record is written there
    unit by unit: killed at any moment, the same call continues.
    """
    first = find_ensemble(ensemble, norm_name(norm), TARGETS + 1)  # a mistake here should not cost a clean pass
    samples = _samples(images, labels)
    place = str(out) if out is not None else tempfile.mkdtemp(prefix="advfrontier-")
    try:
        terms = Terms(norm_name(norm), seed, batch_size, device, dtype, threads or torch.get_num_threads())
        session = open_session(
            place,
            kind=EVALUATION,
            model=model,
            model_name=name,
            samples=samples,
            terms=terms,
            keep_points=True,
            keep_state=keep_state,
            gradients=needs_gradients(first.runs, terms.norm),
            command=command,
        )
        wanted = find_ensemble(ensemble, terms.norm, session.classes)
        bring(session, wanted, Workers(workers, ray), progress=progress, command=command)
        evaluation = Evaluation(session.store, session)
    except BaseException:
        if out is None:  # nobody could go on with it
            shutil.rmtree(place, ignore_errors=True)
        raise
    if out is None:
        weakref.finalize(evaluation, shutil.rmtree, place, ignore_errors=True)
    return evaluation


def _samples(images: Tensor | Samples | Iterable[Any] | str, labels: Tensor | None) -> Samples:
    if isinstance(images, str):
        return load_data(images)
    if hasattr(images, "read") and hasattr(images, "labels"):
        return cast("Samples", images)
    return as_samples(cast("Tensor | Iterable[Any]", images), labels)
