"""Random numbers that belong to a sample: drawn from (seed, sample id, stream), whatever batch the sample sits in.

A counter-based generator (the SplitMix64 finaliser over key and counter) needs no state to save and no loop over
samples. It runs in NumPy on the host, so every device sees the same numbers.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

_STEP = np.uint64(0x9E3779B97F4A7C15)


def _mix(z: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Mix the bits of an array of one's own, in place."""
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        z ^= z >> np.uint64(shift)
        z *= np.uint64(factor)
    z ^= z >> np.uint64(31)
    return z


def uniform(
    seed: int | NDArray[np.int64], ids: NDArray[np.uint64], stream: str | int, count: int
) -> NDArray[np.float64]:
    """Numbers in the open interval (0, 1), shape (samples, count). One seed for all samples, or one for each."""
    seeds, places = np.unique(seed, return_inverse=True)
    tags = b"".join(hashlib.blake2b(f"{each}/{stream}".encode(), digest_size=8).digest() for each in seeds)
    key = _mix(ids ^ np.frombuffer(tags, np.uint64)[places])
    counter = np.arange(1, count + 1, dtype=np.uint64) * _STEP
    bits = _mix(_mix(key[:, None] + counter[None, :]))
    bits >>= np.uint64(11)
    numbers = bits.astype(np.float64)
    numbers += 0.5
    numbers *= 2.0**-53
    return numbers


def normal(
    seed: int | NDArray[np.int64], ids: NDArray[np.uint64], stream: str | int, count: int
) -> NDArray[np.float64]:
    """Standard normal numbers, shape (samples, count), by the Box-Muller transform."""
    u = uniform(seed, ids, stream, 2 * count)
    radius: NDArray[np.float64] = np.sqrt(-2 * np.log(u[:, :count]))
    return radius * np.cos(2 * np.pi * u[:, count:])


def sample_ids(images: NDArray[np.float32]) -> NDArray[np.uint64]:
    """A content hash per image, so that a sample keeps its id in any data set, order or batch."""
    rows = np.ascontiguousarray(images).reshape(len(images), -1)
    digests = b"".join(hashlib.blake2b(row.tobytes(), digest_size=8).digest() for row in rows)
    return np.frombuffer(digests, dtype=np.uint64)
