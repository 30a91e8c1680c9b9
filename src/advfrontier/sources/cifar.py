"""`cifar10:DIR` and `cifar100:DIR`: the batches as their authors publish them, read without running pickle's code.

The files are pickles of dictionaries of texts, numbers and one NumPy array. The reader below knows the few operations
that such a file needs. It looks up no name and calls nothing: what else a file asks for is refused.
"""

from __future__ import annotations

import hashlib
import logging
import pickletools
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from advfrontier.engine.data import Samples
from advfrontier.errors import FrontierError
from advfrontier.sources.reading import Spec, existing, explaining
from advfrontier.sources.samples import Rows, as_labels, check_unit

_log = logging.getLogger(__name__)

_FOLDERS = {"cifar10": "cifar-10-batches-py", "cifar100": "cifar-100-python"}
_FILES: dict[str, dict[str, tuple[str, ...]]] = {
    "cifar10": {"test": ("test_batch",), "train": tuple(f"data_batch_{i}" for i in range(1, 6))},
    "cifar100": {"test": ("test",), "train": ("train",)},
}
# Where the labels are, how many classes there are, and where their names are.
_LABELS = {
    "cifar10": ("labels", 10, "batches.meta", "label_names"),
    "cifar100": ("fine_labels", 100, "meta", "fine_label_names"),
}
# Images in a published file, and its MD5.
_PUBLISHED = {
    "test_batch": (10_000, "40351d587109b95175f43aff81a1287e"),
    "data_batch_1": (10_000, "c99cafc152244af753f735de768cd75f"),
    "data_batch_2": (10_000, "d4bba439e000b95fd0a9bffe97cbabec"),
    "data_batch_3": (10_000, "54ebc095f3ab1f0389bbae665268c751"),
    "data_batch_4": (10_000, "634d18415352ddfa80567beed471001a"),
    "data_batch_5": (10_000, "482c414d41f54cd18b22e5b47cb7c3cb"),
    "test": (10_000, "f0ef6b0ae62326f3e7ffdfab6717acfc"),
    "train": (50_000, "16019d7e3df5f24257cddd939b257f8d"),
}


def load(spec: Spec) -> Samples:
    """Read the batches of one split. CIFAR is not fetched: its site says how to cite it."""
    folder = existing(spec.place, spec.text, folder=True)
    folder = inside if (inside := folder / _FOLDERS[spec.kind]).is_dir() else folder
    split = spec.option("split", choices=("test", "train")) or "test"
    files = tuple(
        existing(folder / name, spec.text).absolute() for name in _FILES[spec.kind][split]
    )
    batches = [read_batch(file) for file in files]
    with explaining(f"{spec.text}: not CIFAR batches", ": get the published files"):
        parts = [_pixels(batch, file) for batch, file in zip(batches, files, strict=True)]
    for file, part in zip(files, parts, strict=True):
        _compare(file, len(part))
    key, classes, meta, names_key = _LABELS[spec.kind]
    labels = [label for batch in batches for label in _list(spec, batch.get(key), int)]
    if not all(0 <= label < classes for label in labels):
        raise spec.error(f"its labels are not all in 0 to {classes - 1}: get the published files")
    names = read_batch(folder / meta).get(names_key) if (folder / meta).is_file() else None
    read = Rows(partial(_read_pixels, files), partial(check_unit, name=spec.text))
    vars(read)["array"] = torch.cat(parts)
    numbers = as_labels(torch.tensor(labels, dtype=torch.int64), len(read.array), spec.text)
    return Samples(spec.text, numbers, read, tuple(_list(spec, names, str)) if names else None)


def _list(spec: Spec, found: Any, kind: type) -> list[Any]:
    if not isinstance(found, list) or not all(type(entry) is kind for entry in found):
        raise spec.error("its labels or their names are no list: expected the published files")
    return found


def _compare(path: Path, images: int) -> None:
    """Say so if a file has as many images as a published one but is another: these files have no checksum inside."""
    count, md5 = _PUBLISHED[path.name]
    if images == count and hashlib.md5(path.read_bytes(), usedforsecurity=False).hexdigest() != md5:
        _log.warning(
            "%s is not the published file: its images may be others; its MD5 should be %s",
            path,
            md5,
        )


def _read_pixels(files: tuple[Path, ...]) -> Tensor:
    return torch.cat([_pixels(read_batch(file), file) for file in files])


def _pixels(batch: dict[str, Any], path: Path) -> Tensor:
    match batch.get("data"):
        # As NumPy writes its arrays: version, shape, type, whether in Fortran's order, content.
        case _Array(state=(_, (int() as count, 3072), _Name("u1"), False, str() as data)) if (
            len(data) == 3072 * count
        ):
            pixels = np.frombuffer(bytearray(data, "latin1"), np.uint8)
            return torch.from_numpy(pixels.reshape(count, 3, 32, 32))
    raise FrontierError(f"{path}: has no data of n x 3072 bytes: expected a published CIFAR batch")


def read_batch(path: Path) -> dict[str, Any]:
    """Read a batch file. Texts of old and new pickles, and bytes but those of the array, become str."""
    with explaining(f"{path}: not a CIFAR batch", ": get the published files"):
        found = _read(path.read_bytes())
        if not isinstance(found, dict):
            raise FrontierError(
                f"{path}: holds a {type(found).__name__}: expected a dictionary, as published"
            )
        return found


@dataclass(frozen=True)
class _Name:
    """A Python name that a file asks for, which is not looked up."""

    text: str


class _Array:
    """An array of single bytes, each a character."""

    state: tuple[Any, ...] = ()


_MARK = object()  # on the stack: the parts of a tuple, list or dictionary begin here
_NEW: dict[str, Callable[[], Any]] = {
    "EMPTY_DICT": dict, "EMPTY_LIST": list, "EMPTY_TUPLE": tuple, "NONE": lambda: None, "NEWTRUE": lambda: True,
    "NEWFALSE": lambda: False, "MARK": lambda: _MARK,
}  # fmt: skip
_LITERALS = frozenset((
    "BININT", "BININT1", "BININT2", "SHORT_BINSTRING", "BINSTRING", "SHORT_BINBYTES", "BINBYTES", "BINBYTES8",
    "SHORT_BINUNICODE", "BINUNICODE",
))  # fmt: skip
_TAKEN = {
    "TUPLE1": 1,
    "TUPLE2": 2,
    "TUPLE3": 3,
    "APPEND": 1,
    "SETITEM": 2,
    "STACK_GLOBAL": 2,
    "REDUCE": 2,
    "BUILD": 1,
}


def _read(content: bytes) -> Any:
    """Do the operations of a pickle that CIFAR's need."""
    stack: list[Any] = []
    memo: dict[int, Any] = {}
    argument: Any
    for operation, argument, _place in pickletools.genops(content):
        match operation.name:
            case "PROTO" | "FRAME":
                pass
            case "STOP":
                return stack.pop()
            case "BINPUT" | "LONG_BINPUT" | "MEMOIZE":
                memo[len(memo) if argument is None else argument] = stack[-1]
            case "BINGET" | "LONG_BINGET":
                stack.append(memo[argument])
            case "GLOBAL":
                stack.append(_Name(argument.replace(" ", ".")))
            case name if name in _NEW:
                stack.append(_NEW[name]())
            case name if name in _LITERALS:
                stack.append(argument.decode("latin1") if isinstance(argument, bytes) else argument)
            case name:
                _combine(name, stack)
    raise FrontierError("a CIFAR batch has no end: it is damaged; get the published files")


def _combine(name: str, stack: list[Any]) -> None:
    """Do an operation that takes entries of the stack: a fixed number, or those above the last mark."""
    first = len(stack) - (_TAKEN[name] if name in _TAKEN else stack[::-1].index(_MARK))
    parts = stack[first:]
    del stack[first if name in _TAKEN else first - 1 :]
    match name, parts:
        case "TUPLE" | "TUPLE1" | "TUPLE2" | "TUPLE3", _:
            stack.append(tuple(parts))
        case "APPEND" | "APPENDS", _:
            stack[-1].extend(parts)
        case "SETITEM" | "SETITEMS", _ if all(type(key) is str for key in parts[::2]):
            stack[-1].update(zip(parts[::2], parts[1::2], strict=True))
        case "STACK_GLOBAL", [str() as module, str() as attribute]:
            stack.append(_Name(f"{module}.{attribute}"))
        case "REDUCE", [_Name(asked), arguments]:
            stack.append(_called(asked, arguments))
        case "BUILD", [state] if isinstance(stack[-1], _Array):
            stack[-1].state = state
        case "BUILD", _ if stack[-1] == _Name("u1"):
            pass  # its byte order, which single bytes do not have
        case _:
            raise FrontierError(
                f"a CIFAR batch has an operation {name} of its own: refused; get the published files"
            )


def _called(name: str, arguments: Any) -> Any:
    """What the functions return that published files, and the same written by a newer Python, call."""
    match name, arguments:
        case "numpy.core.multiarray._reconstruct" | "numpy._core.multiarray._reconstruct", _:
            return _Array()
        case "numpy.dtype", ("u1", *_):
            return _Name("u1")
        case "_codecs.encode", (str() as text, "latin1"):
            return text
    raise FrontierError(
        f"a CIFAR batch asks for {name[:80]}, which could run any code: refused; get the published files"
    )
