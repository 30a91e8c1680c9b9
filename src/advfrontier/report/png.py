"""PNG files of small pictures, with nothing but zlib."""

from __future__ import annotations

import base64
import struct
import zlib

import numpy as np
from numpy.typing import NDArray

_GREY, _RGB = 0, 2
MARK = b"Software\0advfrontier"  # by which pictures of our own are known


def png(image: NDArray[np.uint8]) -> bytes:
    """An array (height, width, 1 or 3) of uint8 as a PNG file."""
    height, width, channels = image.shape
    header = struct.pack(">IIBBBBB", width, height, 8, _GREY if channels == 1 else _RGB, 0, 0, 0)
    rows = np.ascontiguousarray(image).reshape(height, width * channels)
    unfiltered = np.pad(rows, ((0, 0), (1, 0))).tobytes()  # each row begins with its filter: 0, none
    return (
        b"\x89PNG\r\n\x1a\n"
        + _chunk(b"IHDR", header)
        + _chunk(b"tEXt", MARK)
        + _chunk(b"IDAT", zlib.compress(unfiltered, 9))
        + _chunk(b"IEND", b"")
    )


def data_uri(image: NDArray[np.uint8]) -> str:
    """The PNG as an address that needs no file."""
    return "data:image/png;base64," + base64.b64encode(png(image)).decode("ascii")


def _chunk(kind: bytes, content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))
