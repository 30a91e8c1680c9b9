"""`npz:FILE`: NumPy's archives with `images` and `labels`.

Images are NHWC, NCHW or NHW, uint8 or floats in [0, 1]; for a domain also rows of features, with
any values. Other names that are understood are
`x_test`/`y_test`, `x`/`y` and `X`/`y`. Arrays stored by `np.savez` are mapped into memory. Those
compressed by `np.savez_compressed` are read whole, once per process, up to 1 GiB. The checksums of
the archive are compared when it is opened.
"""

from __future__ import annotations

import math
import struct
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

LARGEST_COMPRESSED = 2**30  # bytes of an array that every worker would hold in memory
LARGEST_NAMES = 10**6  # class names, at most
_DESCRIPTOR = 24  # bytes that may follow the content of an entry of a ZIP file, at most
# Where the header of an entry says how long its name and its extra field are.
_LENGTHS_AT, _LENGTHS = 26, struct.Struct("<HH")
_NAMES = (("images", "labels"), ("x_test", "y_test"), ("x", "y"), ("X", "y"))


def load(spec: Spec) -> Samples:
    """Open an archive: compare its checksums, read the labels and try the first images.

    Args:
        spec: `npz:FILE`; the option `layout` says where the channels are.
    """
    path = existing(spec.place, spec.text).resolve()
    hint = ": expected one written by np.savez"
    with explaining(f"{spec.text}: not an npz archive, or a damaged one", hint):
        found = _check_archive(spec, path)
        names = next((pair for pair in _NAMES if set(pair) <= found), None)
        if names is None:
            held = ", ".join(sorted(found)) or "nothing"
            raise spec.error(f"holds {held}: expected images and labels")
        pixels = open_array(path, names[0])
        with np.load(path) as arrays:  # refuses pickled objects
            numbers = arrays[names[1]]
            listed = arrays["class_names"] if "class_names" in found else None
    if numbers.dtype.kind not in "iu":
        raise spec.error(f"labels are {numbers.dtype}: expected class numbers as integers")
    labels = as_labels(torch.from_numpy(numbers.astype(np.int64)), len(pixels), spec.text)
    classes = None
    if listed is not None:
        if listed.ndim != 1 or listed.size > LARGEST_NAMES:
            raise spec.error(f"class_names have shape {listed.shape}: expected one name per class")
        classes = tuple(listed.astype(str).tolist())
    layout = _layout(spec, pixels.shape)
    to_images = partial(to_unit, layout=layout, name=spec.text, unit=spec.unit)
    read = Rows(partial(open_array, path, names[0]), to_images)
    read(torch.arange(min(len(labels), 16)))  # a wrong range shows here, not during a run
    return Samples(spec.text, labels, read, classes)


def _check_archive(spec: Spec, path: Path) -> set[str]:
    """Return the names of the arrays; raise if a checksum differs or an array is too large."""
    with zipfile.ZipFile(path) as archive:
        for entry in archive.infolist():
            if entry.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
                raise spec.error(f"{entry.filename} is compressed in another way than by NumPy")
            if entry.compress_type and entry.file_size > LARGEST_COMPRESSED:
                raise spec.error(
                    f"{entry.filename} is compressed and holds {entry.file_size / 1e9:.1f} GB: "
                    f"expected at most {LARGEST_COMPRESSED / 1e9:.1f} GB, as every process would "
                    "hold it in memory; store it without compression: "
                    f"np.savez({path.name!r}, **np.load({path.name!r}))"
                )
        damaged = archive.testzip()
        if damaged is not None:
            raise spec.error(f"the checksum of {damaged} differs: the file is damaged")
        if not _lists_all(archive, path):
            raise spec.error("its directory does not list all of its content: the file is damaged")
        return {name.removesuffix(".npy") for name in archive.namelist()}


def _lists_all(archive: zipfile.ZipFile, path: Path) -> bool:
    """Tell whether the entries fill the archive: a damaged directory may have lost one."""
    end = 0
    with path.open("rb") as file:
        for entry in sorted(archive.infolist(), key=lambda entry: entry.header_offset):
            if not end <= entry.header_offset <= end + _DESCRIPTOR:
                return False
            file.seek(entry.header_offset + _LENGTHS_AT)
            name, extra = _LENGTHS.unpack(file.read(_LENGTHS.size))
            header = _LENGTHS_AT + _LENGTHS.size + name + extra
            end = entry.header_offset + header + entry.compress_size
    return end <= archive.start_dir <= end + _DESCRIPTOR


def open_array(path: Path, name: str) -> NDArray[np.generic]:
    """Map a stored array into memory, or read a compressed one.

    Args:
        path: NPZ archive.
        name: Name of the array in it.
    """
    with path.open("rb") as file, zipfile.ZipFile(file) as archive:
        entry = archive.getinfo(f"{name}.npy")
        if entry.compress_type == zipfile.ZIP_STORED:
            archive.open(entry).close()  # leaves the file where the entry's content begins
            end = file.tell() + entry.file_size
            version = np.lib.format.read_magic(file)
            read_header = np.lib.format.read_array_header_2_0
            if version == (1, 0):
                read_header = np.lib.format.read_array_header_1_0
            shape, fortran, dtype = read_header(file)
            size = dtype.itemsize * math.prod(shape)
            if 0 < size == end - file.tell() and not dtype.hasobject:
                return np.memmap(path, dtype, "r", file.tell(), shape, "F" if fortran else "C")
    with np.load(path) as arrays:  # refuses pickled objects, and content of another size
        whole: NDArray[np.generic] = arrays[name]
        return whole


def _layout(spec: Spec, shape: tuple[int, ...]) -> str:
    """Return the order of the axes: the user's, else the one with 1 or 3 channels."""
    asked = spec.option("layout", choices=("NHWC", "NCHW"))
    if len(shape) == 2 and not spec.unit:
        return "N"
    if len(shape) == 3:
        return "NHW"
    if len(shape) != 4:
        raise spec.error(
            f"images have shape {shape}: expected (n, h, w, channels) or (n, channels, h, w)"
        )
    first, last = shape[1] in CHANNELS, shape[3] in CHANNELS
    if first == last and not asked:
        raise spec.error(
            f"images have shape {shape}: cannot tell where the channels are; add ?layout=NHWC or "
            "?layout=NCHW"
        )
    return asked or ("NCHW" if first else "NHWC")


def to_unit(rows: NDArray[np.generic], layout: str, name: str, *, unit: bool = True) -> Tensor:
    """Return rows of an array as float32 NCHW in [0, 1].

    Args:
        rows: Images, uint8 or floats.
        layout: The order of their axes: NHW, NHWC or NCHW; N for rows of features.
        name: The source, for messages.
        unit: Whether they must be in [0, 1].
    """
    if rows.dtype != np.uint8 and rows.dtype.kind != "f":
        raise FrontierError(f"{name}: images are {rows.dtype}: expected uint8, or floats in [0, 1]")
    kind: type[np.generic] = np.float32
    if rows.dtype == np.uint8:
        kind = np.uint8
    elif rows.dtype.itemsize > np.dtype(np.float32).itemsize:
        kind = np.float64
    pixels = torch.from_numpy(np.ascontiguousarray(rows, kind))
    if layout == "NHW":
        pixels = pixels[:, None]
    elif layout == "NHWC":
        pixels = pixels.permute(0, 3, 1, 2)
    return check_unit(pixels.contiguous(), name, unit=unit)
