"""Fashion-MNIST: the 1000 embedded test images, and the files of the whole data set.

The embedded images are 100 of each class, drawn once by `choose` from the 10 000 of the test set
and ordered so that every run of ten holds each class once: any multiple of ten from the front is
class-balanced. Fashion-MNIST is copyright Zalando SE under the MIT licence, whose notice lies
beside the file.
"""

from __future__ import annotations

import gzip
import hashlib
import math
import zlib
from importlib.resources import files
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import load as load_tensors
from torch import Tensor

from advfrontier.errors import FrontierError

CLASS_NAMES = (
    "T-shirt/top",
    "trouser",
    "pullover",
    "dress",
    "coat",
    "sandal",
    "shirt",
    "sneaker",
    "bag",
    "ankle boot",
)

# Images uint8, labels uint8, indices int16 into the test set.
FILE = "fashion_mnist_test_1000.safetensors"
SHA256 = {
    "images": "2f80f7a8484cf6108e194668a746337fd4fa9ddb3f7d20386c6d8322280376d6",
    "labels": "3b11c7c8d19c8103a3ea1890f8b21d0d13dfd2debf7720d56cacbe04db47c62f",
    "indices": "12c789dad444fa04e03d0468421a844a6cfcdaa62fdb888c2d8c170bc3960acd",
}
DEBIAN_FOLDER = Path(
    "/usr/share/datasets/fashion-mnist"
)  # where the Debian package puts the four files
_FILES = {
    "train": ("train-images-idx3-ubyte", "train-labels-idx1-ubyte"),
    "test": ("t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"),
}
_SEED = 2017


def embedded() -> dict[str, Tensor]:
    """Read the stored tensors; raise if a byte has changed."""
    stored = load_tensors(files("advfrontier.zoo").joinpath("data", FILE).read_bytes())
    for name, expected in SHA256.items():
        if digest(stored[name]) != expected:
            raise FrontierError(
                f"the {name} in {FILE} are not this release's: expected SHA-256 {expected}; "
                "reinstall advfrontier"
            )
    return stored


def images_and_labels() -> tuple[Tensor, Tensor]:
    """Return 1000 images, float32 (1000, 1, 28, 28) in [0, 1], and their labels as int64."""
    stored = embedded()
    return stored["images"].float().div_(255)[:, None], stored["labels"].long()


def digest(tensor: Tensor) -> str:
    """Return the SHA-256 of a tensor's bytes.

    Args:
        tensor: Tensor on the CPU.
    """
    return hashlib.sha256(tensor.contiguous().numpy().tobytes()).hexdigest()


def choose(labels: Tensor) -> Tensor:
    """Return indices of 100 images of each class, in random groups of one per class.

    Args:
        labels: Class of every image, (n,).
    """
    random = np.random.default_rng(_SEED)
    chosen = np.stack(
        [random.permutation(np.flatnonzero(labels.numpy() == c))[:100] for c in range(10)], 1
    )
    return torch.from_numpy(random.permuted(chosen, axis=1).reshape(-1))


def read_set(part: str, folder: str | Path | None = None) -> tuple[Tensor, Tensor]:
    """Read images (n, 28, 28) and labels (n,), both uint8, of the `train` or `test` part.

    Args:
        part: `train` or `test`.
        folder: Folder of the four IDX files; by default where the Debian package puts them.
    """
    root = DEBIAN_FOLDER if folder is None else Path(folder)
    found = [_find(root, name) for name in _FILES[part]]
    images, labels = _read_idx(found[0], 3), _read_idx(found[1], 1)
    if (
        images.shape[1:] != (28, 28)
        or len(images) != len(labels)
        or len(images) == 0
        or int(labels.max()) > 9
    ):
        raise FrontierError(
            f"{root} holds images of shape {tuple(images.shape)} and {len(labels)} labels: "
            "expected (n, 28, 28) and n, labels from 0 to 9"
        )
    return images, labels


def _find(root: Path, name: str) -> Path:
    for path in (root / name, root / f"{name}.gz"):
        if path.is_file():
            return path
    raise FrontierError(
        f"no {name} or {name}.gz in {root}: training needs the four files of Fashion-MNIST; type "
        "`apt-get install dataset-fashion-mnist` (Debian, Ubuntu), or name the folder that holds "
        "them (--data, in Python data_dir)"
    )


def _read_idx(path: Path, dimensions: int) -> Tensor:
    """Read one IDX file of unsigned bytes: zeros, type 8, dimensions, sizes, values."""
    raw = path.read_bytes()
    try:
        content = gzip.decompress(raw) if path.suffix == ".gz" else raw
    except (OSError, EOFError, zlib.error) as error:
        raise FrontierError(
            f"{path} cannot be unpacked ({error}): expected a gzip file; fetch it again"
        ) from error
    start = 4 + 4 * dimensions
    shape = np.frombuffer(content[4:start].ljust(4 * dimensions, b"\0"), ">u4").tolist()
    if content[:4] != bytes((0, 0, 8, dimensions)) or len(content) - start != math.prod(shape):
        raise FrontierError(
            f"{path} is not an IDX file of bytes in {dimensions} dimensions, or is cut short; "
            "fetch it again"
        )
    return torch.from_numpy(np.frombuffer(content, np.uint8, offset=start).reshape(shape).copy())
