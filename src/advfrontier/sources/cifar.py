"""`cifar10:DIR` and `cifar100:DIR`: the Python batches as their authors published them.

The files are pickles, which could run any code. So a file is unpickled only if its MD5 is the
published one. An attacker can make two files with one MD5, but not a file with
the MD5 of a given one.
"""

from __future__ import annotations

import hashlib
import pickle
import warnings
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from advfrontier.engine.data import Samples
from advfrontier.errors import FrontierError
from advfrontier.sources.reading import Spec, existing
from advfrontier.sources.samples import Rows, as_labels, check_unit

FOLDERS = {"cifar10": "cifar-10-batches-py", "cifar100": "cifar-100-python"}
# MD5 of each published file, below the name of its data set.
PUBLISHED = {
    "cifar10": {
        "test_batch": "40351d587109b95175f43aff81a1287e",
        "data_batch_1": "c99cafc152244af753f735de768cd75f",
        "data_batch_2": "d4bba439e000b95fd0a9bffe97cbabec",
        "data_batch_3": "54ebc095f3ab1f0389bbae665268c751",
        "data_batch_4": "634d18415352ddfa80567beed471001a",
        "data_batch_5": "482c414d41f54cd18b22e5b47cb7c3cb",
        "batches.meta": "5ff9c542aee3614f3951f8cda6e48888",
    },
    "cifar100": {
        "test": "f0ef6b0ae62326f3e7ffdfab6717acfc",
        "train": "16019d7e3df5f24257cddd939b257f8d",
        "meta": "7973b15100ade9c7d40fb424638fde48",
    },
}
_SPLITS: dict[str, dict[str, tuple[str, ...]]] = {
    "cifar10": {"test": ("test_batch",), "train": tuple(f"data_batch_{i}" for i in range(1, 6))},
    "cifar100": {"test": ("test",), "train": ("train",)},
}
# Keys of the labels in a batch, and the file and key of the class names.
_KEYS = {
    "cifar10": ("labels", "batches.meta", "label_names"),
    "cifar100": ("fine_labels", "meta", "fine_label_names"),
}


def load(spec: Spec) -> Samples:
    """Open one split. CIFAR is never downloaded: its authors ask to be cited on their page.

    Args:
        spec: `cifar10:DIR` or `cifar100:DIR`, DIR being the unpacked folder or its parent.
    """
    folder = existing(spec.place, spec.text, folder=True)
    if (folder / FOLDERS[spec.kind]).is_dir():
        folder = folder / FOLDERS[spec.kind]
    split = spec.option("split", choices=("test", "train")) or "test"
    checksums = PUBLISHED[spec.kind]
    label_key, meta, names_key = _KEYS[spec.kind]
    files = []
    labels: list[int] = []
    for name in _SPLITS[spec.kind][split]:
        file = existing(folder / name, spec.text).absolute()
        labels += read_batch(file, checksums[name])[label_key]
        files.append((file, checksums[name]))
    names = None
    if (folder / meta).is_file():
        names = tuple(read_batch(folder / meta, checksums[meta])[names_key])
    images = Rows(partial(_read_pixels, files), partial(check_unit, name=spec.text))
    return Samples(
        spec.text, as_labels(torch.tensor(labels), len(labels), spec.text), images, names
    )


def read_batch(path: Path, md5: str) -> dict[str, Any]:
    """Return the dictionary of a published file; raise if the file is another one.

    Args:
        path: Pickled file of a batch.
        md5: The MD5 of the published file, as 32 hexadecimal digits.
    """
    content = path.read_bytes()
    found = hashlib.md5(content, usedforsecurity=False).hexdigest()
    if found != md5:
        raise FrontierError(
            f"{path}: found a file with MD5 {found}: expected {md5}, as published; "
            "unpack the Python version of https://www.cs.toronto.edu/~kriz/cifar.html again"
        )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the arrays were pickled by NumPy 1 in Python 2
        batch: dict[str, Any] = pickle.loads(content, encoding="latin1")  # noqa: S301  # known file
    return batch


def _read_pixels(files: list[tuple[Path, str]]) -> Tensor:
    """Return the images of some files, uint8 (n, 3, 32, 32)."""
    batches = [read_batch(path, md5)["data"] for path, md5 in files]
    return torch.from_numpy(np.concatenate(batches)).view(-1, 3, 32, 32)
