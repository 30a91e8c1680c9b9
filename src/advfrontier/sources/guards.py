"""Guards around readers: no connection unless asked for, no pickle but plain tensors, no error but a FrontierError.

Libraries decide late, and differently in every release, whether they fetch a file and how they read it. So both are
refused in the one function that each of them has to call: `socket.connect` and `torch.load`.
"""

from __future__ import annotations

import math
import pickle
import socket
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

import torch
from torch import nn

from advfrontier.errors import FrontierError

_BATCH = 3  # a size that nobody exports for
_LARGEST = 2**24  # numbers of an image: larger ones are not tried
_TURN = threading.RLock()  # the guards replace functions of the process: one at a time


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


def download_hint(*, download: bool) -> str:
    """What to do if something may be missing only because it was not fetched."""
    return "" if download else "; if it is not on this machine, allow the download with --download (download=True)"


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

    with _TURN, patch.object(torch, "load", safe_load), patch.object(torch.serialization, "load", safe_load):
        try:
            yield
        except pickle.UnpicklingError as error:
            raise FrontierError(
                f"{source}: the checkpoint is not one of plain tensors, and reading anything else could run any code: "
                "refused; keep its state_dict alone, as safetensors or with torch.save(model.state_dict(), file)"
            ) from error


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
            raise FrontierError(f"{what}: {_BATCH} images give {kind}{hint}, and logits (n, classes)")
