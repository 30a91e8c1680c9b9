"""`hf:NAME` or `hf:FOLDER`: data sets of the datasets library; a folder may hold pictures, parquet or a saved data set.

`?split=`, `?config=`, `?image=` and `?label=` name the split (else test, validation or the only one), the
configuration and the columns (else the first image column and the first column of class labels).
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from advfrontier.engine.data import Samples
from advfrontier.sources.data.preprocessing import Preprocessing
from advfrontier.sources.extras import need
from advfrontier.sources.guards import connections, download_hint, explaining
from advfrontier.sources.samples import as_labels, stack_images
from advfrontier.sources.spec import Spec

_SPLITS = ("test", "validation", "valid", "val")


def load(spec: Spec, *, download: bool) -> Samples:
    """Open the table of one split and read its labels."""
    datasets = need("datasets", extra="hf", source=spec.text)
    folder = Path(spec.place).expanduser()
    what = f"{spec.text}: the datasets library cannot load it"
    with explaining(what, download_hint(download=download)), connections(allowed=download):
        if any((folder / name).is_file() for name in ("dataset_info.json", "dataset_dict.json")):
            found = datasets.load_from_disk(str(folder))
        else:
            place = str(folder) if folder.is_dir() else spec.place
            found = datasets.load_dataset(place, spec.options.get("config"))
    table = _split(spec, found) if hasattr(found, "keys") else found
    image = _column(spec, table, "image", datasets.Image)
    label = _column(spec, table, "label", datasets.ClassLabel)
    labels = as_labels(torch.tensor(table[label][:]), len(table), spec.text)
    names = getattr(table.features[label], "names", None)
    wanted = spec.options.get("preprocessing")
    preprocessing = Preprocessing.named(wanted, spec.text) if wanted else None
    read = partial(_read, table, image, preprocessing, spec.text)
    read(torch.tensor([0]))  # what cannot be read should show here, not in the middle of a run
    return Samples(spec.text, labels, read, tuple(names) if names else None)


def _read(table: Any, column: str, preprocessing: Preprocessing | None, name: str, rows: Tensor) -> Tensor:
    """Decode these pictures, which lie in a table on disk."""
    images = []
    for row in rows.tolist():
        with explaining(f"{name}: row {row} cannot be read as a picture"):
            images.append((preprocessing or _pixels)(table[row][column]))
    return stack_images(images, name)


def _pixels(picture: Any) -> Tensor:
    """A picture as it is, with one channel or three."""
    image = picture if picture.mode in ("L", "RGB") else picture.convert("RGB")
    return torch.from_numpy(np.atleast_3d(image).copy()).permute(2, 0, 1)


def _split(spec: Spec, found: Any) -> Any:
    names = list(found.keys())
    default = next((name for name in _SPLITS if name in names), names[0] if len(names) == 1 else None)
    wanted = spec.options.get("split", default)
    if wanted not in names:
        raise spec.error(f"has the splits {', '.join(names)}: name one of them with ?split=")
    return found[wanted]


def _column(spec: Spec, table: Any, what: str, kind: Any) -> str:
    columns = [name for name, feature in table.features.items() if isinstance(feature, kind)]
    wanted = spec.options.get(what, columns[0] if columns else what)
    if wanted not in table.features:
        raise spec.error(f"has the columns {', '.join(table.features)}: name the {what} column with ?{what}=")
    return str(wanted)
