"""`cifar10:DIR` and `cifar100:DIR`: the batches as their authors publish them, read without running pickle's code.

The files are pickles of dictionaries of bytes, numbers and one NumPy array. The reader below knows just the names
that such a file needs and puts its own harmless functions in their place; any other name is refused.
"""

from __future__ import annotations

import pickle
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from advfrontier.errors import FrontierError
from advfrontier.sources.pixels import check_unit
from advfrontier.sources.samples import as_labels
from advfrontier.sources.spec import existing_file, existing_folder

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

    from advfrontier.sources.samples import Samples
    from advfrontier.sources.spec import Spec


@dataclass(frozen=True)
class _Kind:
    folder: str
    files: dict[str, tuple[str, ...]]
    labels: bytes
    meta: str
    names: bytes


_KINDS = {
    "cifar10": _Kind(
        "cifar-10-batches-py",
        {"test": ("test_batch",), "train": tuple(f"data_batch_{i}" for i in range(1, 6))},
        b"labels", "batches.meta", b"label_names",
    ),
    "cifar100": _Kind(
        "cifar-100-python", {"test": ("test",), "train": ("train",)}, b"fine_labels", "meta", b"fine_label_names"
    ),
}  # fmt: skip


@dataclass(frozen=True, eq=False)
class CifarSamples:
    """The images of some batch files. Pickled as their names."""

    name: str
    files: tuple[Path, ...]
    labels: Tensor
    class_names: tuple[str, ...] | None

    def __getstate__(self) -> dict[str, Any]:
        return {key: value for key, value in vars(self).items() if key != "_pixels"}

    def __len__(self) -> int:
        return len(self.labels)

    @cached_property
    def _pixels(self) -> Tensor:
        return torch.cat([_pixels(read_batch(file), file) for file in self.files])

    def images(self, rows: Tensor) -> Tensor:
        """Return these rows."""
        return check_unit(self._pixels[rows], self.name)


def load(spec: Spec, *, download: bool) -> Samples:  # noqa: ARG001 (CIFAR is not fetched: its site says how to cite it)
    """Read the batches of one split."""
    kind = _KINDS[spec.kind]
    folder = existing_folder(spec.place, spec.text)
    folder = folder / kind.folder if (folder / kind.folder).is_dir() else folder
    files = tuple(
        existing_file(folder / name, spec.text).resolve()
        for name in kind.files[spec.option("split", choices=("test", "train"), default="test")]
    )
    batches = [read_batch(file) for file in files]
    pixels = torch.cat([_pixels(batch, file) for batch, file in zip(batches, files, strict=True)])
    labels = [label for batch in batches for label in batch.get(kind.labels, [])]
    if not all(isinstance(label, int) for label in labels):
        raise FrontierError(f"{spec.text}: its labels are not numbers: expected the published files")
    names = read_batch(folder / kind.meta).get(kind.names) if (folder / kind.meta).is_file() else None
    samples = CifarSamples(
        spec.text,
        files,
        as_labels(torch.tensor(labels, dtype=torch.int64), len(pixels), spec.text),
        tuple(name.decode() for name in names) if names else None,
    )
    vars(samples)["_pixels"] = pixels
    return samples


def read_batch(path: Path) -> dict[bytes, Any]:
    """Read a batch file; text keys and values become bytes, as they were when the files were made."""
    try:
        with path.open("rb") as file:
            found = _Reader(file, encoding="bytes").load()
    except FrontierError:
        raise
    except Exception as error:
        raise FrontierError(f"{path}: not a CIFAR batch ({type(error).__name__}: {error})") from error
    if not isinstance(found, dict):
        raise FrontierError(f"{path}: holds a {type(found).__name__}: expected a dictionary, as published")
    return {_as_bytes(key): value for key, value in found.items()}


def _as_bytes(key: Any) -> bytes:
    return key.encode() if isinstance(key, str) else bytes(key)


def _pixels(batch: dict[bytes, Any], path: Path) -> Tensor:
    data = batch.get(b"data")
    if not isinstance(data, _Array) or data.value.ndim != 2 or data.value.shape[1] != 3072:
        raise FrontierError(f"{path}: has no data of shape (n, 3072): expected a published CIFAR batch")
    return torch.from_numpy(data.value.reshape(-1, 3, 32, 32).copy())


class _Array:
    """What stands for an array while it is read."""

    value: NDArray[np.uint8]

    def __setstate__(self, state: Any) -> None:
        _version, shape, dtype, fortran, data = state
        if not isinstance(dtype, _Dtype) or fortran or not isinstance(data, bytes):
            raise FrontierError("a CIFAR batch holds an array that is not of plain bytes: refused")
        self.value = np.frombuffer(data, np.uint8).reshape(shape)


class _Dtype:
    """What stands for the one type of number these files have."""

    def __init__(self, name: Any, *_: Any) -> None:
        if name not in ("u1", b"u1"):
            raise FrontierError(f"a CIFAR batch holds numbers of type {name!r}: expected u1: refused")

    def __setstate__(self, state: Any) -> None:
        """Byte order and the like do not matter to single bytes."""


def _reconstruct(*_: Any) -> _Array:
    return _Array()


def _encode(text: Any, encoding: Any = "latin1") -> bytes:
    if not isinstance(text, str) or encoding not in ("latin1", b"latin1"):
        raise FrontierError(f"a CIFAR batch asks for the encoding {encoding!r}: expected latin1: refused")
    return text.encode("latin1")


class _Reader(pickle.Unpickler):
    _known = {  # noqa: RUF012 (never changed)
        ("numpy.core.multiarray", "_reconstruct"): _reconstruct,
        ("numpy._core.multiarray", "_reconstruct"): _reconstruct,
        ("numpy", "ndarray"): _Array,
        ("numpy", "dtype"): _Dtype,
        ("_codecs", "encode"): _encode,
    }

    def find_class(self, module: str, name: str) -> Any:
        """Give the stand-in for a name, or refuse it."""
        if (module, name) not in self._known:
            raise FrontierError(
                f"a CIFAR batch asks for {module}.{name}, which could run any code: refused; get the published files"
            )
        return self._known[module, name]
