"""`npz:FILE`: NumPy's archives with `images` (NHWC, NCHW or NHW, uint8 or floats in [0, 1]) and `labels`.

Also understood: `x_test`/`y_test`, `x`/`y`, `X`/`y`. Arrays stored by `np.savez` are mapped into memory and read row by
row. Those compressed by `np.savez_compressed` can only be read whole: they are, once per process, up to 1 GiB. The
checksums of the archive are compared when it is opened.
"""

from __future__ import annotations

import math
import zipfile
from functools import partial
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from advfrontier.engine.data import Samples
from advfrontier.errors import FrontierError
from advfrontier.sources.reading import Spec, existing, explaining
from advfrontier.sources.samples import CHANNELS, Rows, as_labels, check_unit

_NAMES = (("images", "labels"), ("x_test", "y_test"), ("x", "y"), ("X", "y"))
_LARGEST = 2**30  # bytes of a compressed array, which every worker holds in memory
_CLASSES = 10**6  # names of classes, at most
_END = 22  # bytes of the record that ends an archive
_PIECE = 2**20  # bytes read at once to compare a checksum


def load(spec: Spec) -> Samples:
    """Open the archive, compare its checksums, read the labels and the first images."""
    path = existing(spec.place, spec.text).resolve()
    with explaining(
        f"{spec.text}: not an npz archive, or a damaged one", ": expected one written by np.savez"
    ):
        found = _names(path)
        names = next((pair for pair in _NAMES if set(pair) <= found), None)
        if names is None:
            held = ", ".join(sorted(found)) or "nothing"
            raise spec.error(f"holds {held}: expected images and labels")
        pixels, numbers = (_read(spec, path, name, check=True) for name in names)
        listed = _read(spec, path, "class_names", check=True) if "class_names" in found else None
        if listed is not None and (listed.ndim != 1 or listed.size > _CLASSES):
            raise spec.error(f"class_names have shape {listed.shape}: expected one name per class")
        classes = None if listed is None else tuple(listed.astype(str).tolist())
    layout = _layout(spec, pixels.shape)
    if numbers.dtype.kind not in "iu":
        raise spec.error(f"labels are {numbers.dtype}: expected class numbers as integers")
    labels = as_labels(torch.from_numpy(numbers.astype(np.int64)), len(pixels), spec.text)
    open_images = partial(_read, spec, path, names[0], check=False)
    read = Rows(open_images, partial(_to_unit, layout=layout, name=spec.text))
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
        raise FrontierError(
            f"{path}: lists {len(names)} arrays, and its end says otherwise: the file is damaged"
        )
    return {name.removesuffix(".npy") for name in names}


def _read(spec: Spec, path: Path, key: str, *, check: bool) -> NDArray[np.generic]:
    """Map an array into memory, or read it if it is compressed; `check` compares the checksum of a mapped one."""
    with zipfile.ZipFile(path) as archive:
        entry = archive.getinfo(f"{key}.npy")
        stored = entry.compress_type == zipfile.ZIP_STORED
        if (
            not stored and entry.compress_type != zipfile.ZIP_DEFLATED
        ):  # others are not unpacked in pieces
            raise spec.error(f"{key} is compressed in another way than np.savez_compressed's")
        if not stored and entry.file_size > _LARGEST:
            raise spec.error(
                f"{key} is compressed and holds {entry.file_size / 1e9:.1f} GB, which would have "
                f"to be in memory: expected at most {_LARGEST / 1e9:.1f} GB; store it without compression: "
                f"np.savez({path.name!r}, **np.load({path.name!r}))"
            )
        with archive.open(entry) as stream:
            version = np.lib.format.read_magic(stream)
            header = (
                np.lib.format.read_array_header_1_0
                if version == (1, 0)
                else np.lib.format.read_array_header_2_0
            )
            shape, fortran, dtype = header(stream)
            if dtype.hasobject:
                raise spec.error(
                    f"{key} is not a plain array: expected numbers; arrays of Python objects are "
                    "pickles, which could run any code: refused"
                )
            start = stream.tell()
            if start + dtype.itemsize * math.prod(shape) != entry.file_size:
                raise spec.error(
                    f"{key} has {entry.file_size - start} bytes: expected those of shape {shape} "
                    f"and type {dtype}; the file is damaged"
                )
            if not stored or not all(shape):  # empty arrays cannot be mapped
                # NumPy reads in pieces into an array of this size, and zipfile stops at the size of the entry.
                stream.seek(0)
                whole: NDArray[np.generic] = np.lib.format.read_array(stream, allow_pickle=False)
                return whole
            while check and stream.read(_PIECE):  # at its end zipfile compares the checksum
                pass
        return np.memmap(
            path, dtype, "r", _data_start(path, entry) + start, shape, "F" if fortran else "C"
        )


def _data_start(path: Path, entry: zipfile.ZipInfo) -> int:
    """Where the content of a stored entry begins: after its local header, a name and an extra field."""
    with path.open("rb") as file:
        file.seek(entry.header_offset)
        header = file.read(30)
    lengths = int.from_bytes(header[26:28], "little") + int.from_bytes(header[28:30], "little")
    return entry.header_offset + len(header) + lengths


def _layout(spec: Spec, shape: tuple[int, ...]) -> str:
    """Where the channels are: as the user says, else the axis with 1 or 3 entries. (n, h, w) counts as NHW."""
    asked = spec.option("layout", choices=("NHWC", "NCHW"))
    if len(shape) == 3:
        return "NHW"
    if len(shape) != 4:
        raise spec.error(
            f"images have shape {shape}: expected (n, h, w, channels) or (n, channels, h, w)"
        )
    first, last = shape[1] in CHANNELS, shape[3] in CHANNELS
    if first == last and not asked:
        raise spec.error(
            f"images have shape {shape}: cannot tell where the channels are; add ?layout=NHWC or ?layout=NCHW"
        )
    return asked or ("NCHW" if first else "NHWC")


def _to_unit(rows: NDArray[np.generic], layout: str, name: str) -> Tensor:
    """Rows of the array as float32 NCHW in [0, 1]."""
    if rows.dtype != np.uint8 and rows.dtype.kind != "f":
        raise FrontierError(f"{name}: images are {rows.dtype}: expected uint8, or floats in [0, 1]")
    pixels = torch.from_numpy(
        np.ascontiguousarray(rows, np.uint8 if rows.dtype == np.uint8 else np.float32)
    )
    pixels = (
        pixels[:, None]
        if layout == "NHW"
        else pixels.permute(0, 3, 1, 2)
        if layout == "NHWC"
        else pixels
    )
    return check_unit(pixels.contiguous(), name)
