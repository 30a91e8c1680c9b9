"""`npz:FILE`: NumPy's archives with `images` (NHWC, NCHW or NHW, uint8 or floats in [0, 1]) and `labels`.

Also understood: `x_test`/`y_test`, `x`/`y`, `X`/`y`. Arrays stored by `np.savez` are mapped into memory and read row by
row. Those compressed by `np.savez_compressed` can only be read whole: they are, once per process.
"""

from __future__ import annotations

import logging
import zipfile
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np
import torch
from torch import Tensor

from advfrontier.errors import FrontierError
from advfrontier.sources.pixels import LAYOUTS, layout_of, to_unit
from advfrontier.sources.samples import as_labels
from advfrontier.sources.spec import existing_file

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

    from advfrontier.sources.samples import Samples
    from advfrontier.sources.spec import Spec

_NAMES = (("images", "labels"), ("x_test", "y_test"), ("x", "y"), ("X", "y"))
_LARGE = 2**30  # bytes: reading so much at once is worth a word
_log = logging.getLogger(__name__)


@dataclass(frozen=True, eq=False)
class ArchiveSamples:
    """Rows of an array in an archive. Pickled as the name of the file."""

    name: str
    path: Path
    key: str
    layout: str
    labels: Tensor
    class_names: tuple[str, ...] | None

    def __getstate__(self) -> dict[str, Any]:
        return {key: value for key, value in vars(self).items() if key != "_array"}

    def __len__(self) -> int:
        return len(self.labels)

    @cached_property
    def _array(self) -> NDArray[np.generic]:
        return _open(self.path, self.key, self.name)

    def images(self, rows: Tensor) -> Tensor:
        """Read these rows."""
        return to_unit(self._array[rows.numpy()], self.layout, self.name)


def load(spec: Spec, *, download: bool) -> Samples:  # noqa: ARG001 (nothing to fetch)
    """Open the archive, read the labels and the first images."""
    path = existing_file(spec.place, spec.text).resolve()
    try:
        with zipfile.ZipFile(path) as archive:
            found = [name.removesuffix(".npy") for name in archive.namelist()]
    except zipfile.BadZipFile as error:
        raise FrontierError(f"{spec.text}: not an npz archive: expected one written by np.savez") from error
    names = next((pair for pair in _NAMES if set(pair) <= set(found)), None)
    if names is None:
        raise FrontierError(f"{spec.text}: holds {', '.join(found) or 'nothing'}: expected images and labels")
    pixels = _open(path, names[0], spec.text)
    asked = spec.option("layout", choices=LAYOUTS, default="NHWC") if "layout" in spec.options else None
    layout = layout_of(pixels.shape, spec.text, asked=asked)
    numbers = _open(path, names[1], spec.text)
    if numbers.dtype.kind not in "iu":
        raise FrontierError(f"{spec.text}: labels are {numbers.dtype}: expected class numbers as integers")
    labels = as_labels(torch.from_numpy(numbers.astype(np.int64)), len(pixels), spec.text)
    classes = tuple(map(str, _open(path, "class_names", spec.text))) if "class_names" in found else None
    samples = ArchiveSamples(spec.text, path, names[0], layout, labels, classes)
    vars(samples)["_array"] = pixels
    samples.images(torch.arange(min(len(samples), 16)))  # wrong ranges show here, not in the middle of a run
    return samples


def _open(path: Path, key: str, name: str) -> NDArray[np.generic]:
    """Map an array of the archive into memory, or read it if it is compressed."""
    with zipfile.ZipFile(path) as archive:
        entry = archive.getinfo(f"{key}.npy")
        if entry.compress_type == zipfile.ZIP_STORED:
            with path.open("rb") as file:
                return _map(file, entry, path, f"{name}: {key}")
        if entry.file_size > _LARGE:
            _log.warning(
                "%s: %s is compressed and is read into memory whole (%.1f GB); np.savez would not need that",
                name, key, entry.file_size / 1e9,
            )  # fmt: skip
        with archive.open(entry) as stream:
            try:
                array: NDArray[np.generic] = np.lib.format.read_array(stream, allow_pickle=False)
            except ValueError as error:
                raise _refusal(f"{name}: {key}", error) from error
            return array


def _map(file: BinaryIO, entry: zipfile.ZipInfo, path: Path, what: str) -> NDArray[np.generic]:
    file.seek(entry.header_offset)
    header = file.read(30)  # the local header: its last two fields are the lengths of what follows it
    file.seek(int.from_bytes(header[26:28], "little") + int.from_bytes(header[28:30], "little"), 1)
    try:
        version = np.lib.format.read_magic(file)
        reader = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        shape, fortran, dtype = reader(file)
        if dtype.hasobject:
            raise ValueError("an array of Python objects")  # noqa: TRY301 (as NumPy's own reader does)
        if not all(shape):
            return np.empty(shape, dtype)
        return np.memmap(path, dtype, "r", offset=file.tell(), shape=shape, order="F" if fortran else "C")
    except ValueError as error:
        raise _refusal(what, error) from error


def _refusal(what: str, error: ValueError) -> FrontierError:
    return FrontierError(
        f"{what} is not a plain array ({error}): expected numbers; arrays of Python objects are pickles, which could "
        "run any code: refused"
    )
