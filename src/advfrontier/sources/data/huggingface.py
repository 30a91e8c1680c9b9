"""`hf:NAME` or `hf:FOLDER`: data sets of the datasets library; a folder may hold pictures, parquet or a saved data set.

`?split=`, `?config=`, `?image=` and `?label=` name the split (else test, validation or the only one), the
configuration and the columns (else the first image column and the first column of class labels).
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from advfrontier.errors import FrontierError
from advfrontier.sources.data.preprocessing import Preprocessing
from advfrontier.sources.extras import need
from advfrontier.sources.guards import connections
from advfrontier.sources.samples import as_labels, stack_images

if TYPE_CHECKING:
    from advfrontier.sources.samples import Samples
    from advfrontier.sources.spec import Spec

_SPLITS = ("test", "validation", "valid", "val")


@dataclass(frozen=True, eq=False)
class TableSamples:
    """Rows of a table on disk, whose pictures are decoded when they are asked for."""

    name: str
    table: Any
    column: str
    labels: Tensor
    class_names: tuple[str, ...] | None
    preprocessing: Preprocessing | None

    def __len__(self) -> int:
        return len(self.labels)

    def images(self, rows: Tensor) -> Tensor:
        """Decode these pictures."""
        return stack_images([self._picture(self.table[row][self.column]) for row in rows.tolist()], self.name)

    def _picture(self, picture: Any) -> Tensor:
        if self.preprocessing is not None:
            return self.preprocessing(picture)
        plain = picture if picture.mode in ("L", "RGB") else picture.convert("RGB")
        bands = len(plain.getbands())
        pixels = torch.frombuffer(bytearray(plain.tobytes()), dtype=torch.uint8)
        return pixels.view(plain.height, plain.width, bands).permute(2, 0, 1)


def load(spec: Spec, *, download: bool) -> Samples:
    """Open the table of one split and read its labels."""
    datasets = need("datasets", extra="hf", source=spec.text)
    folder = Path(spec.place).expanduser()
    try:
        with connections(allowed=download):
            if any((folder / name).is_file() for name in ("dataset_info.json", "dataset_dict.json")):
                found = datasets.load_from_disk(str(folder))
            else:
                place = str(folder) if folder.is_dir() else spec.place
                found = datasets.load_dataset(place, spec.options.get("config"))
    except Exception as error:
        help_ = "" if download else "; if it is not on this machine, allow the download with --download (download=True)"
        raise FrontierError(
            f"{spec.text}: the datasets library cannot load it ({type(error).__name__}: {error}){help_}"
        ) from error
    table = _split(spec, found) if hasattr(found, "keys") else found
    image = _column(spec, table, "image", datasets.Image)
    label = _column(spec, table, "label", datasets.ClassLabel)
    labels = as_labels(torch.tensor(table[label][:]), len(table), spec.text)
    names = getattr(table.features[label], "names", None)
    wanted = spec.options.get("preprocessing")
    preprocessing = Preprocessing.named(wanted, spec.text) if wanted else None
    samples = TableSamples(spec.text, table, image, labels, tuple(names) if names else None, preprocessing)
    samples.images(torch.tensor([0]))
    return samples


def _split(spec: Spec, found: Any) -> Any:
    names = list(found.keys())
    default = next((name for name in _SPLITS if name in names), names[0] if len(names) == 1 else None)
    wanted = spec.options.get("split", default)
    if wanted not in names:
        raise FrontierError(f"{spec.text}: has the splits {', '.join(names)}: name one of them with ?split=")
    return found[wanted]


def _column(spec: Spec, table: Any, what: str, kind: Any) -> str:
    columns = [name for name, feature in table.features.items() if isinstance(feature, kind)]
    wanted = spec.options.get(what, columns[0] if columns else what)
    if wanted not in table.features:
        raise FrontierError(
            f"{spec.text}: has the columns {', '.join(table.features)}: name the {what} column with ?{what}="
        )
    return str(wanted)
