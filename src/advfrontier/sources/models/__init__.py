"""Models by name: `file.py:factory`, `zoo:`, `robustbench:`, `timm:`, `hf:`, `onnx:`, `export:`."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from torch import nn

from advfrontier import zoo
from advfrontier.errors import FrontierError
from advfrontier.sources.guards import explaining
from advfrontier.sources.models import python
from advfrontier.sources.spec import read_spec

# The options of each kind; its module has the function `load`, which runs no code that comes with a model.
_OPTIONS: dict[str, tuple[str, ...]] = {
    "zoo": (),
    "robustbench": ("dir",),
    "timm": ("checkpoint", "classes"),
    "hf": (),
    "onnx": (),
    "export": (),
}


def runs_code(spec: str) -> bool:
    """Whether loading this model would run Python that it names: `file.py:factory` and `package.module:factory`.

    Everything else is data, read by this package or by an installed library with its guards on. A source whose kind is
    not known counts as one that runs code.
    """
    return spec.partition(":")[0] not in _OPTIONS


def _module(kind: str) -> Any:
    return import_module(f"advfrontier.sources.models.{'huggingface' if kind == 'hf' else kind}")


def load_model(spec: str, *, download: bool = False) -> nn.Module:
    """Load a model that takes NCHW images in [0, 1] and returns logits; normalisation is inside, mode is eval.

    Without `download`, only what is already on this machine is used.
    """
    if read := read_spec(spec, _OPTIONS):
        if not read.place:
            raise FrontierError(f"{spec!r} names no model: expected {read.kind}:NAME")
        with explaining(f"{spec}: cannot be loaded"):
            model = zoo.load(read.place) if read.kind == "zoo" else _module(read.kind).load(read, download=download)
    elif ":" in spec or spec.endswith(".py"):
        model = python.load(spec)
    else:
        raise FrontierError(
            f"{spec!r} is not a model: expected file.py:factory, package.module:factory or one of "
            f"{', '.join(f'{kind}:…' for kind in _OPTIONS)}"
        )
    return model.eval()
