"""Export a record's figures: a table as CSV, Parquet or NPZ, or a card in the style of RobustBench's."""

from __future__ import annotations

import csv
import json
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any
from zipfile import ZIP_DEFLATED, ZipFile

import numpy as np

from advfrontier.errors import FrontierError
from advfrontier.evaluation.radii import chosen_radii
from advfrontier.flags import doubts
from advfrontier.jsonable import jsonable
from advfrontier.record.folder import open_folder, write_files

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

    from advfrontier.evaluation.evaluation import Evaluation
    from advfrontier.evaluation.radii import Radius

_AT_ONCE = 100  # samples whose images are read together
FORMATS = ("csv", "parquet", "npz", "card")


def check_format(kind: str | None) -> None:
    """Refuse a format that is not offered, or whose library is missing."""
    if kind is not None and kind not in FORMATS:
        raise FrontierError(f"cannot export {kind!r}: expected one of {', '.join(FORMATS)}")
    if kind == "parquet" and find_spec("pyarrow") is None:
        raise FrontierError("Parquet needs pyarrow: type pip install 'advfrontier[parquet]'")


def export(evaluation: Evaluation, kind: str, path: Path, *, radii: Sequence[Radius] = ()) -> Path:
    """Write one evaluation in a format of `FORMATS`. NPZ holds the images and the adversarial points too."""
    check_format(kind)
    path.parent.mkdir(parents=True, exist_ok=True)
    columns = _columns(evaluation)
    if kind == "csv":
        with path.open("w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file)
            writer.writerow(columns)
            writer.writerows(zip(*columns.values(), strict=True))
    elif kind == "parquet":
        _parquet(columns, path)
    elif kind == "npz":
        _npz(evaluation, columns, path)
    else:
        text = json.dumps(jsonable(card(evaluation, radii)), indent=2, ensure_ascii=False)
        path.write_text(text + "\n", encoding="utf-8")
    return path


def export_all(evaluations: Iterable[Evaluation], folder: str, kind: str, *, radii: str | None = None) -> list[str]:
    """Write every evaluation into a folder, named after its record: below the folder there may be several models."""
    root, ending = open_folder(folder).place, "json" if kind == "card" else kind

    def write(aside: Path) -> Iterator[Path]:
        for evaluation in evaluations:
            inside = evaluation.place.removeprefix(root).strip("/") or evaluation.norm
            yield export(evaluation, kind, aside / f"{inside}.{ending}", radii=chosen_radii(evaluation, radii))

    mark = b"advfrontier_ensemble" if kind == "card" else b"adversarial_class"  # a table of somebody else's is kept
    return [str(path) for path in write_files(folder, write, mark=mark)]


def card(evaluation: Evaluation, radii: Sequence[Radius] = ()) -> dict[str, Any]:
    """What a leaderboard entry says, with the field names of RobustBench's model cards where it has them."""
    label, size = radii[0] if radii else ("", 0.0)
    flags = evaluation.flags
    return {
        "name": evaluation.model,
        "dataset": evaluation.data,
        "threat_model": evaluation.norm,
        "eps": label or None,
        "clean_acc": f"{100 * evaluation.robust_accuracy(0):.2f}",
        "reported": None,
        "advfrontier_acc": f"{100 * evaluation.robust_accuracy(size):.2f}" if label else None,
        "advfrontier_aurec": evaluation.aurec().value,
        "advfrontier_ensemble": evaluation.ensemble.name,
        "advfrontier_queries": evaluation.ensemble.total,
        "unreliable": bool(doubts(flags)),
        "flags": [str(flag) for flag in flags],
        "samples": len(evaluation.samples),
        "additional_data": None,
        "link": None,
    }


def _columns(evaluation: Evaluation) -> dict[str, list[Any]]:
    return {
        "sample": list(evaluation.samples),
        "label": evaluation.labels.tolist(),
        "prediction": evaluation.clean_logits.argmax(1).tolist(),
        "distance": evaluation.distances.tolist(),
        "adversarial_class": evaluation.predictions.tolist(),
        "winner": [winner or "" for winner in evaluation.winners],
        "queries": evaluation.queries.tolist(),
    }


def _npz(evaluation: Evaluation, columns: dict[str, list[Any]], path: Path) -> None:
    """As `numpy.savez_compressed`, but images and points go in some at a time and are never in memory together."""
    parts = np.array_split(np.arange(len(evaluation.samples)), -(-len(evaluation.samples) // _AT_ONCE))
    with ZipFile(path, "w", ZIP_DEFLATED) as file:
        for name, column in columns.items():
            with file.open(f"{name}.npy", "w") as entry:
                np.lib.format.write_array(entry, np.asarray(column), allow_pickle=False)
        for name, read in (("images", evaluation.images), ("adversarials", evaluation.points)):
            with file.open(f"{name}.npy", "w", force_zip64=True) as entry:
                for k, rows in enumerate(parts):
                    array = read(rows.tolist()).numpy()
                    if k == 0:
                        header = np.lib.format.header_data_from_array_1_0(array)
                        header["shape"] = (len(evaluation.samples), *array.shape[1:])
                        np.lib.format.write_array_header_1_0(entry, header)
                    entry.write(np.ascontiguousarray(array).tobytes())


def _parquet(columns: dict[str, list[Any]], path: Path) -> None:
    import pyarrow as pa  # noqa: PLC0415  # an extra
    import pyarrow.parquet as pq  # noqa: PLC0415

    pq.write_table(pa.table(columns), path)
