"""Images by name: `fashion-mnist`, `cifar10:`, `cifar100:`, `imagefolder:`, `npz:`, `hf:`."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from torch import Tensor

from advfrontier.engine.data import Samples
from advfrontier.errors import FrontierError
from advfrontier.sources.data import cifar, npz, pictures
from advfrontier.sources.guards import explaining
from advfrontier.sources.samples import Rows, check_unit, choose
from advfrontier.sources.spec import Spec, read_spec
from advfrontier.zoo import fashion

# The options of each kind, and what loads it.
_OPTIONS: dict[str, tuple[str, ...]] = {
    "fashion-mnist": (),
    "cifar10": ("split",),
    "cifar100": ("split",),
    "imagefolder": ("list", "preprocessing"),
    "npz": ("layout",),
    "hf": ("split", "image", "label", "config", "preprocessing"),
}
_LOADERS: dict[str, Callable[..., Samples]] = {
    "fashion-mnist": lambda spec, **_: _load_embedded(spec),
    "cifar10": cifar.load,
    "cifar100": cifar.load,
    "imagefolder": pictures.load_folder,
    "npz": npz.load,
    "hf": pictures.load_huggingface,
}


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
    with explaining(f"{spec}: cannot be read"):
        found = _LOADERS[read.kind](read, download=download)
    return choose(found, samples, seed)


def _load_embedded(spec: Spec) -> Samples:
    """The 1000 test images of Fashion-MNIST that ship with the package."""
    images = Rows(_embedded, partial(check_unit, name=spec.text))
    return Samples(spec.text, fashion.embedded()["labels"].long(), images, tuple(fashion.CLASS_NAMES))


def _embedded() -> Tensor:
    return fashion.embedded()["images"][:, None]
