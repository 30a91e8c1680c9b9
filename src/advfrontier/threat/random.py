"""Random numbers that belong to a sample: drawn from (seed, sample, stream), in any batch.

A counter-based generator in 32-bit integer operations of torch: no state to save, no loop over
samples, no number drawn on the host. Integer operations are exact, so every device draws the same
bits.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from advfrontier.threat.thresholds import wide

if TYPE_CHECKING:
    from numpy.typing import NDArray

_GOLDEN = -1640531527  # 2^32 divided by the golden ratio, as a signed number
_FIRST, _SECOND = 0x21F0AAAD, -0x2CA5D269  # multipliers of a mixer with low bias (Wellons, 2018)


@dataclass(frozen=True)
class Draws:
    """Random numbers of n samples.

    Args:
        seed: Seed of the run.
        keys: (n, 2) int32, identifies each sample; see `sample_keys`.
    """

    seed: int
    keys: Tensor

    def bits(self, stream: str, count: int) -> Tensor:
        """Return (n, count) int32 with 32 random bits each; other streams are independent.

        Args:
            stream: Name of the random numbers.
            count: Numbers per sample.
        """
        digest = hashlib.blake2b(f"{self.seed}/{stream}".encode(), digest_size=8).digest()
        low, high = (int(word) for word in np.frombuffer(digest, dtype=np.int32))
        first = _mix(self.keys[:, :1] ^ low)
        second = _mix(self.keys[:, 1:] ^ high).add_(first)
        counter = torch.arange(1, count + 1, dtype=torch.int32, device=self.keys.device)
        return _mix((counter * _GOLDEN) ^ first, second)

    def uniform(self, stream: str, count: int) -> Tensor:
        """Return (n, count) float32 numbers in the open interval (0, 1).

        Args:
            stream: Name of the random numbers; other streams are independent.
            count: Numbers per sample.
        """
        return to_unit(self.bits(stream, count))

    def normal(self, stream: str, count: int) -> Tensor:
        """Return (n, count) standard normal numbers, by the Box-Muller transform.

        They are in float64 where the device has it, so that devices agree once they are rounded.

        Args:
            stream: Name of the random numbers; other streams are independent.
            count: Numbers per sample.
        """
        numbers = wide(self.uniform(stream, 2 * count))
        radius = numbers[:, :count].log().mul_(-2).sqrt_()
        return numbers[:, count:].mul(2 * torch.pi).cos_().mul_(radius)


def to_unit(bits: Tensor) -> Tensor:
    """Return random bits as float32 numbers in the open interval (0, 1), from their upper 23.

    Args:
        bits: int32 of any shape.
    """
    upper = (bits >> 9).bitwise_and_(0x7FFFFF)  # the shift repeats the sign, which is masked away
    return upper.to(torch.float32).add_(0.5).mul_(2.0**-23)


def _mix(bits: Tensor, key: Tensor | None = None) -> Tensor:
    """Mix the bits of every entry, and a key into them.

    A shift to the right repeats the sign, which the masks remove.
    """
    mixed = (bits ^ (bits >> 16).bitwise_and_(0xFFFF)).mul_(_FIRST)
    if key is not None:
        mixed += key
    mixed ^= (mixed >> 15).bitwise_and_(0x1FFFF)
    mixed *= _SECOND
    mixed ^= (mixed >> 15).bitwise_and_(0x1FFFF)
    return mixed


def sample_ids(images: NDArray[np.float32]) -> NDArray[np.uint64]:
    """Return a hash of each image's content, an id in any data set or batch.

    Args:
        images: (n, …) float32.
    """
    rows = np.ascontiguousarray(images).reshape(len(images), -1)
    digests = b"".join(hashlib.blake2b(row.tobytes(), digest_size=8).digest() for row in rows)
    return np.frombuffer(digests, dtype=np.uint64)


def sample_keys(ids: NDArray[np.uint64]) -> Tensor:
    """Return the ids as (n, 2) int32, on the CPU.

    Args:
        ids: (n,) uint64.
    """
    return torch.from_numpy(np.ascontiguousarray(ids).view(np.int32).reshape(-1, 2).copy())
