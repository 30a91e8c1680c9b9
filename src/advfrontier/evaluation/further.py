"""Expected change by further queries, from the embedded models, with its interval.

`further_queries.toml` says by which share further queries of the default ensembles lowered the
AUREC and the mean distance of the embedded models that the ensembles were learned on.
`scripts/further_queries.py` makes the file, and tries its intervals on the other models.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Annotated, Self

import numpy as np
from numpy.typing import ArrayLike
from pydantic import Field, model_validator
from scipy.stats import t as student

from advfrontier.errors import FrontierError
from advfrontier.frontier.confidence import Interval
from advfrontier.frontier.curve import aurec
from advfrontier.frontier.measure import as_pair
from advfrontier.pool import TIERS, Ensemble, find_ensemble, tier_label
from advfrontier.toml import TomlTable, parse_toml

FILE = "further_queries.toml"
LEVEL = 0.9  # of the intervals
# The embedded models are few and not drawn alike. The ends are those of a wider interval, so that
# the changes of models that took no part lie inside about as often as LEVEL says.
WIDENED = 0.95
FIRST = 1000  # queries; with fewer, distances are first estimates

_Share = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]
_Shares = tuple[_Share, _Share, _Share]  # lower end, median, upper end


class Row(TomlTable):
    """Share by which further queries lowered results, from a number of queries on.

    Args:
        queries: Queries per sample so far.
        aurec: Lower end, median and upper end of the decrease of AUREC, up to the E of the results
            so far.
        distance: Lower end, median and upper end of the decrease of the mean distance of the
            samples broken so far.
    """

    queries: Annotated[int, Field(ge=10, lt=2**31)]
    aurec: _Shares
    distance: _Shares

    @model_validator(mode="after")
    def _check_order(self) -> Self:
        for shares in (self.aurec, self.distance):
            if list(shares) != sorted(shares):
                raise ValueError(f"{shares} does not rise: expected low, median, high")
        return self


class NormRows(TomlTable):
    """Rows of a norm, by rising queries.

    Args:
        norm: Name of the norm.
        rows: Expected decreases, by rising queries per sample.
    """

    norm: str
    rows: Annotated[tuple[Row, ...], Field(min_length=1)]

    @model_validator(mode="after")
    def _check_order(self) -> Self:
        queries = [row.queries for row in self.rows]
        if queries != sorted(set(queries)):
            raise ValueError(f"the queries {queries} do not rise")
        return self


class FurtherTable(TomlTable):
    """Changes by further queries on the embedded models.

    Args:
        models: Names of the models that were measured, three at least.
        data: Name of the data.
        samples: Samples per model.
        queries: Queries per sample at which the measured ensembles ended.
        norms: Expected decreases in each norm.
    """

    models: Annotated[tuple[str, ...], Field(min_length=3)]
    data: str
    samples: Annotated[int, Field(ge=1)]
    queries: Annotated[int, Field(ge=10, lt=2**31)]
    norms: tuple[NormRows, ...]


@dataclass(frozen=True)
class Further:
    """Expected change by further queries.

    Args:
        queries: Queries per sample, up to which the expectation holds.
        aurec: Relative decrease of AUREC: median and 90 % interval.
        distance: Relative decrease of the mean distance of the broken samples.
        models: Number of embedded models that the expectation comes from.
        data: Data of these models.
    """

    queries: int
    aurec: Interval
    distance: Interval
    models: int
    data: str


def expected_change(ensemble: Ensemble, classes: int) -> Further | None:
    """Return what further queries of the default ensemble are expected to change.

    Between two budgets of the table each figure is interpolated linearly in the logarithm of the
    budget. None for other ensembles, for norms without a table, below the first budget of the
    table and at its end.

    Args:
        ensemble: Ensemble, cut at the queries that the evaluation has spent.
        classes: Number of classes of the model.
    """
    table = load_table()
    for entry in table.norms:
        if entry.norm == ensemble.norm:
            rows = entry.rows
            break
    else:
        return None
    spent = ensemble.total
    if not rows[0].queries <= spent < table.queries or not _is_default(ensemble, classes):
        return None
    return Further(
        queries=table.queries,
        aurec=_between(table, rows, spent, "aurec"),
        distance=_between(table, rows, spent, "distance"),
        models=len(table.models),
        data=table.data,
    )


@cache
def load_table() -> FurtherTable:
    """Return the table of the package."""
    text = files("advfrontier.evaluation").joinpath(FILE).read_text(encoding="utf-8")
    return parse_toml(FurtherTable, text, FILE)


def _is_default(ensemble: Ensemble, classes: int) -> bool:
    """Tell whether an ensemble is a prefix of the default one."""
    try:
        return find_ensemble(tier_label(TIERS[-1]), ensemble.norm, classes).holds(ensemble)
    except FrontierError:  # a model of few classes may lack runs
        return False


def _between(table: FurtherTable, rows: Sequence[Row], spent: int, name: str) -> Interval:
    """Return an interval at a budget, between those of the rows around it."""
    budgets = [row.queries for row in rows]
    shares = [getattr(row, name) for row in rows]
    if budgets[-1] < table.queries:  # where nothing is left to change
        budgets.append(table.queries)
        shares.append((0.0, 0.0, 0.0))
    ends = []
    for column in zip(*shares, strict=True):
        ends.append(float(np.interp(np.log(spent), np.log(budgets), column)))
    low, median, high = ends
    return Interval(median, low, high, level=LEVEL)


# How the table is made


def relative_changes(before: ArrayLike, after: ArrayLike) -> tuple[float, float]:
    """Return by which share AUREC and the mean distance fell.

    Args:
        before: Distances of the samples, inf where unbroken.
        after: Distances after further queries.

    Returns:
        The decrease of AUREC up to the E of `before`, and of the mean distance of the samples that
        were broken before. NaN where no sample was.
    """
    early, late = as_pair(before, after, what=("distances before", "distances after"))
    broken = np.isfinite(early) & (early > 0)
    if not broken.any():
        return float("nan"), float("nan")
    limit = float(early[broken].max())
    area = 1 - aurec(late, E=limit).value / aurec(early, E=limit).value
    mean = 1 - late[broken].sum() / early[broken].sum()
    return max(area, 0.0), max(float(mean), 0.0)


def prediction_interval(changes: ArrayLike, *, level: float = WIDENED) -> _Shares:
    """Return where the change of one more model lies: lower end, median, upper end.

    Cube roots of positive, skewed figures are close to normal (Wilson and Hilferty 1931), zeros
    included. The interval is Student's for one more draw from a normal distribution, of the cube
    roots; its ends and its middle are cubed.

    Args:
        changes: (models,) relative decreases, three models at least.
        level: Share of further models that lie inside.
    """
    roots = np.cbrt(np.asarray(changes, dtype=np.float64))
    count = roots.size
    if count < 3:
        raise FrontierError(f"changes of {count} models: expected three or more")
    middle = roots.mean()
    width = student.ppf((1 + level) / 2, count - 1) * roots.std(ddof=1) * np.sqrt(1 + 1 / count)
    low, median, high = np.clip([middle - width, middle, middle + width], 0, 1) ** 3
    return float(low), float(median), float(high)
