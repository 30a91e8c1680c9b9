"""Pictures, decoded when they are asked for: `imagefolder:`, `folder:` and `hf:`.

`?preprocessing=NAME` makes all of one size.
"""

from __future__ import annotations

import csv
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
from advfrontier.sources.reading import Spec, existing, explaining, need, offline
from advfrontier.sources.samples import as_labels, as_pixels, as_rgb, as_tensor, stack_images

ENDINGS = frozenset((".jpg", ".jpeg", ".png", ".bmp", ".webp", ".tif", ".tiff", ".ppm", ".pgm"))
_SPLITS = ("test", "validation", "valid", "val")
_NAME = re.compile(r"(Bicubic(?=Res))?(?:Res([1-9]\d{0,3}))?(?:Crop([1-9]\d{0,3}))?")
# Column names of a table of labels that are recognised, in lower case.
_FILE_COLUMNS = ("file", "filename", "file_name", "image", "path", "name")
_LABEL_COLUMNS = ("label", "labels", "class", "class_name", "target", "y")


@dataclass(frozen=True)
class Preprocessing:
    """RobustBench's preprocessings by name, computed with Pillow.

    `Res256Crop224` scales the shorter side to 256 and cuts out the central 224 x 224. `Res224`
    scales to 224 x 224 whatever the shape. `Crop288` only cuts. `Bicubic…` interpolates bicubic
    instead of bilinear. `None` does nothing. Other sizes go by the same names.

    Args:
        size: Side to scale to, in pixels; None to keep the size.
        crop: Side of the central square, in pixels; None to keep everything.
        bicubic: Whether to interpolate bicubic.
    """

    size: int | None
    crop: int | None
    bicubic: bool

    @classmethod
    def named(cls, name: str, source: str) -> Preprocessing:
        """Return the preprocessing of a name.

        Args:
            name: Name, such as Res256Crop224.
            source: The source, for the message.
        """
        match = _NAME.fullmatch("" if name == "None" else name)
        if match is None or not name:
            raise FrontierError(
                f"{source}: unknown preprocessing {name!r}: expected a name such as Res256Crop224, "
                "BicubicRes256Crop224, Res224, Crop288 or None"
            )
        bicubic, size, crop = match.groups()
        return cls(int(size) if size else None, int(crop) if crop else None, bool(bicubic))

    def __call__(self, picture: Any) -> Tensor:
        """Return a picture as uint8 (3, height, width).

        Args:
            picture: Picture of Pillow, in any mode.
        """
        picture = as_rgb(picture)
        if self.size is not None:
            picture = self._scale(picture, self.size)
        if self.crop is not None:  # where there is too little, Pillow adds black on both sides
            lack = [self.crop - side for side in picture.size]
            left, top = (-(part // 2) if part > 0 else round(-part / 2) for part in lack)
            picture = picture.crop((left, top, left + self.crop, top + self.crop))
        return as_pixels(picture)

    def _scale(self, picture: Any, size: int) -> Any:
        resampling = need("PIL.Image", extra="images", source="preprocessing").Resampling
        width, height = size, size
        if self.crop:
            short = min(picture.size)
            width, height = (int(size * side / short) for side in picture.size)
        if (width, height) == picture.size:
            return picture
        way = resampling.BICUBIC if self.bicubic else resampling.BILINEAR
        return picture.resize((width, height), way)


def load_class_folders(spec: Spec) -> Samples:
    """Open `imagefolder:DIR`: one folder of pictures per class.

    Args:
        spec: `imagefolder:DIR`; the option `list` names a text file with one relative path a line,
            or is `robustbench` for the ImageNet subset of the installed RobustBench.
    """
    folder = existing(spec.place, spec.text, folder=True).resolve()
    classes = class_folders(folder)
    if not classes:
        raise spec.error(
            f"{folder} has no folders: expected one per class, with its pictures; for pictures "
            "beside a table of labels, type folder:DIR?labels=FILE.csv"
        )
    files: list[Path] = []
    if "list" in spec.options:
        lines = _list_file(spec).read_text(encoding="utf-8").split("\n")
        names = [line.strip() for line in lines if line.strip()]
        files = [_inside(spec, folder, name, "the list", "CLASS/NAME.jpg") for name in names]
    else:
        for name in classes:
            files += [path for path in sorted((folder / name).rglob("*")) if is_picture_file(path)]
    if not files:
        raise spec.error(f"found no pictures: expected files such as {classes[0]}/NAME.jpg")
    numbers = {name: number for number, name in enumerate(classes)}
    labels = [numbers[path.relative_to(folder).parts[0]] for path in files]
    return _from_files(spec, files, labels, tuple(classes))


def class_folders(folder: Path) -> list[str]:
    """Return the names of the folders in a folder, sorted, without hidden ones.

    Args:
        folder: Folder with a folder per class.
    """
    return sorted(p.name for p in folder.iterdir() if p.is_dir() and not p.name.startswith("."))


def is_picture_file(path: Path) -> bool:
    """Return whether a path is a file with the ending of a picture.

    Args:
        path: Path of a file.
    """
    return path.suffix.lower() in ENDINGS and path.is_file()


def load_labelled_folder(spec: Spec) -> Samples:
    """Open `folder:DIR?labels=FILE.csv`: pictures and a table of their names and labels.

    Labels are class numbers; other texts are class names, numbered in alphabetical order.

    Args:
        spec: `folder:DIR`; the option `labels` names the table, in DIR or elsewhere; `file` and
            `label` name its columns.
    """
    folder = existing(spec.place, spec.text, folder=True).resolve()
    if "labels" not in spec.options:
        raise spec.error(
            "no table of labels: expected folder:DIR?labels=FILE.csv, with one picture a line: its "
            "file name, its label"
        )
    table = Path(spec.options["labels"]).expanduser()
    table = folder / table if (folder / table).is_file() else existing(table, spec.text)
    files, texts = [], []
    for name, text in _read_table_of_labels(spec, table):
        files.append(_inside(spec, folder, name, table.name, "NAME.jpg"))
        texts.append(text)
    classes = None
    try:
        labels = [int(text) for text in texts]
    except ValueError:
        classes = tuple(sorted(set(texts)))
        numbers = {name: number for number, name in enumerate(classes)}
        labels = [numbers[text] for text in texts]
    return _from_files(spec, files, labels, classes)


def _read_table_of_labels(spec: Spec, table: Path) -> list[tuple[str, str]]:
    """Return pairs of file name and label from a CSV file with commas, semicolons or tabs."""
    with explaining(f"{spec.text}: {table} cannot be read", ": expected a CSV file"):
        lines = table.read_text(encoding="utf-8-sig").splitlines()
        first = lines[0] if lines else ""
        delimiter = next((mark for mark in ",;\t" if mark in first), ",")
        rows = []
        for row in csv.reader(lines, delimiter=delimiter):
            cells = [cell.strip() for cell in row]
            if any(cells):
                rows.append(cells)
    header = rows[0] if rows else []
    if len(header) < 2:
        raise spec.error(
            f"{table} has {len(header)} columns: expected a file name and a label in each line"
        )
    file_column = _find_column(spec, header, "file", _FILE_COLUMNS, 0)
    label_column = _find_column(spec, header, "label", _LABEL_COLUMNS, 1)
    if Path(header[file_column]).suffix.lower() not in ENDINGS:
        del rows[0]  # column names, not a picture
    pairs = []
    for row in rows:
        if len(row) != len(header):
            raise spec.error(f"{table} has a line {','.join(row)!r}: expected {len(header)} cells")
        pairs.append((row[file_column], row[label_column]))
    if not pairs:
        raise spec.error(f"{table} names no pictures: expected one line per picture")
    return pairs


def _find_column(
    spec: Spec, header: list[str], what: str, usual: tuple[str, ...], default: int
) -> int:
    """Return the index of the column the user named, else one with a usual name, else a default."""
    if what in spec.options:
        if spec.options[what] not in header:
            raise spec.error(
                f"the table has the columns {', '.join(header)}: name the {what} column with "
                f"{what}="
            )
        return header.index(spec.options[what])
    lower = [name.lower() for name in header]
    return next((lower.index(name) for name in usual if name in lower), default)


def _from_files(
    spec: Spec, files: list[Path], labels: list[int], classes: tuple[str, ...] | None
) -> Samples:
    preprocessing = Preprocessing.named(spec.options.get("preprocessing", "None"), spec.text)
    read = partial(_read_files, tuple(files), preprocessing, spec.text)
    read(torch.tensor([0]))  # an unreadable picture shows here, not during a run
    return Samples(spec.text, torch.tensor(labels, dtype=torch.int64), read, classes)


def _read_files(
    files: tuple[Path, ...], preprocessing: Preprocessing, name: str, rows: Tensor
) -> Tensor:
    pillow = need("PIL.Image", extra="images", source=name)
    images = []
    for row in rows.tolist():
        what = f"{name}: {files[row]} cannot be read as a picture"
        with explaining(what), pillow.open(files[row]) as picture:
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


def _inside(spec: Spec, folder: Path, name: str, where: str, example: str) -> Path:
    """Return the path of a named picture; raise if the name leads out of the folder."""
    path = Path(name)
    deep_enough = len(path.parts) > example.count("/")
    if path.is_absolute() or not deep_enough or path.parts[0].startswith(".") or ".." in path.parts:
        raise spec.error(f"{where} names {name!r}: expected paths like {example} below {folder}")
    if not (folder / path).is_file():
        raise spec.error(f"{where} names {name!r}, which is not in {folder}")
    return folder / path


def load_huggingface(spec: Spec) -> Samples:
    """Open `hf:NAME` or `hf:FOLDER`: a data set of the datasets library.

    Args:
        spec: `hf:NAME`; the options `split`, `config`, `image` and `label` name the split (else
            test, validation or the only one), the configuration and the columns (else the first
            image column and the first column of class labels).
    """
    datasets = need("datasets", extra="hf", source=spec.text)
    table = _open_table(spec, datasets)
    image = _table_column(spec, table, "image", datasets.Image)
    label = _table_column(spec, table, "label", datasets.ClassLabel)
    labels = as_labels(torch.tensor(table[label][:]), len(table), spec.text)
    classes = getattr(table.features[label], "names", None)
    preprocessing = None
    if "preprocessing" in spec.options:
        preprocessing = Preprocessing.named(spec.options["preprocessing"], spec.text)
    read = partial(_read_table, table, image, preprocessing, spec.text)
    read(torch.tensor([0]))  # an unreadable picture shows here, not during a run
    return Samples(spec.text, labels, read, tuple(classes) if classes else None)


def _open_table(spec: Spec, datasets: Any) -> Any:
    """Return one split as the library's table."""
    folder = Path(spec.place).expanduser()
    what = f"{spec.text}: the datasets library cannot load it"
    with explaining(what, spec.hint), offline(wanted=not spec.download):
        if any((folder / name).is_file() for name in ("dataset_info.json", "dataset_dict.json")):
            table = datasets.load_from_disk(str(folder))
        else:
            place = str(folder) if folder.is_dir() else spec.place
            table = datasets.load_dataset(place, spec.options.get("config"))
    split = spec.options.get("split")
    if not hasattr(table, "keys"):
        if split not in (None, str(table.split)):
            raise spec.error(f"holds one split, and that is not {split}: leave out ?split=")
        return table
    names = list(table.keys())
    if split is None:
        only = names[0] if len(names) == 1 else None
        split = next((name for name in _SPLITS if name in names), only)
    if split not in names:
        raise spec.error(f"has the splits {', '.join(names)}: name one of them with ?split=")
    return table[split]


def _table_column(spec: Spec, table: Any, what: str, kind: Any) -> str:
    columns = [name for name, feature in table.features.items() if isinstance(feature, kind)]
    wanted = spec.options.get(what, columns[0] if columns else what)
    if wanted not in table.features:
        raise spec.error(
            f"has the columns {', '.join(table.features)}: name the {what} column with ?{what}="
        )
    return str(wanted)


def _read_table(
    table: Any, column: str, preprocessing: Preprocessing | None, name: str, rows: Tensor
) -> Tensor:
    convert = preprocessing or as_tensor
    images = []
    for row in rows.tolist():
        with explaining(f"{name}: row {row} cannot be read as a picture"):
            images.append(convert(table[row][column]))
    return stack_images(images, name)
