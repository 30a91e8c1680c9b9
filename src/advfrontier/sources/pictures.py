"""Pictures, decoded when they are asked for: `imagefolder:` and `hf:`.

`?preprocessing=NAME` makes all of one size.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from advfrontier.engine.data import Samples
from advfrontier.errors import FrontierError
from advfrontier.sources.reading import Spec, connections, existing, explaining, need
from advfrontier.sources.samples import as_labels, as_pixels, as_rgb, as_tensor, stack_images

_ENDINGS = frozenset((".jpg", ".jpeg", ".png", ".bmp", ".webp", ".tif", ".tiff", ".ppm", ".pgm"))
_SPLITS = ("test", "validation", "valid", "val")
_NAME = re.compile(r"(Bicubic(?=Res))?(?:Res([1-9]\d{0,3}))?(?:Crop([1-9]\d{0,3}))?")


@dataclass(frozen=True)
class Preprocessing:
    """How a picture becomes an image of the model's size: RobustBench's preprocessings by name, with Pillow.

    `Res256Crop224` scales the shorter side to 256 and cuts out the central 224 x 224; `Res224` scales to 224 x 224
    whatever the shape; `Crop288` only cuts; `Bicubic…` scales with bicubic instead of bilinear interpolation; `None`
    does nothing. Other sizes go by the same names.
    """

    size: int | None
    crop: int | None
    bicubic: bool

    @classmethod
    def named(cls, name: str, source: str) -> Preprocessing:
        """Read a name."""
        match = _NAME.fullmatch("" if name == "None" else name)
        if match is None or not name:
            raise FrontierError(
                f"{source}: unknown preprocessing {name!r}: expected a name such as Res256Crop224, "
                "BicubicRes256Crop224, Res224, Crop288 or None"
            )
        bicubic, size, crop = match.groups()
        return cls(int(size) if size else None, int(crop) if crop else None, bool(bicubic))

    def __call__(self, picture: Any) -> Tensor:
        """Return the picture as uint8 CHW."""
        picture = as_rgb(picture)
        if self.size is not None:
            resampling = need("PIL.Image", extra="images", source="preprocessing").Resampling
            short = min(picture.size)
            scaled = (
                tuple(int(self.size * side / short) for side in picture.size)
                if self.crop
                else (self.size,) * 2
            )
            if scaled != picture.size:
                picture = picture.resize(
                    scaled, resampling.BICUBIC if self.bicubic else resampling.BILINEAR
                )
        if self.crop is not None:  # where there is too little, Pillow adds black on both sides
            lack = [self.crop - side for side in picture.size]
            left, top = (-(part // 2) if part > 0 else round(-part / 2) for part in lack)
            picture = picture.crop((left, top, left + self.crop, top + self.crop))
        return as_pixels(picture)


def load_folder(spec: Spec) -> Samples:
    """`imagefolder:DIR`: one folder of pictures per class.

    `?list=FILE` takes the pictures that a text file names, one relative path a line; `?list=robustbench` is the
    ImageNet subset of the installed RobustBench.
    """
    folder = existing(spec.place, spec.text, folder=True).resolve()
    classes = sorted(
        path.name for path in folder.iterdir() if path.is_dir() and not path.name.startswith(".")
    )
    if not classes:
        raise spec.error(f"{folder} has no folders: expected one per class, with its pictures")
    if "list" in spec.options:
        listed = _list_file(spec).read_text(encoding="utf-8").splitlines()
        files = [_listed(spec, folder, line.strip()) for line in listed if line.strip()]
    else:
        found = (path for name in classes for path in sorted((folder / name).rglob("*")))
        files = [path for path in found if path.suffix.lower() in _ENDINGS and path.is_file()]
    if not files:
        raise spec.error(f"found no pictures: expected files such as {classes[0]}/NAME.jpg")
    numbers = {name: number for number, name in enumerate(classes)}
    labels = torch.tensor(
        [numbers[path.relative_to(folder).parts[0]] for path in files], dtype=torch.int64
    )
    preprocessing = Preprocessing.named(spec.options.get("preprocessing", "None"), spec.text)
    read = partial(_read_files, tuple(files), preprocessing, spec.text)
    read(torch.tensor([0]))  # what cannot be read should show here, not in the middle of a run
    return Samples(spec.text, labels, read, tuple(classes))


def _read_files(
    files: tuple[Path, ...], preprocessing: Preprocessing, name: str, rows: Tensor
) -> Tensor:
    image = need("PIL.Image", extra="images", source=name)
    images = []
    for row in rows.tolist():
        with (
            explaining(f"{name}: {files[row]} cannot be read as a picture"),
            image.open(files[row]) as picture,
        ):
            images.append(preprocessing(picture))
    return stack_images(images, name)


def _list_file(spec: Spec) -> Path:
    if spec.options["list"] != "robustbench":
        return existing(spec.options["list"], spec.text)
    found = find_spec("robustbench")
    if found is None or not found.submodule_search_locations:
        raise spec.error("RobustBench is not installed; pip install 'advfrontier[robustbench]'")
    folder = Path(found.submodule_search_locations[0])
    return existing(folder / "helper_files" / "imagenet_test_image_ids.txt", spec.text)


def _listed(spec: Spec, folder: Path, line: str) -> Path:
    path = Path(line)
    if (
        path.is_absolute()
        or ".." in path.parts
        or len(path.parts) < 2
        or path.parts[0].startswith(".")
    ):
        raise spec.error(
            f"the list names {line!r}: expected paths like CLASS/NAME.jpg below {folder}"
        )
    if not (folder / path).is_file():
        raise spec.error(f"the list names {line!r}, which is not in {folder}")
    return folder / path


def load_huggingface(spec: Spec) -> Samples:
    """`hf:NAME` or `hf:FOLDER`: a data set of the datasets library, which may be pictures, parquet or a saved data set.

    `?split=`, `?config=`, `?image=` and `?label=` name the split (else test, validation or the only one), the
    configuration and the columns (else the first image column and the first column of class labels).
    """
    datasets = need("datasets", extra="hf", source=spec.text)
    folder = Path(spec.place).expanduser()
    what = f"{spec.text}: the datasets library cannot load it"
    with explaining(what, spec.hint), connections(allowed=spec.download):
        if any((folder / name).is_file() for name in ("dataset_info.json", "dataset_dict.json")):
            table = datasets.load_from_disk(str(folder))
        else:
            place = str(folder) if folder.is_dir() else spec.place
            table = datasets.load_dataset(place, spec.options.get("config"))
    if hasattr(table, "keys"):
        names = list(table.keys())
        default = next(
            (name for name in _SPLITS if name in names), names[0] if len(names) == 1 else None
        )
        if (split := spec.options.get("split", default)) not in names:
            raise spec.error(f"has the splits {', '.join(names)}: name one of them with ?split=")
        table = table[split]
    elif (split := spec.options.get("split")) not in (None, str(table.split)):
        raise spec.error(f"holds one split, and that is not {split}: leave out ?split=")
    image = _column(spec, table, "image", datasets.Image)
    label = _column(spec, table, "label", datasets.ClassLabel)
    labels = as_labels(torch.tensor(table[label][:]), len(table), spec.text)
    classes = getattr(table.features[label], "names", None)
    wanted = spec.options.get("preprocessing")
    preprocessing = Preprocessing.named(wanted, spec.text) if wanted else None
    read = partial(_read_table, table, image, preprocessing, spec.text)
    read(torch.tensor([0]))  # what cannot be read should show here, not in the middle of a run
    return Samples(spec.text, labels, read, tuple(classes) if classes else None)


def _read_table(
    table: Any, column: str, preprocessing: Preprocessing | None, name: str, rows: Tensor
) -> Tensor:
    images = []
    for row in rows.tolist():
        with explaining(f"{name}: row {row} cannot be read as a picture"):
            images.append((preprocessing or as_tensor)(table[row][column]))
    return stack_images(images, name)


def _column(spec: Spec, table: Any, what: str, kind: Any) -> str:
    columns = [name for name, feature in table.features.items() if isinstance(feature, kind)]
    wanted = spec.options.get(what, columns[0] if columns else what)
    if wanted not in table.features:
        raise spec.error(
            f"has the columns {', '.join(table.features)}: name the {what} column with ?{what}="
        )
    return str(wanted)
