"""Images by name: `fashion-mnist`, `cifar10:`, `cifar100:`, `imagefolder:`, `npz:`, `hf:`."""

from __future__ import annotations

from functools import partial
from importlib import import_module

from torch import Tensor

from advfrontier.engine.data import Samples
from advfrontier.errors import FrontierError
from advfrontier.sources.guards import explaining
from advfrontier.sources.pixels import check_unit
from advfrontier.sources.samples import Rows, choose
from advfrontier.sources.spec import read_spec
from advfrontier.zoo import fashion

# The options of each kind; its module has the function `load`.
_OPTIONS: dict[str, tuple[str, ...]] = {
    "fashion-mnist": (),
    "cifar10": ("split",),
    "cifar100": ("split",),
    "imagefolder": ("list", "preprocessing"),
    "npz": ("layout",),
    "hf": ("split", "image", "label", "config", "preprocessing"),
}
_MODULES = {"cifar10": "cifar", "cifar100": "cifar", "hf": "huggingface"}


def load_data(spec: str, *, samples: int | None = None, seed: int | None = None, download: bool = False) -> Samples:
    """Open a data set: its first `samples` rows or, with a seed, as many drawn without replacement.

    Images are read when they are asked for. Without `download`, only what is already on this machine is used.
    """
    read = read_spec(spec, _OPTIONS)
    if read is None or not (read.place or read.kind == "fashion-mnist"):
        raise FrontierError(
            f"{spec!r} is not a data set: expected fashion-mnist, cifar10:DIR, cifar100:DIR, imagefolder:DIR, "
            "npz:FILE or hf:NAME"
        )
    if read.kind == "fashion-mnist":
        images = Rows(_embedded, partial(check_unit, name=spec))
        found = Samples(spec, fashion.embedded()["labels"].long(), images, tuple(fashion.CLASS_NAMES))
        return choose(found, samples, seed)
    module = import_module(f"advfrontier.sources.data.{_MODULES.get(read.kind, read.kind)}")
    with explaining(f"{spec}: cannot be read"):
        found = module.load(read, download=download)
    return choose(found, samples, seed)


def _embedded() -> Tensor:
    """The 1000 test images of Fashion-MNIST that ship with the package."""
    return fashion.embedded()["images"][:, None]
