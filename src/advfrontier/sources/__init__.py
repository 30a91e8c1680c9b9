"""Sources of models and images: `load_model`, `load_data`, `as_samples`.

A model is `file.py:factory`, `zoo:`, `robustbench:`, `timm:`, `hf:` or `onnx:`. Images are
`fashion-mnist`, `cifar10:`, `cifar100:`, `imagefolder:`, `folder:`, `npz:` or `hf:`. A file or a
folder typed alone is recognised. Nothing is downloaded unless asked.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

from torch import Tensor, nn

from advfrontier import zoo
from advfrontier.engine.data import Samples
from advfrontier.errors import FrontierError
from advfrontier.sources import cifar, libraries, npz, onnx, pictures, python
from advfrontier.sources.libraries import Normalised
from advfrontier.sources.paths import data_source, misplaced, model_source
from advfrontier.sources.reading import Spec, explaining, read_spec
from advfrontier.sources.samples import Rows, as_samples, check_unit, choose
from advfrontier.zoo import fashion

__all__ = ["Normalised", "Samples", "as_samples", "load_data", "load_model", "runs_code"]


def load_model(spec: str, *, download: bool = False) -> nn.Module:
    """Return a model in eval mode that takes NCHW images in [0, 1] and returns logits.

    Args:
        spec: Source, such as `zoo:F3`, `mine.py:factory` or `net.onnx`; docs/sources.md lists all.
        download: Fetch files that are missing; by default only those on this machine are read.
    """
    spec = model_source(spec)
    read = read_spec(spec, _MODEL_OPTIONS, download=download)
    if read is not None:
        if not read.place:
            raise FrontierError(f"{spec!r} names no model: expected {read.kind}:NAME")
        with explaining(f"{spec}: cannot be loaded"):
            model = _MODELS[read.kind][0](read)
    elif ":" in spec or spec.endswith(".py"):
        model = python.load(spec)
    else:
        kinds = ", ".join(f"{kind}:…" for kind in _MODELS)
        raise FrontierError(
            f"{spec!r} is not a model: expected file.py:factory, package.module:factory or one of "
            f"{kinds}{misplaced(spec, 'model', tuple(_MODELS))}"
        )
    return model.eval()


def runs_code(spec: str) -> bool:
    """Return whether loading a model would run Python that the source names.

    `file.py:factory` and `package.module:factory` do, and so does a source of an unknown kind.
    Everything else is data, read by this package or by an installed library with its guards on.

    Args:
        spec: Source, as `load_model` takes it.
    """
    return model_source(spec).partition(":")[0] not in _MODELS


def load_data(
    spec: str,
    *,
    samples: int | None = None,
    seed: int | None = None,
    download: bool = False,
    unit: bool = True,
) -> Samples:
    """Open a data set; images are read when they are asked for.

    Args:
        spec: Source, such as `fashion-mnist`, `npz:FILE` or `pngs/`; docs/sources.md lists all.
        samples: Number of samples; all by default.
        seed: Seed of a random choice of samples; by default the first ones are taken.
        download: Fetch files that are missing; by default only those on this machine are read.
        unit: Whether samples must be in [0, 1]; those of an `npz:` file for a domain need not be.
    """
    spec = data_source(spec)
    read = read_spec(spec, _DATA_OPTIONS, download=download)
    if read is None or bool(read.place) == (read.kind == "fashion-mnist"):
        raise FrontierError(
            f"{spec!r} is not a data set: expected fashion-mnist, cifar10:DIR, cifar100:DIR, "
            "imagefolder:DIR, folder:DIR?labels=FILE.csv, npz:FILE or hf:NAME"
            f"{misplaced(spec, 'data', tuple(_DATA))}"
        )
    with explaining(f"{spec}: cannot be read"):
        opened = _DATA[read.kind][0](replace(read, unit=unit))
    return choose(opened, samples, seed)


def _load_zoo(spec: Spec) -> nn.Module:
    return zoo.load(spec.place)


def _load_embedded(spec: Spec) -> Samples:
    images = Rows(_embedded_images, partial(check_unit, name=spec.text))
    labels = fashion.embedded()["labels"].long()
    return Samples(spec.text, labels, images, tuple(fashion.CLASS_NAMES))


def _embedded_images() -> Tensor:
    return fashion.embedded()["images"][:, None]


# The loader of each kind of source, and its options. A model's loader runs no code that comes
# with the model.
_MODELS: dict[str, tuple[Callable[[Spec], nn.Module], tuple[str, ...]]] = {
    "zoo": (_load_zoo, ()),
    "robustbench": (libraries.load_robustbench, ("dir",)),
    "timm": (libraries.load_timm, ("checkpoint", "classes")),
    "hf": (libraries.load_huggingface, ()),
    "onnx": (onnx.load, ()),
}
_DATA: dict[str, tuple[Callable[[Spec], Samples], tuple[str, ...]]] = {
    "fashion-mnist": (_load_embedded, ()),
    "cifar10": (cifar.load, ("split",)),
    "cifar100": (cifar.load, ("split",)),
    "imagefolder": (pictures.load_class_folders, ("list", "preprocessing")),
    "folder": (pictures.load_labelled_folder, ("labels", "file", "label", "preprocessing")),
    "npz": (npz.load, ("layout",)),
    "hf": (pictures.load_huggingface, ("split", "image", "label", "config", "preprocessing")),
}
_MODEL_OPTIONS = {kind: options for kind, (_, options) in _MODELS.items()}
_DATA_OPTIONS = {kind: options for kind, (_, options) in _DATA.items()}
