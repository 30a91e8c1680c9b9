"""Results of a benchmark: one tidy table of distances and two small ones, in one folder.

| file | one row per | columns |
|---|---|---|
| `results.parquet` | distance | norm, model, data, split, ensemble, budget, sample, distance |
| `autoattack.csv` | radius at which AutoAttack was run | norm, model, radius, accuracy, queries |
| `flags.csv` | warning about a model | norm, model, source, doubtful, text |
| `ensembles/L2-4k.toml` | | a greedy ensemble that was allocated on the training models |

`ensemble` is `default`, `greedy` or `paper`, or the name of a run that was traced on its own.
`distance` is 0 where the model misclassifies the sample, and `inf` where nothing was found.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from io import BytesIO
from os import PathLike
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from advfrontier.errors import FrontierError
from advfrontier.pool import Ensemble, tier_label, tier_queries
from advfrontier.record.folder import write_file
from advfrontier.threat.names import NORMS

try:
    import pandas as pd  # type: ignore[import-untyped]
    import pyarrow as pa  # noqa: F401  # pandas reads and writes Parquet with it
except ImportError as error:
    raise FrontierError(
        "tables of benchmarks need pandas and pyarrow: type "
        "pip install 'advfrontier[pandas,parquet]'"
    ) from error

__all__ = [
    "AUTOATTACK",
    "COLUMNS",
    "DEFAULT",
    "FAMILIES",
    "GREEDY",
    "PAPER",
    "TABLE",
    "Distances",
    "Results",
    "make_rows",
    "model_key",
    "pd",
]

DEFAULT, GREEDY, PAPER = "default", "greedy", "paper"
AUTOATTACK = "autoattack"  # source of warnings
FAMILIES = (DEFAULT, GREEDY, PAPER)
TABLE, POINTS, FLAGS = "results.parquet", "autoattack.csv", "flags.csv"
COLUMNS = ("norm", "model", "data", "split", "ensemble", "budget", "sample", "distance")
POINT_COLUMNS = ("norm", "model", "radius", "accuracy", "queries")
FLAG_COLUMNS = ("norm", "model", "source", "doubtful", "text")

Distances = Mapping[
    tuple[str, int], NDArray[np.float64]
]  # (ensemble, budget) → distance per sample


@dataclass
class Results:
    """Tables of a benchmark.

    Args:
        distances: One row per distance; see `COLUMNS`.
        points: AutoAttack's robust accuracy and queries per sample, one row per radius.
        flags: Warnings. `source` is the ensemble family, `trace` or `autoattack` they are about;
            `doubtful` ones say that distances may be too large.
        ensembles: (norm, budget) to the greedy ensemble.
    """

    distances: pd.DataFrame = field(default_factory=lambda: _empty(COLUMNS))
    points: pd.DataFrame = field(default_factory=lambda: _empty(POINT_COLUMNS))
    flags: pd.DataFrame = field(default_factory=lambda: _empty(FLAG_COLUMNS))
    ensembles: dict[tuple[str, int], Ensemble] = field(default_factory=dict)

    @classmethod
    def load(cls, folder: str | PathLike[str]) -> Results:
        """Read the tables of a folder; those that are missing are empty.

        Args:
            folder: Folder that `save` wrote, such as `docs/results`.
        """
        place = Path(folder)
        results = cls()
        if (place / TABLE).is_file():
            results.distances = _read(place / TABLE, COLUMNS)
        if (place / POINTS).is_file():
            results.points = _read(place / POINTS, POINT_COLUMNS)
        if (place / FLAGS).is_file():
            results.flags = _read(place / FLAGS, FLAG_COLUMNS)
        for path in sorted((place / "ensembles").glob("*.toml")):
            norm, _, budget = path.stem.partition("-")
            results.ensembles[norm, tier_queries(budget)] = Ensemble.load(path)
        return results

    def save(self, folder: str | PathLike[str]) -> list[Path]:
        """Write the tables in a fixed order, so that equal results are equal files.

        Args:
            folder: Folder of the Parquet and ensemble files; made if it is missing.

        Returns:
            The files.
        """
        place = Path(folder)
        target = BytesIO()
        _in_order(self.distances).to_parquet(target, index=False, compression="zstd")
        files = {place / TABLE: target.getvalue()}
        points = self.points.sort_values(["norm", "model", "radius"], key=_sort_key)
        files[place / POINTS] = points.to_csv(index=False).encode()
        flags = self.flags.sort_values(list(FLAG_COLUMNS), key=_sort_key)
        files[place / FLAGS] = flags.to_csv(index=False).encode()
        for (norm, budget), ensemble in self.ensembles.items():
            path = place / "ensembles" / f"{norm}-{tier_label(budget)}.toml"
            files[path] = ensemble.to_toml().encode()
        for path, content in files.items():
            write_file(path, content)
        return list(files)

    def put_distances(self, rows: pd.DataFrame) -> None:
        """Add distances; rows of the same model, norm and ensemble are replaced.

        Args:
            rows: Rows with the columns `COLUMNS`, as `make_rows` returns them.

        Raises:
            FrontierError: If the rows are about other samples than those of the same data.
        """
        held = _without(self.distances, rows, ["norm", "model", "ensemble"])
        for data, own in rows.groupby("data", observed=True):
            known = set(held.loc[held["data"] == data, "sample"])
            asked = set(own["sample"])
            if known and known != asked:
                raise FrontierError(
                    f"the table holds {len(known)} samples of {data}, the new rows are about "
                    f"{len(asked)}, of which {len(known & asked)} are the same: expected the same "
                    "samples; name another page, or remove the old table"
                )
        self.distances = _joined(held, rows)

    def put_points(self, rows: pd.DataFrame) -> None:
        """Add AutoAttack's points; those of the same model and norm are replaced.

        Args:
            rows: A row per model, norm and radius: robust accuracy and queries.
        """
        self.points = _joined(_without(self.points, rows, ["norm", "model"]), rows)

    def put_flags(self, norm: str, model: str, source: str, flags: Mapping[str, bool]) -> None:
        """Replace the warnings about a model from one source.

        Args:
            norm: Name of the norm.
            model: Id of the model.
            source: What the warnings are about: a family of ensembles, `trace` or `autoattack`.
            flags: Text to whether distances may be too large.
        """
        held = self.flags
        same = (held["norm"] == norm) & (held["model"] == model) & (held["source"] == source)
        rows = [(norm, model, source, doubtful, text) for text, doubtful in flags.items()]
        self.flags = _joined(held[~same], pd.DataFrame(rows, columns=list(FLAG_COLUMNS)))


def make_rows(
    *, norm: str, model: str, data: str, split: str, samples: Sequence[str], distances: Distances
) -> pd.DataFrame:
    """Return rows of the table of distances for one model in one norm.

    Args:
        norm: Name of the norm.
        model: Id of the model.
        data: Name of the model's data set in the benchmark.
        split: `train` or `held-out`.
        samples: Ids of the samples.
        distances: (ensemble, budget) to one distance per sample.
    """
    parts = [_empty(COLUMNS)]
    for (ensemble, budget), found in distances.items():
        rows = pd.DataFrame({"sample": list(samples), "distance": found})
        rows = rows.assign(norm=norm, model=model, data=data, split=split)
        rows = rows.assign(ensemble=ensemble, budget=budget)
        parts.append(rows[list(COLUMNS)])
    return _joined(*parts)


def _empty(columns: Sequence[str]) -> pd.DataFrame:
    return pd.DataFrame({name: pd.Series(dtype=_dtype(name)) for name in columns})


def _dtype(column: str) -> str:
    numbers = {"budget": "int64", "doubtful": "bool"}
    for name in ("distance", "radius", "accuracy", "queries"):
        numbers[name] = "float64"
    return numbers.get(column, "object")


def _joined(*parts: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of all parts; empty ones decide no types."""
    filled = [part for part in parts if len(part)]
    return pd.concat(filled, ignore_index=True) if filled else parts[0]


def _without(held: pd.DataFrame, rows: pd.DataFrame, keys: list[str]) -> pd.DataFrame:
    """Return the rows of `held` whose keys do not occur in `rows`."""
    replaced = pd.MultiIndex.from_frame(rows[keys].drop_duplicates())
    return held[~pd.MultiIndex.from_frame(held[keys]).isin(replaced)]


def _read(path: Path, columns: Sequence[str]) -> pd.DataFrame:
    read = pd.read_parquet if path.suffix == ".parquet" else _read_csv
    try:
        table = read(path)
    except (OSError, ValueError) as error:
        raise FrontierError(f"{path} cannot be read ({error}): restore it or remove it") from error
    if list(table.columns) != list(columns):
        raise FrontierError(
            f"{path} has the columns {', '.join(map(str, table.columns))}: expected "
            f"{', '.join(columns)}"
        )
    try:
        return table.astype({name: _dtype(name) for name in columns})
    except ValueError as error:
        raise FrontierError(f"{path} cannot be read ({error}): restore it or remove it") from error


def _read_csv(path: Path) -> pd.DataFrame:
    """Return a table of texts, which become numbers without being rounded twice."""
    table = pd.read_csv(path, dtype=str, keep_default_na=False)
    return table.assign(doubtful=table["doubtful"] == "True") if "doubtful" in table else table


def _sort_key(values: pd.Series) -> pd.Series:
    """Return what a column is sorted by: norms in their order, F2 before F10."""
    if values.name == "norm":
        return values.map({norm: place for place, norm in enumerate(NORMS)})
    if values.name == "model":
        return values.map(model_key)
    if values.name == "ensemble":
        return values.map(lambda name: (name not in FAMILIES, name))
    return values


def model_key(name: str) -> tuple[tuple[str, int], ...]:
    """Return a key that sorts F2 before F10.

    Args:
        name: Id of a model.
    """
    return tuple((text, int(number or 0)) for text, number in re.findall(r"(\D*)(\d{0,9})", name))


def _in_order(table: pd.DataFrame) -> pd.DataFrame:
    """Return the rows sorted, texts as categories; samples keep their order."""
    keys = ["norm", "model", "ensemble", "budget"]
    ordered = table.sort_values(keys, key=_sort_key, kind="stable", ignore_index=True)
    for name in COLUMNS:
        if _dtype(name) == "object":
            values = ordered[name]
            ordered[name] = pd.Categorical(values, categories=list(dict.fromkeys(values)))
    return ordered.astype({"budget": "int32"})
