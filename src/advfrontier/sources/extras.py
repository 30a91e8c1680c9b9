"""Libraries that only some sources need, imported when one of those is used."""

from __future__ import annotations

import warnings
from importlib import import_module
from typing import Any

from torch.library import Library

from advfrontier.errors import FrontierError

_ON_TORCHVISION = ("onnx2torch", "robustbench", "timm", "torchvision", "transformers")
_declared: list[Library] = []  # operators live as long as this


def need(module: str, *, extra: str, source: str) -> Any:
    """Import an optional library, or say what to type to get it."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # what they warn of while importing each other is not the user's doing
            if module.partition(".")[0] in _ON_TORCHVISION:
                fit_torchvision()
            return import_module(module)
    except ModuleNotFoundError as error:
        raise FrontierError(
            f"{source}: needs the package {error.name}, which is not installed; pip install 'advfrontier[{extra}]'"
        ) from error
    except Exception as error:
        raise FrontierError(
            f"{source}: {module} is installed but cannot be imported ({type(error).__name__}: {error}); "
            f"its version may not fit: pip install --upgrade 'advfrontier[{extra}]'"
        ) from error


def fit_torchvision() -> None:
    """Make torchvision importable beside a build of torch that its compiled operators do not fit.

    Its wheels are compiled for one build of torch: beside another (CUDA wheels beside a CPU build, say) the operators
    do not load, and the import fails where it decorates two of them. Declared, they let it pass; no model needs them.
    """
    try:
        import_module("torchvision")
    except ModuleNotFoundError:
        return
    except RuntimeError as error:
        if "torchvision::" not in str(error) or _declared:
            raise
        _declared.append(Library("torchvision", "FRAGMENT"))  # type: ignore[no-untyped-call]
        for operator in ("nms", "qnms"):
            schema = f"{operator}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"
            _declared[0].define(schema)  # type: ignore[no-untyped-call]
