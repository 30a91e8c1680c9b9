"""What every reader of a source needs: the source taken apart, optional libraries, and guards around them.

Nothing connects unless asked to, and of pickles only plain tensors are read. Libraries decide late, and differently in
every release, whether they fetch a file and how they read it. So both are refused in the one function that each of them
has to call: `socket.connect` and `torch.load`. Whatever a reader raises becomes a FrontierError.
"""

from __future__ import annotations

import math
import pickle
import socket
import sys
import threading
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
from torch import nn
from torch.library import Library

from advfrontier.errors import FrontierError

_BATCH = 3  # a size that nobody exports for
_LARGEST = 2**24  # numbers of an image: larger ones are not tried
_ON_TORCHVISION = ("onnx2torch", "robustbench", "timm", "torchvision", "transformers")
_declared: list[Library] = []  # operators live as long as this
_TURN = threading.RLock()  # the guards replace functions of the process: one at a time


@dataclass(frozen=True)
class Spec:
    """A source taken apart: `kind:place?option=value&option=value`. `text` is what the user typed."""

    text: str
    kind: str
    place: str
    options: Mapping[str, str]
    download: bool  # whether it may be fetched

    @property
    def hint(self) -> str:
        """What to do if something may be missing only because it was not fetched."""
        allow = "if it is not on this machine, allow the download with --download (download=True)"
        return "" if self.download else f"; {allow}"

    def option(self, name: str, *, choices: tuple[str, ...]) -> str:
        """An option that has a few possible values; empty if it is left out."""
        value = self.options.get(name, "")
        if value and value not in choices:
            raise self.error(f"{name}={value}: expected one of {', '.join(choices)}")
        return value

    def error(self, why: str) -> FrontierError:
        """To be raised where the source is not what it should be."""
        return FrontierError(f"{self.text}: {why}")


def read_spec(
    text: str, options: Mapping[str, tuple[str, ...]], *, download: bool = False
) -> Spec | None:
    """Take a source apart; None if its kind is not among those that `options` knows."""
    kind, _, rest = text.partition(":")
    if kind not in options:
        return None
    place, mark, query = rest.rpartition("?")
    if not mark or "=" not in query:  # a question mark in the name of a file
        place, query = rest, ""
    found: dict[str, str] = {}
    for part in filter(None, query.split("&")):
        key, equals, value = part.partition("=")
        if key not in options[kind] or not equals or not value:
            known = " or ".join(f"{name}=…" for name in options[kind]) or "none"
            raise FrontierError(f"{text}: {part!r} is not an option of {kind}: expected {known}")
        found[key] = value
    return Spec(text, kind, place, found, download)


def existing(path: str | Path, text: str, *, folder: bool = False) -> Path:
    """Return the path of a file, or of a folder, that must be there."""
    place = Path(path).expanduser()
    if not (place.is_dir() if folder else place.is_file()):
        found = "a folder" if place.is_dir() else "a file" if place.is_file() else "nothing"
        wanted = "a folder" if folder else "a file"
        raise FrontierError(f"{text}: found {found} at {place}: expected {wanted}; check the path")
    return place


def need(module: str, *, extra: str, source: str) -> Any:
    """Import an optional library, or say what to type to get it."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter(
                "ignore"
            )  # what they warn of while importing each other is not the user's doing
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


class NoConnectionError(OSError):
    """A library wanted to connect although no download was asked for."""


@contextmanager
def explaining(what: str, hint: str = "") -> Iterator[None]:
    """Turn whatever a reader raises into a FrontierError that says what is wrong, in whose words, and what to do."""
    try:
        yield
    except FrontierError:
        raise
    except Exception as error:
        words = next(iter(str(error).splitlines()), "")[:300]
        raise FrontierError(f"{what} ({type(error).__name__}: {words}){hint}") from error


@contextmanager
def connections(*, allowed: bool) -> Iterator[None]:
    """Refuse what this thread would fetch. Other threads may still connect, and files in caches may be read."""
    if allowed:
        yield
        return
    thread = threading.get_ident()

    def closed(original: Any) -> Any:
        def guarded(*args: Any, **kwargs: Any) -> Any:
            if threading.get_ident() == thread:
                raise NoConnectionError("no download was asked for")
            return original(*args, **kwargs)

        return guarded

    with _TURN, ExitStack() as stack:
        stack.enter_context(patch.object(socket.socket, "connect", closed(socket.socket.connect)))
        stack.enter_context(patch.object(socket, "getaddrinfo", closed(socket.getaddrinfo)))
        # Told that they are offline, these go to their caches at once instead of trying several times.
        for module in ("huggingface_hub.constants", "datasets.config"):
            if hasattr(sys.modules.get(module), "HF_HUB_OFFLINE"):
                stack.enter_context(patch.object(sys.modules[module], "HF_HUB_OFFLINE", new=True))
        yield


@contextmanager
def weights_only(source: str) -> Iterator[None]:
    """Let `torch.load` read tensors and plain containers only, whatever its caller asks for."""
    load = torch.load

    def safe_load(*args: Any, **kwargs: Any) -> Any:
        kwargs.pop("pickle_module", None)
        return load(*args, **{**kwargs, "weights_only": True})

    with (
        _TURN,
        patch.object(torch, "load", safe_load),
        patch.object(torch.serialization, "load", safe_load),
    ):
        try:
            yield
        except pickle.UnpicklingError as error:
            raise FrontierError(
                f"{source}: the checkpoint is not one of plain tensors, and reading anything else could run any code: "
                "refused; keep its state_dict alone, as safetensors or with torch.save(model.state_dict(), file)"
            ) from error


@contextmanager
def loading(source: str, what: str, hint: str, *, download: bool) -> Iterator[None]:
    """All guards around a library that loads a model; `what` and `hint` are for the error it may raise."""
    with explaining(f"{source}: {what}", hint), connections(allowed=download), weights_only(source):
        yield


def try_batches(source: str, model: nn.Module, shape: Sequence[int], option: str) -> None:
    """Refuse a graph that does not compute, or only with the batch size it was exported for.

    `shape` is what the file says of its input, 0 for a size that may vary; with `option` it would take any batch.
    """
    if len(shape) != 4 or not 0 < math.prod(shape[1:]) <= _LARGEST:
        return
    hint = f": expected any; export it with {option} for the first dimension"
    what = f"{source}: works only with batches of {shape[0] or 'one size'}, or not at all"
    with explaining(what, hint), torch.no_grad():
        logits = model.eval()(torch.zeros(_BATCH, *shape[1:]))
        if logits.ndim != 2 or len(logits) != _BATCH or not logits.is_floating_point():
            kind = f"{logits.dtype} of shape {tuple(logits.shape)}"
            raise FrontierError(
                f"{what}: {_BATCH} images give {kind}{hint}, and logits (n, classes)"
            )
