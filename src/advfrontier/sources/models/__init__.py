"""Models by name: `file.py:factory`, `zoo:`, `robustbench:`, `timm:`, `hf:`, `onnx:`, `export:`."""

from __future__ import annotations

from collections.abc import Callable

from torch import nn

from advfrontier import zoo
from advfrontier.errors import FrontierError
from advfrontier.sources.guards import explaining
from advfrontier.sources.models import export, libraries, onnx, python
from advfrontier.sources.spec import read_spec

# The options of each kind, and what loads it: this runs no code that comes with a model.
_OPTIONS: dict[str, tuple[str, ...]] = {
    "zoo": (),
    "robustbench": ("dir",),
    "timm": ("checkpoint", "classes"),
    "hf": (),
    "onnx": (),
    "export": (),
}
_LOADERS: dict[str, Callable[..., nn.Module]] = {
    "zoo": lambda spec, **_: zoo.load(spec.place),
    "robustbench": libraries.load_robustbench,
    "timm": libraries.load_timm,
    "hf": libraries.load_huggingface,
    "onnx": onnx.load,
    "export": export.load,
}


def runs_code(spec: str) -> bool:
    """Whether loading this model would run Python that it names: `file.py:factory` and `package.module:factory`.

    Everything else is data, read by this package or by an installed library with its guards on. A source whose kind is
    not known counts as one that runs code.
    """
    return spec.partition(":")[0] not in _OPTIONS


def load_model(spec: str, *, download: bool = False) -> nn.Module:
    """Load a model that takes NCHW images in [0, 1] and returns logits; normalisation is inside, mode is eval.

    Without `download`, only what is already on this machine is used.
    """
    if read := read_spec(spec, _OPTIONS):
        if not read.place:
            raise FrontierError(f"{spec!r} names no model: expected {read.kind}:NAME")
        with explaining(f"{spec}: cannot be loaded"):
            model = _LOADERS[read.kind](read, download=download)
    elif ":" in spec or spec.endswith(".py"):
        model = python.load(spec)
    else:
        raise FrontierError(
            f"{spec!r} is not a model: expected file.py:factory, package.module:factory or one of "
            f"{', '.join(f'{kind}:…' for kind in _OPTIONS)}"
        )
    return model.eval()
