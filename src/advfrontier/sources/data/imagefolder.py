"""`imagefolder:DIR`: one folder of pictures per class, decoded when they are asked for.

`?list=FILE` takes the pictures that a text file names, one relative path a line; `?list=robustbench` is the ImageNet
subset of the installed RobustBench. `?preprocessing=NAME` makes all of one size.
"""

from __future__ import annotations

from functools import partial
from importlib.util import find_spec
from pathlib import Path

import torch
from torch import Tensor

from advfrontier.engine.data import Samples
from advfrontier.sources.data.preprocessing import Preprocessing
from advfrontier.sources.extras import need
from advfrontier.sources.guards import explaining
from advfrontier.sources.samples import stack_images
from advfrontier.sources.spec import Spec, existing

_ENDINGS = frozenset((".jpg", ".jpeg", ".png", ".bmp", ".webp", ".tif", ".tiff", ".ppm", ".pgm"))


def load(spec: Spec, *, download: bool) -> Samples:  # noqa: ARG001 (nothing to fetch)
    """List the pictures and try the first."""
    folder = existing(spec.place, spec.text, folder=True).resolve()
    classes = sorted(path.name for path in folder.iterdir() if path.is_dir() and not path.name.startswith("."))
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
    labels = torch.tensor([numbers[path.relative_to(folder).parts[0]] for path in files], dtype=torch.int64)
    preprocessing = Preprocessing.named(spec.options.get("preprocessing", "None"), spec.text)
    read = partial(_read, tuple(files), preprocessing, spec.text)
    read(torch.tensor([0]))  # what cannot be read should show here, not in the middle of a run
    return Samples(spec.text, labels, read, tuple(classes))


def _read(files: tuple[Path, ...], preprocessing: Preprocessing, name: str, rows: Tensor) -> Tensor:
    """Decode these pictures."""
    image = need("PIL.Image", extra="images", source=name)
    images = []
    for row in rows.tolist():
        with explaining(f"{name}: {files[row]} cannot be read as a picture"), image.open(files[row]) as picture:
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
    if path.is_absolute() or ".." in path.parts or len(path.parts) < 2:
        raise spec.error(f"the list names {line!r}: expected paths like CLASS/NAME.jpg below {folder}")
    if not (folder / path).is_file():
        raise spec.error(f"the list names {line!r}, which is not in {folder}")
    return folder / path
