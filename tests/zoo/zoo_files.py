"""Folders of IDX files with images that are easy to tell apart."""

import gzip
import struct

import torch


def write_set(folder, count, *, packed=True, seed=0):
    """The training part of a data set: dark noise, and one bright patch whose place is the
    class.
    """
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(10, (count,), generator=generator, dtype=torch.uint8)
    images = torch.randint(60, (count, 28, 28), generator=generator, dtype=torch.uint8)
    for image, label in zip(images, labels.tolist(), strict=True):
        top, left = 14 * (label % 2), 5 * (label // 2)
        image[top : top + 12, left : left + 6] += 150
    for name, tensor in (("train-images-idx3-ubyte", images), ("train-labels-idx1-ubyte", labels)):
        sizes = struct.pack(f">{tensor.ndim}i", *tensor.shape)
        content = bytes((0, 0, 8, tensor.ndim)) + sizes + tensor.numpy().tobytes()
        path = folder / (f"{name}.gz" if packed else name)
        path.write_bytes(gzip.compress(content) if packed else content)
    return images, labels
