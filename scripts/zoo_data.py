"""Make the embedded test images from the files of Fashion-MNIST, and print their hashes."""

from __future__ import annotations

import sys
from pathlib import Path

import torch
from safetensors.torch import save_file

from advfrontier.zoo import fashion


def main(folder: str | None, out: str) -> None:
    """Write the file and print the hashes."""
    images, labels = fashion.read_set("test", folder)
    chosen = fashion.choose(labels)
    tensors = {
        "images": images[chosen],
        "labels": labels[chosen],
        "indices": chosen.to(torch.int16),
    }
    source = {"source": "Fashion-MNIST test set, Zalando SE", "licence": "MIT"}
    save_file(tensors, Path(out) / fashion.FILE, metadata=source)
    for name, tensor in tensors.items():
        print(name, tuple(tensor.shape), fashion.digest(tensor))


if __name__ == "__main__":
    main(sys.argv[2] if len(sys.argv) > 2 else None, sys.argv[1])
