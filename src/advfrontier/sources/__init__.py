"""Where models and images come from: `load_model`, `load_data`, `as_samples`. Nothing is downloaded unless asked.

Models are `file.py:factory`, `zoo:`, `robustbench:`, `timm:`, `hf:`, `onnx:` and `export:`; images are `fashion-mnist`,
`cifar10:`, `cifar100:`, `imagefolder:`, `npz:` and `hf:`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from torch import Tensor, nn

from advfrontier import zoo
from advfrontier.engine.data import Samples
from advfrontier.errors import FrontierError
from advfrontier.sources import cifar, export, libraries, npz, pictures, python
from advfrontier.sources.libraries import Normalised
from advfrontier.sources.reading import Spec, explaining, read_spec
from advfrontier.sources.samples import Rows, as_samples, check_unit, choose
from advfrontier.zoo import fashion

__all__ = ["Normalised", "Samples", "as_samples", "load_data", "load_model", "runs_code"]


def load_model(spec: str, *, download: bool = False) -> nn.Module:
    """Load a model that takes NCHW images in [0, 1] and returns logits; normalisation is inside, mode is eval.

    Without `download`, only what is already on this machine is used.
    """
    if read := read_spec(
        spec, {kind: options for kind, (_, options) in _MODELS.items()}, download=download
    ):
        if not read.place:
            raise FrontierError(f"{spec!r} names no model: expected {read.kind}:NAME")
        with explaining(f"{spec}: cannot be loaded"):
            model = _MODELS[read.kind][0](read)
    elif ":" in spec or spec.endswith(".py"):
        model = python.load(spec)
    else:
        raise FrontierError(
            f"{spec!r} is not a model: expected file.py:factory, package.module:factory or one of "
            f"{', '.join(f'{kind}:…' for kind in _MODELS)}"
        )
    return model.eval()


def runs_code(spec: str) -> bool:
    """Whether loading this model would run Python that it names: `file.py:factory` and `package.module:factory`.

    Everything else is data, read by this package or by an installed library with its guards on. A source whose kind is
    not known counts as one that runs code.
    """
    return spec.partition(":")[0] not in _MODELS


def load_data(
    spec: str, *, samples: int | None = None, seed: int | None = None, download: bool = False
) -> Samples:
    """Open a data set: its first `samples` rows or, with a seed, as many drawn without replacement.

    Images are read when they are asked for. Without `download`, only what is already on this machine is used.
    """
    read = read_spec(
        spec, {kind: options for kind, (_, options) in _DATA.items()}, download=download
    )
    if read is None or bool(read.place) == (read.kind == "fashion-mnist"):
        raise FrontierError(
            f"{spec!r} is not a data set: expected fashion-mnist, cifar10:DIR, cifar100:DIR, imagefolder:DIR, "
            "npz:FILE or hf:NAME"
        )
    with explaining(f"{spec}: cannot be read"):
        found = _DATA[read.kind][0](read)
    return choose(found, samples, seed)


def _load_embedded(spec: Spec) -> Samples:
    images = Rows(_embedded, partial(check_unit, name=spec.text))
    return Samples(
        spec.text, fashion.embedded()["labels"].long(), images, tuple(fashion.CLASS_NAMES)
    )


def _embedded() -> Tensor:
    return fashion.embedded()["images"][:, None]


# What loads a kind of source, and the options it has. A model's loader runs no code that comes with the model.
_MODELS: dict[str, tuple[Callable[[Spec], nn.Module], tuple[str, ...]]] = {
    "zoo": (lambda spec: zoo.load(spec.place), ()),
    "robustbench": (libraries.load_robustbench, ("dir",)),
    "timm": (libraries.load_timm, ("checkpoint", "classes")),
    "hf": (libraries.load_huggingface, ()),
    "onnx": (libraries.load_onnx, ()),
    "export": (export.load, ()),
}
_DATA: dict[str, tuple[Callable[[Spec], Samples], tuple[str, ...]]] = {
    "fashion-mnist": (_load_embedded, ()),
    "cifar10": (cifar.load, ("split",)),
    "cifar100": (cifar.load, ("split",)),
    "imagefolder": (pictures.load_folder, ("list", "preprocessing")),
    "npz": (npz.load, ("layout",)),
    "hf": (pictures.load_huggingface, ("split", "image", "label", "config", "preprocessing")),
}
