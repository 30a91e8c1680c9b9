"""`npz:FILE`: NumPy's archives with `images` (NHWC, NCHW or NHW, uint8 or floats in [0, 1]) and `labels`.

Also understood: `x_test`/`y_test`, `x`/`y`, `X`/`y`. Arrays stored by `np.savez` are mapped into memory and read row by
row. Those compressed by `np.savez_compressed` can only be read whole: they are, once per process, up to 1 GiB. The
checksums of the archive are compared when it is opened.
"""

from __future__ import annotations

import math
import zipfile
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import IO, Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray

from advfrontier.engine.data import Samples
from advfrontier.errors import FrontierError
from advfrontier.sources.guards import explaining
from advfrontier.sources.pixels import LAYOUTS, layout_of, to_unit
from advfrontier.sources.samples import Rows, as_labels
from advfrontier.sources.spec import Spec, existing

_NAMES = (("images", "labels"), ("x_test", "y_test"), ("x", "y"), ("X", "y"))
_LARGEST = 2**30  # bytes of a compressed array, which every worker holds in memory
_CLASSES = 10**6  # names of classes, at most
_END = 22  # bytes of the record that ends an archive
_PIECE = 2**20  # bytes read at once to compare a checksum


def load(spec: Spec, *, download: bool) -> Samples:  # noqa: ARG001 (nothing to fetch)
    """Open the archive, compare its checksums, read the labels and the first images."""
    path = existing(spec.place, spec.text).resolve()
    with explaining(f"{spec.text}: not an npz archive, or a damaged one", ": expected one written by np.savez"):
        found = _names(path)
        names = next((pair for pair in _NAMES if set(pair) <= found), None)
        if names is None:
            held = ", ".join(sorted(found)) or "nothing"
            raise spec.error(f"holds {held}: expected images and labels")
        image, label = (_Entry(spec, path, name) for name in names)
        numbers = label.read(check=True)
        pixels = image.read(check=True)
        listed = _Entry(spec, path, "class_names").read(check=True) if "class_names" in found else None
        if listed is not None and (listed.ndim != 1 or listed.size > _CLASSES):
            raise spec.error(f"class_names have shape {listed.shape}: expected one name per class")
        classes = None if listed is None else tuple(map(str, listed.tolist()))
    asked = spec.option("layout", choices=LAYOUTS, default="NHWC") if "layout" in spec.options else None
    layout = layout_of(pixels.shape, spec.text, asked=asked)
    if numbers.dtype.kind not in "iu":
        raise spec.error(f"labels are {numbers.dtype}: expected class numbers as integers")
    labels = as_labels(torch.from_numpy(numbers.astype(np.int64)), len(pixels), spec.text)
    read = Rows(partial(image.read, check=False), partial(to_unit, layout=layout, name=spec.text))
    vars(read)["array"] = pixels
    read(torch.arange(min(len(labels), 16)))  # wrong ranges show here, not in the middle of a run
    return Samples(spec.text, labels, read, classes)


def _names(path: Path) -> set[str]:
    """The names of the arrays; opening an entry compares its two places in the file, and the end counts them."""
    with zipfile.ZipFile(path) as archive, path.open("rb") as file:
        names = archive.namelist()
        for name in names:
            archive.open(name).close()
        file.seek(-_END, 2)
        end = file.read()
    if end[:4] != b"PK\5\6" or int.from_bytes(end[10:12], "little") != len(names):
        raise FrontierError(f"{path}: lists {len(names)} arrays, and its end says otherwise: the file is damaged")
    return {name.removesuffix(".npy") for name in names}


@dataclass(frozen=True)
class _Entry:
    """An array of an archive."""

    spec: Spec
    path: Path
    key: str

    def read(self, *, check: bool) -> NDArray[np.generic]:
        """Map the array into memory, or read it if it is compressed; `check` compares the checksum of a mapped one."""
        with zipfile.ZipFile(self.path) as archive:
            entry = archive.getinfo(f"{self.key}.npy")
            stored = entry.compress_type == zipfile.ZIP_STORED
            if not stored and entry.compress_type != zipfile.ZIP_DEFLATED:  # others are not unpacked in pieces
                raise self.spec.error(f"{self.key} is compressed in another way than np.savez_compressed's")
            if not stored and entry.file_size > _LARGEST:
                raise self.spec.error(
                    f"{self.key} is compressed and holds {entry.file_size / 1e9:.1f} GB, which would have "
                    f"to be in memory: expected at most {_LARGEST / 1e9:.1f} GB; store it without compression: "
                    f"np.savez({self.path.name!r}, **np.load({self.path.name!r}))"
                )
            with archive.open(entry) as stream:
                shape, order, dtype = self._header(stream)
                start = stream.tell()
                if start + dtype.itemsize * math.prod(shape) != entry.file_size:
                    raise self.spec.error(
                        f"{self.key} has {entry.file_size - start} bytes: expected those of shape {shape} "
                        f"and type {dtype}; the file is damaged"
                    )
                if not stored or not all(shape):  # empty arrays cannot be mapped
                    # NumPy reads in pieces into an array of this size, and zipfile stops at the size of the entry.
                    stream.seek(0)
                    whole: NDArray[np.generic] = np.lib.format.read_array(stream, allow_pickle=False)
                    return whole
                while check and stream.read(_PIECE):  # at its end zipfile compares the checksum
                    pass
            return np.memmap(self.path, dtype, "r", _data_start(self.path, entry) + start, shape, order)

    def _header(self, stream: IO[bytes]) -> tuple[tuple[int, ...], Literal["C", "F"], np.dtype[Any]]:
        version = np.lib.format.read_magic(stream)
        reader = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        shape, fortran, dtype = reader(stream)
        if dtype.hasobject:
            raise self.spec.error(
                f"{self.key} is not a plain array: expected numbers; arrays of Python objects are "
                "pickles, which could run any code: refused"
            )
        return shape, "F" if fortran else "C", dtype


def _data_start(path: Path, entry: zipfile.ZipInfo) -> int:
    """Where the content of a stored entry begins: after its local header, a name and an extra field."""
    with path.open("rb") as file:
        file.seek(entry.header_offset)
        header = file.read(30)
    lengths = int.from_bytes(header[26:28], "little") + int.from_bytes(header[28:30], "little")
    return entry.header_offset + len(header) + lengths
