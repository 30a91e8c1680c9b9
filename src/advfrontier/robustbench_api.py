"""RobustBench's `benchmark` over an ensemble of minimum-norm attacks: change one import line.

    from advfrontier.robustbench_api import benchmark

    clean, robust = benchmark(model, dataset="cifar10", threat_model="Linf", eps=8 / 255)

Nothing is downloaded: the data are those in `data_dir`.
"""

from __future__ import annotations

from collections.abc import Callable
from os import PathLike
from typing import NamedTuple

import torch
from torch import Tensor

from advfrontier.engine.data import Samples
from advfrontier.errors import FrontierError
from advfrontier.evaluation.evaluate import evaluate
from advfrontier.evaluation.radii import as_radius, reference_radii
from advfrontier.sources import load_data
from advfrontier.threat.names import norm_name

# RobustBench's names of data, and the sources that read them from a folder.
_SOURCES = {
    "cifar10": "cifar10:{folder}",
    "cifar100": "cifar100:{folder}",
    "imagenet": "imagefolder:{folder}",
}


class Benchmarked(NamedTuple):
    """Accuracies as shares, in RobustBench's order.

    Args:
        clean: Accuracy on unperturbed images.
        robust: Accuracy under perturbations of size eps.
    """

    clean: float
    robust: float


def benchmark(
    model: Callable[[Tensor], Tensor] | str,
    n_examples: int | None = None,
    dataset: str | Samples = "cifar10",
    threat_model: str = "Linf",
    *,
    eps: float | str | None = None,
    model_name: str | None = None,
    data_dir: str | PathLike[str] = "./data",
    batch_size: int = 32,
    device: str | torch.device | None = None,
    ensemble: str = "4k",
    out: str | PathLike[str] | None = None,
) -> Benchmarked:
    """Return clean and robust accuracy of a model, as RobustBench's function of this name.

    Args:
        model: From images in [0, 1] to logits, or the name of a source such as
            `robustbench:cifar10/Linf/NAME`.
        n_examples: Number of images, the first ones; by default all.
        dataset: `cifar10`, `cifar100`, `imagenet` (a folder per class), any source that `load_data`
            takes, such as `npz:FILE`, or samples.
        threat_model: Name of the norm: `L0`, `L1`, `L2` or `Linf`.
        eps: Radius; by default the one usually quoted for the data.
        model_name: Display name of the model.
        data_dir: Folder of the data.
        batch_size: Images per batch.
        device: Device of the model; by default the model's own.
        ensemble: Ensemble as `evaluate` takes it.
        out: Folder of the record, with which the curve can be drawn later.
    """
    norm = norm_name(threat_model)
    name = str(getattr(dataset, "value", dataset)).lower()
    samples = dataset
    if not isinstance(dataset, Samples):
        source = _SOURCES.get(name, str(dataset)).format(folder=data_dir)
        samples = load_data(source, samples=n_examples)
    elif n_examples is not None:
        raise FrontierError("n_examples was given beside samples: expected one of them")
    assert isinstance(samples, Samples)  # noqa: S101
    if eps is None:
        usual = reference_radii(samples.name, norm) or reference_radii(name, norm)
        if not usual:
            raise FrontierError(
                f"no radius is usual for {samples.name} in {norm}: expected one, as in eps=8/255"
            )
        eps = usual[-1][1]
    radius = as_radius(eps)
    evaluation = evaluate(
        model,
        samples,
        norm=norm,
        ensemble=ensemble,
        eps=radius,
        name=model_name,
        batch_size=batch_size,
        device=device,
        out=out,
    )
    return Benchmarked(evaluation.robust_accuracy(0), evaluation.robust_accuracy(radius))
