"""Export figures for other programs and for papers: tables, cards, points, pictures, LaTeX, a ready sentence."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from zipfile import ZIP_DEFLATED, ZipFile

import numpy as np

from advfrontier.errors import FrontierError
from advfrontier.evaluation.evaluation import Evaluation
from advfrontier.evaluation.radii import Radius, chosen_radii
from advfrontier.evaluation.samples import as_bytes, class_table, sample_table
from advfrontier.evaluation.summary import NormSummary, summarise
from advfrontier.flags import doubts
from advfrontier.jsonable import jsonable
from advfrontier.record.folder import Folder, below, open_folder, write_files
from advfrontier.report.html import PNG_MARK, png
from advfrontier.report.render import as_csv, as_latex, printable
from advfrontier.report.summary import summary_tables
from advfrontier.report.words import CITATION, quoted, sentence
from advfrontier.table import Column

_AT_ONCE = 100  # samples whose images are read together
_PICTURE = re.compile(r"\d{6}-class\d+-as\d+\.png")


# What a format is called when it is written, how its files are named, and by what they are known as our own.
_EACH = {  # one per evaluation
    "csv": ("table", ".csv", b"adversarial_class"),
    "parquet": ("table", ".parquet", b"adversarial_class"),
    "npz": ("points", ".npz", b"adversarial_class"),
    "card": ("card", ".json", b"advfrontier_ensemble"),
    "classes": ("classes", "-classes.csv", b"median_distance"),
    "png": ("pictures", "-png", PNG_MARK),
}
_ALL = {  # one for all of them
    "latex": ("table", "summary.tex", b"advfrontier"),
    "sentence": ("sentence", "sentence.txt", b"advfrontier"),
}
FORMATS = (*_EACH, *_ALL)


def parse_formats(text: str | None) -> tuple[str, ...]:
    """The formats named, with commas between them; refuses others, and those whose library is missing."""
    kinds = tuple(dict.fromkeys(part.strip() for part in (text or "").split(",") if part.strip()))
    if unknown := [kind for kind in kinds if kind not in FORMATS]:
        raise FrontierError(
            f"cannot export {unknown[0]!r}: expected some of {', '.join(FORMATS)}, with commas"
        )
    if "parquet" in kinds and find_spec("pyarrow") is None:
        raise FrontierError("Parquet needs pyarrow: type pip install 'advfrontier[parquet]'")
    return kinds


def export_all(
    evaluations: Sequence[Evaluation],
    summaries: Sequence[NormSummary],
    folder: str,
    kinds: Sequence[str],
    *,
    radii: str | None = None,
) -> Iterator[tuple[str, str]]:
    """Write into a folder; yields what was written and where.

    Files of one evaluation are named after its record, if that is below the folder: there may be several models.
    """
    root = below(open_folder(folder).place, "")  # an address may end with a slash

    def write(kind: str, ending: str, aside: Path) -> Iterator[Path]:
        if kind in _ALL:
            text = latex(summaries) if kind == "latex" else f"{sentence(summaries)}\n\n{CITATION}\n"
            (aside / ending).write_text(text, "utf-8")
            yield aside / ending
            return
        for evaluation in evaluations:
            inside = (
                evaluation.place.removeprefix(root)
                if evaluation.place.startswith(root)
                else evaluation.norm
            )
            yield from export(
                evaluation, kind, aside / f"{inside}{ending}", radii=chosen_radii(evaluation, radii)
            )

    for kind in kinds:
        what, ending, mark = _EACH.get(kind) or _ALL[kind]
        paths = write_files(folder, partial(write, kind, ending), mark=mark)
        if kind == "png":
            folders = dict.fromkeys(path.rpartition("/")[0] for path in paths)
            for pictures in folders:
                own = {
                    name
                    for place, _, name in (path.rpartition("/") for path in paths)
                    if place == pictures
                }
                _remove_older(open_folder(pictures), own)
            paths = list(folders)
        for path in paths:
            yield what, path


def _remove_older(pictures: Folder, written: set[str]) -> None:
    """Remove pictures of an earlier export whose names are not among those just written: points have moved since."""
    for name in pictures.names(depth=0):
        if (
            name not in written
            and _PICTURE.fullmatch(name)
            and PNG_MARK in (pictures.read(name) or b"")
        ):
            pictures.remove(name)


def export(
    evaluation: Evaluation, kind: str, path: Path, *, radii: Sequence[Radius] = ()
) -> list[Path]:
    """Write one evaluation in a format of its own. NPZ holds the images and the adversarial points too."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if kind == "png":
        return list(_pictures(evaluation, path))
    if kind in ("csv", "classes"):
        table = sample_table(evaluation) if kind == "csv" else class_table(evaluation, radii)
        path.write_text(as_csv(table), encoding="utf-8")
    elif kind == "parquet":
        import pyarrow as pa  # noqa: PLC0415  # an extra
        import pyarrow.parquet as pq  # noqa: PLC0415

        pq.write_table(pa.Table.from_pylist(sample_table(evaluation).records()), path)
    elif kind == "npz":
        _npz(evaluation, path)
    else:
        text = json.dumps(jsonable(card(evaluation, radii)), indent=2, ensure_ascii=False)
        path.write_text(text + "\n", encoding="utf-8")
    return [path]


def latex(summaries: Sequence[NormSummary]) -> str:
    """The summary tables for a paper, which has to load booktabs."""
    parts = ["% written by advfrontier; needs \\usepackage{booktabs}"]
    for table in summary_tables(summaries):
        spelt = replace(table, columns=(Column("norm", "norm"), *table.columns[1:]))
        parts += [f"% {printable(table.title)}", as_latex(spelt)]
    return "\n".join(parts) + "\n"


def card(evaluation: Evaluation, radii: Sequence[Radius] = ()) -> dict[str, Any]:
    """What a leaderboard entry says, with the field names of RobustBench's model cards where it has them."""
    summary, flags = summarise(evaluation, radii=radii, gallery=0), evaluation.flags
    at = quoted(summary) if summary.robust else None
    return {
        "name": evaluation.model,
        "dataset": evaluation.data,
        "threat_model": evaluation.norm,
        "eps": None if at is None else at.label,
        "clean_acc": f"{100 * evaluation.robust_accuracy(0):.2f}",
        "reported": None,
        "advfrontier_acc": None if at is None else f"{100 * at.accuracy.estimate:.2f}",
        "advfrontier_aurec": summary.aurec.estimate,
        "advfrontier_E": summary.E,
        "advfrontier_ensemble": evaluation.ensemble.name,
        "advfrontier_queries": evaluation.ensemble.total,
        "unreliable": bool(doubts(flags)),
        "flags": [str(flag) for flag in flags],
        "samples": len(evaluation.samples),
        "additional_data": None,
        "link": None,
    }


def _parts(rows: Sequence[int]) -> list[list[int]]:
    """Rows whose images are read together."""
    return [list(rows[start : start + _AT_ONCE]) for start in range(0, len(rows), _AT_ONCE)]


def _pictures(evaluation: Evaluation, folder: Path) -> Iterator[Path]:
    """The adversarial points as pictures of 8 bits, named by row, true class and the class they are taken for."""
    d, labels, seen = (
        evaluation.distances,
        evaluation.labels.tolist(),
        evaluation.predictions.tolist(),
    )
    folder.mkdir(parents=True, exist_ok=True)
    for rows in _parts(np.flatnonzero((d > 0) & np.isfinite(d)).tolist()):
        points = evaluation.points(rows)
        if points.ndim != 4 or points.shape[1] not in (1, 3):
            raise FrontierError(
                f"the samples have shape {tuple(points.shape[1:])}: expected pictures with 1 or 3 channels; type "
                "--export npz"
            )
        for row, point in zip(rows, points, strict=True):
            path = folder / f"{row:06d}-class{labels[row]}-as{seen[row]}.png"
            path.write_bytes(png(as_bytes(point)))
            yield path


def _npz(evaluation: Evaluation, path: Path) -> None:
    """As `numpy.savez_compressed`, but images and points go in some at a time and are never in memory together."""
    table = sample_table(evaluation)
    with ZipFile(path, "w", ZIP_DEFLATED) as file:
        for column, values in zip(table.columns, zip(*table.rows, strict=True), strict=True):
            with file.open(f"{column.name}.npy", "w") as entry:
                np.lib.format.write_array(entry, np.asarray(values), allow_pickle=False)
        for name, read in (("images", evaluation.images), ("adversarials", evaluation.points)):
            with file.open(f"{name}.npy", "w", force_zip64=True) as entry:
                for k, rows in enumerate(_parts(range(len(table.rows)))):
                    array = read(rows).numpy()
                    if k == 0:
                        header = np.lib.format.header_data_from_array_1_0(array)
                        header["shape"] = (len(table.rows), *array.shape[1:])
                        np.lib.format.write_array_header_1_0(entry, header)
                    entry.write(np.ascontiguousarray(array).tobytes())
