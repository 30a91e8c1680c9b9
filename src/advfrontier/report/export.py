"""Results as files for other programs and papers: tables, cards, points, pictures, LaTeX, text."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple
from zipfile import ZIP_DEFLATED, ZipFile

import numpy as np

from advfrontier.errors import FrontierError, printable
from advfrontier.evaluation.evaluation import Evaluation
from advfrontier.evaluation.radii import Radius, chosen_radii
from advfrontier.evaluation.samples import as_bytes, class_table, sample_table
from advfrontier.evaluation.summary import NormSummary, summarise
from advfrontier.flags import doubts
from advfrontier.jsonable import jsonable
from advfrontier.record.folder import (
    Folder,
    below,
    folder_name,
    open_folder,
    write_files,
)
from advfrontier.report.render import as_csv, as_latex, clean
from advfrontier.report.summary import summary_tables
from advfrontier.report.words import CITATION, quoted, sentence
from advfrontier.table import Column
from advfrontier.threat.names import is_norm

_AT_ONCE = 100  # samples whose images are read together
_PICTURE = re.compile(r"\d{6}-class\d+-as\d+\.png")
_PICTURE_MARK = b"Software\0advfrontier"  # by which an own picture is known


class _Kind(NamedTuple):
    """Format of export.

    Args:
        content: Text that says what was written.
        file: Ending of the files, or the name of the only file.
        mark: Bytes by which an own file is known.
        single: Whether one file holds all evaluations.
    """

    content: str
    file: str
    mark: bytes
    single: bool = False


_KINDS = {
    "csv": _Kind("table", ".csv", b"adversarial_class"),
    "parquet": _Kind("table", ".parquet", b"adversarial_class"),
    "npz": _Kind("points", ".npz", b"adversarial_class"),
    "card": _Kind("card", ".json", b"advfrontier_ensemble"),
    "classes": _Kind("classes", "-classes.csv", b"median_distance"),
    "png": _Kind("pictures", "-png", _PICTURE_MARK),
    "latex": _Kind("table", "summary.tex", b"advfrontier", single=True),
    "sentence": _Kind("sentence", "sentence.txt", b"advfrontier", single=True),
}
FORMATS = tuple(_KINDS)


def parse_formats(text: str | None) -> tuple[str, ...]:
    """Return the formats named; raise if one is unknown or its library is missing.

    Args:
        text: Formats with commas between them, such as `csv,latex`; None or empty for none.
    """
    kinds = tuple(dict.fromkeys(part.strip() for part in (text or "").split(",") if part.strip()))
    for kind in kinds:
        if kind not in FORMATS:
            raise FrontierError(
                f"cannot export {kind!r}: expected some of {', '.join(FORMATS)}, with commas"
            )
    if "parquet" in kinds and find_spec("pyarrow") is None:
        raise FrontierError("Parquet needs pyarrow: type pip install 'advfrontier[parquet]'")
    if "png" in kinds and find_spec("PIL") is None:
        raise FrontierError("PNG needs Pillow: type pip install 'advfrontier[images]'")
    return kinds


def earlier_formats(folder: str) -> tuple[str, ...]:
    """Return the formats that an earlier command exported into a folder and that can be written.

    Args:
        folder: A path or an address.
    """
    names = open_folder(folder).names(depth=1)
    found = []
    for name, kind in _KINDS.items():
        if name == "png":
            here = any(_PICTURE.fullmatch(each.rpartition("/")[2]) for each in names)
        elif kind.single:
            here = kind.file in names
        else:
            here = any(_is_export(each, kind.file) for each in names)
        missing = (name == "parquet" and find_spec("pyarrow") is None) or (
            name == "png" and find_spec("PIL") is None
        )
        if here and not missing:
            found.append(name)
    return tuple(found)


def _is_export(file: str, ending: str) -> bool:
    """Tell whether a file beside a record is named as an export of one norm."""
    name = file.rpartition("/")[2]
    return name.endswith(ending) and is_norm(name.removesuffix(ending))


def export_all(
    evaluations: Sequence[Evaluation],
    summaries: Sequence[NormSummary],
    folder: str,
    kinds: Sequence[str],
    *,
    radii: str | None = None,
) -> Iterator[tuple[str, str]]:
    """Write files into a folder; yield what was written and where.

    Args:
        evaluations: Evaluations with files of their own. A file is named after the record, where
            the record is below the folder, because there may be several models.
        summaries: Summaries that `latex` and `sentence` describe.
        folder: A path or an address.
        kinds: Formats, as `parse_formats` returns them.
        radii: Radii at which accuracy is read, such as `4/255,8/255`, instead of the usual ones.
    """
    root = below(open_folder(folder).place, "")  # an address may end with a slash
    for name in kinds:
        kind = _KINDS[name]
        if kind.single:
            write = partial(_write_single, name, summaries)
        else:
            write = partial(_write_each, name, evaluations, root, radii)
        paths = write_files(folder, write, mark=kind.mark)
        if name == "png":
            paths = _picture_folders(paths)
        for path in paths:
            yield kind.content, path


def _write_single(name: str, summaries: Sequence[NormSummary], folder: Path) -> Iterator[Path]:
    path = folder / _KINDS[name].file
    if name == "latex":
        path.write_text(latex(summaries), "utf-8")
    else:
        path.write_text(f"{clean(sentence(summaries))}\n\n{CITATION}\n", "utf-8")
    yield path


def _write_each(
    name: str, evaluations: Sequence[Evaluation], root: str, radii: str | None, folder: Path
) -> Iterator[Path]:
    norms = [each.norm for each in evaluations if not each.place.startswith(root)]
    for evaluation in evaluations:
        inside = evaluation.norm
        if evaluation.place.startswith(root):
            inside = evaluation.place.removeprefix(root)
        elif norms.count(inside) > 1:  # several models that lie elsewhere
            inside = folder_name(evaluation.place)
        path = folder / f"{inside}{_KINDS[name].file}"
        yield from export(evaluation, name, path, radii=chosen_radii(evaluation, radii))


def _picture_folders(paths: Sequence[str]) -> list[str]:
    """Return the folders of pictures just written, and remove pictures of earlier exports.

    Points have moved since, so their pictures had other names.
    """
    names: dict[str, set[str]] = {}
    for path in paths:
        place, _, name = path.rpartition("/")
        names.setdefault(place, set()).add(name)
    for place, written in names.items():
        folder = open_folder(place)
        for name in folder.names(depth=0):
            if name not in written and _is_own_picture(folder, name):
                folder.remove(name)
    return list(names)


def _is_own_picture(folder: Folder, name: str) -> bool:
    named = _PICTURE.fullmatch(name) is not None
    return named and _PICTURE_MARK in (folder.read(name) or b"")


def export(
    evaluation: Evaluation, kind: str, path: Path, *, radii: Sequence[Radius] = ()
) -> list[Path]:
    """Write one evaluation in one format; return the files.

    Args:
        evaluation: Finished evaluation.
        kind: A format that has a file per evaluation: `csv`, `parquet`, `npz`, `card`, `classes` or
            `png`. NPZ holds images and adversarial points too.
        path: Output file; for `png` the folder of the pictures.
        radii: Radii at which accuracy is read, each with its label.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    if kind == "png":
        return list(_pictures(evaluation, path))
    if kind == "npz":
        _npz(evaluation, path)
    elif kind == "parquet":
        import pyarrow as pa  # noqa: PLC0415  # an extra
        import pyarrow.parquet as pq  # noqa: PLC0415

        pq.write_table(pa.Table.from_pylist(sample_table(evaluation).records()), path)
    elif kind == "card":
        text = json.dumps(jsonable(card(evaluation, radii)), indent=2, ensure_ascii=False)
        path.write_text(f"{text}\n", encoding="utf-8")
    else:
        table = sample_table(evaluation) if kind == "csv" else class_table(evaluation, radii)
        path.write_text(as_csv(table), encoding="utf-8")
    return [path]


def latex(summaries: Sequence[NormSummary]) -> str:
    """Return the summary tables for a paper that loads booktabs.

    Args:
        summaries: Summaries of any models and norms.
    """
    parts = ["% written by advfrontier; needs \\usepackage{booktabs}"]
    for table in summary_tables(summaries):
        symbols = replace(table, columns=(Column("norm", "norm"), *table.columns[1:]))
        parts += [f"% {printable(table.title)}", as_latex(symbols)]
    return "\n".join(parts) + "\n"


def card(evaluation: Evaluation, radii: Sequence[Radius] = ()) -> dict[str, Any]:
    """Return an entry of a leaderboard, with the field names of RobustBench's model cards.

    Args:
        evaluation: Finished evaluation.
        radii: Radii at which accuracy is read; the customary one or the last one is quoted.
    """
    summary, flags = summarise(evaluation, radii=radii, gallery=0), evaluation.flags
    at = quoted(summary) if summary.robust else None
    return {
        "name": printable(evaluation.model),
        "dataset": printable(evaluation.data),
        "threat_model": evaluation.norm,
        "eps": None if at is None else at.label,
        "clean_acc": f"{100 * evaluation.robust_accuracy(0):.2f}",
        "reported": None,
        "advfrontier_acc": None if at is None else f"{100 * at.accuracy.estimate:.2f}",
        "advfrontier_aurec": summary.aurec.estimate,
        "advfrontier_E": summary.E,
        "advfrontier_ensemble": printable(evaluation.ensemble.name),
        "advfrontier_queries": evaluation.ensemble.total,
        "unreliable": bool(doubts(flags)),
        "flags": [printable(str(flag)) for flag in flags],
        "samples": len(evaluation.samples),
        "additional_data": None,
        "link": None,
    }


def _parts(rows: Sequence[int]) -> list[list[int]]:
    """Return rows in groups whose images are read together."""
    return [list(rows[start : start + _AT_ONCE]) for start in range(0, len(rows), _AT_ONCE)]


def _pictures(evaluation: Evaluation, folder: Path) -> Iterator[Path]:
    """Write adversarial points as PNG, named by row, true class and predicted class."""
    from PIL import Image, PngImagePlugin  # noqa: PLC0415  # an extra

    mark = PngImagePlugin.PngInfo()
    mark.add_text("Software", "advfrontier")
    distances = evaluation.distances
    labels, predictions = evaluation.labels.tolist(), evaluation.predictions.tolist()
    folder.mkdir(parents=True, exist_ok=True)
    for rows in _parts(np.flatnonzero((distances > 0) & np.isfinite(distances)).tolist()):
        points = evaluation.points(rows)
        if evaluation.space is not None:
            points = evaluation.space.to_unit(points)
        if points.ndim != 4 or points.shape[1] not in (1, 3):
            raise FrontierError(
                f"the samples have shape {tuple(points.shape[1:])}: expected pictures with 1 or 3 "
                "channels; type --export npz"
            )
        for row, point in zip(rows, points, strict=True):
            path = folder / f"{row:06d}-class{labels[row]}-as{predictions[row]}.png"
            pixels = as_bytes(point)
            picture = Image.fromarray(pixels[:, :, 0] if pixels.shape[2] == 1 else pixels)
            picture.save(path, pnginfo=mark)
            yield path


def _npz(evaluation: Evaluation, path: Path) -> None:
    """Write what `numpy.savez_compressed` would write, without all images in memory together."""
    table = sample_table(evaluation)
    with ZipFile(path, "w", ZIP_DEFLATED) as file:
        for index, column in enumerate(table.columns):
            values = np.asarray([row[index] for row in table.rows])
            with file.open(f"{column.name}.npy", "w") as entry:
                np.lib.format.write_array(entry, values, allow_pickle=False)
        for name, read in (("images", evaluation.images), ("adversarials", evaluation.points)):
            with file.open(f"{name}.npy", "w", force_zip64=True) as entry:
                for index, rows in enumerate(_parts(range(len(table.rows)))):
                    array = read(rows).numpy()
                    if index == 0:
                        header = np.lib.format.header_data_from_array_1_0(array)
                        header["shape"] = (len(table.rows), *array.shape[1:])
                        np.lib.format.write_array_header_1_0(entry, header)
                    entry.write(np.ascontiguousarray(array).tobytes())
