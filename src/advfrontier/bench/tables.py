"""Tables of the paper, each a few lines of `groupby` on the table of distances.

| paper | here |
|---|---|
| the model pool; the attack pool | `models`, `attacks` |
| deployable ensembles | `ensemble_queries` |
| AOI per model against AutoAttack | `aoi` |
| AOI against queries, training and held-out models | `aoi_by_split` |
| robust accuracy at the reference ε, with AutoAttack's queries | `robust_accuracy` |
| the counts of the abstract | `against_autoattack` |
| best and worst case against AutoAttack | `extreme_cases` |
| curves that cross beyond the reference ε | `crossings` |
| rank instability | `ranks_by_radius` |
| DOI at three budgets | `doi` |
| early rejection | `rejections` |

All figures are shares, not percentages. A model, norm, ensemble or budget without rows in the
table of distances has no rows in the results; nothing is an error.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from advfrontier.bench.benchmark import HELD_OUT, Benchmark
from advfrontier.bench.frame import DEFAULT, FAMILIES, GREEDY, pd
from advfrontier.frontier.comparison import (
    RankStability,
    lies_below,
    rank_accuracies,
    rank_stability,
    reversals,
)
from advfrontier.frontier.curve import Curve, aurec, epsilon_min
from advfrontier.frontier.curve import robust_accuracy as accuracy_at
from advfrontier.frontier.defence import defence_frontier
from advfrontier.frontier.defence import doi as doi_of
from advfrontier.frontier.optimality import (
    aoi as aoi_of,
)
from advfrontier.frontier.optimality import (
    baseline_aoi,
    baseline_radii,
    excess,
    known_up_to,
    straight_accuracies,
)
from advfrontier.pool import Ensemble, Run, facts_of

ByModel = dict[str, NDArray[np.float64]]  # model → distance per sample
Radii = Mapping[str, Mapping[str, float]]  # data → norm → reference radius

AUTOATTACK = "AutoAttack"
_MODEL = ["norm", "data", "split", "model"]
_TIER = [*_MODEL, "ensemble", "budget"]
_EQUAL = 1e-9  # accuracies are shares of the same samples: counts that are equal stay equal


# Building blocks


def with_frontier(distances: pd.DataFrame) -> pd.DataFrame:
    """Add the column `frontier`: the least distance in any row of a model, norm and sample.

    Args:
        distances: Table of distances: a row per model, norm, ensemble, budget and sample.
    """
    keys = ["norm", "model", "sample"]
    nearest = distances.groupby(keys, observed=True)["distance"].transform("min")
    return distances.assign(frontier=nearest)


def tiers(distances: pd.DataFrame, budgets: Collection[int] | None = None) -> pd.DataFrame:
    """Return the rows of the ensembles, without those of single runs; at these budgets, or all.

    Args:
        distances: Table of distances: a row per model, norm, ensemble, budget and sample.
        budgets: Budgets to take, in queries per sample.
    """
    rows = distances[distances["ensemble"].isin(FAMILIES)]
    return rows if budgets is None else rows[rows["budget"].isin(budgets)]


def ranking_family(distances: pd.DataFrame) -> str:
    """Return the ensembles that models are ranked by: the default where every model has all of it.

    Args:
        distances: Table of distances: a row per model, norm, ensemble, budget and sample.
    """
    rows = tiers(distances)
    largest = rows[rows["budget"] == rows["budget"].max()]
    pairs = largest[["norm", "model", "ensemble"]].drop_duplicates()["ensemble"].value_counts()
    return DEFAULT if pairs.get(DEFAULT, 0) >= pairs.get(GREEDY, 0) else GREEDY


def by_model(rows: pd.DataFrame) -> ByModel:
    """Return model to distances, from rows of one norm, data set, ensemble and budget.

    Args:
        rows: Rows of the table of distances.
    """
    wide = rows.pivot(index="sample", columns="model", values="distance")
    return {str(model): wide[model].to_numpy() for model in wide.columns}


def groups(
    distances: pd.DataFrame, family: str, budgets: Collection[int]
) -> Iterator[tuple[str, str, dict[int, ByModel]]]:
    """Yield norm, data set, and budget to the distances of its models.

    Args:
        distances: Table of distances: a row per model, norm, ensemble, budget and sample.
        family: Family of ensembles: `default`, `greedy` or `paper`.
        budgets: Budgets to take, in queries per sample.
    """
    rows = tiers(distances, budgets)
    rows = rows[rows["ensemble"] == family]
    for (norm, data), own in rows.groupby(["norm", "data"], observed=True, sort=False):
        found = {}
        for budget, part in own.groupby("budget"):
            found[int(budget)] = by_model(part)
        yield norm, data, found


def in_doubt(flags: pd.DataFrame, norm: str) -> set[str]:
    """Return the models with a warning that their distances in a norm may be too large.

    Args:
        flags: Table of warnings.
        norm: Name of the norm.
    """
    own = flags[(flags["norm"] == norm) & flags["doubtful"] & (flags["source"] != "autoattack")]
    return set(own["model"])


def trusted(distances: ByModel, doubted: Collection[str]) -> ByModel:
    """Return the models that are not in doubt and that were broken on every sample.

    Args:
        distances: Model to its distance per sample, (n,).
        doubted: Names of models in doubt.
    """
    return {m: d for m, d in distances.items() if m not in doubted and np.isfinite(d).all()}


# The tables


def models(benchmark: Benchmark, distances: pd.DataFrame) -> pd.DataFrame:
    """Return the model pool with the accuracy on unperturbed samples.

    Args:
        benchmark: Benchmark that names the models and their splits.
        distances: Table of distances: a row per model, norm, ensemble, budget and sample.
    """
    clean = distances.groupby("model", observed=True)["distance"].agg(lambda d: (d > 0).mean())
    rows = []
    for model in benchmark.models:
        accuracy = clean.get(model.id, np.nan)
        rows.append((model.id, model.source, model.split, model.batch, accuracy, model.about))
    columns = ["model", "source", "split", "batch", "accuracy", "about"]
    return pd.DataFrame(rows, columns=columns)


def attacks(distances: pd.DataFrame) -> pd.DataFrame:
    """Return the attack pool: solvers with the number of their runs in every norm.

    Args:
        distances: Table of distances: a row per model, norm, ensemble, budget and sample.
    """
    runs = distances[~distances["ensemble"].isin(FAMILIES)]
    runs = runs[["norm", "ensemble"]].drop_duplicates()
    runs = runs.assign(solver=[Run.parse(name).solver for name in runs["ensemble"]])
    counts = runs.pivot_table(index="solver", columns="norm", aggfunc="size", fill_value=0)
    facts = {solver: facts_of(solver) for solver in counts.index}
    in_paper = [known is not None and "paper" in known.pools for known in facts.values()]
    counts.insert(0, "in the paper", in_paper)
    return counts.reset_index().rename_axis(columns=None)


def ensemble_queries(ensembles: Mapping[tuple[str, int], Ensemble]) -> pd.DataFrame:
    """Return the queries of greedy ensembles per attack and variant, one column per budget.

    Args:
        ensembles: (norm, budget) to the greedy ensemble.
    """
    rows = []
    for (norm, budget), ensemble in ensembles.items():
        for name, queries in ensemble.queries.items():
            run = Run.parse(name)
            rows.append((norm, run.attack, run.variant, budget, queries))
    table = pd.DataFrame(rows, columns=["norm", "attack", "variant", "budget", "queries"])
    keys = ["norm", "attack", "variant"]
    wide = table.pivot_table(index=keys, columns="budget", values="queries", aggfunc="sum")
    return wide.reset_index().rename_axis(columns=None)


def aoi(distances: pd.DataFrame, points: pd.DataFrame) -> pd.DataFrame:
    """Return AOI per model, ensemble and budget, beside AutoAttack's.

    Columns: `aoi`; `above`, by how much distances exceed the frontier on average; `lines`, the AOI
    read off straight lines between AutoAttack's radii; `autoattack`, its own by such lines.

    Args:
        distances: Table of distances: a row per model, norm, ensemble, budget and sample.
        points: Table of AutoAttack's accuracies by radius.
    """
    known = dict(list(points.groupby(["norm", "model"])))

    def scores(rows: pd.DataFrame) -> pd.Series:
        found, frontier = rows["distance"].to_numpy(), rows["frontier"].to_numpy()
        lines = autoattack = np.nan
        own = known.get((rows.name[0], rows.name[3]))
        if own is not None:
            radii = own["radius"].to_numpy()
            lines = baseline_aoi(radii, Curve.of(found).at(radii), frontier).value
            autoattack = baseline_aoi(radii, own["accuracy"], frontier).value
        reached, above = aoi_of(found, frontier).value, excess(found, frontier)
        values = {"aoi": reached, "above": above, "lines": lines, "autoattack": autoattack}
        return pd.Series(values)

    rows = tiers(with_frontier(distances)).groupby(_TIER, observed=True, sort=False)
    table = rows[["distance", "frontier"]].apply(scores).reset_index()
    return table.reindex(columns=[*_TIER, "aoi", "above", "lines", "autoattack"])


def aoi_by_split(scores: pd.DataFrame) -> pd.DataFrame:
    """Return mean AOI and mean distance above the frontier of every ensemble and split.

    Args:
        scores: Table that `aoi` returns.
    """
    keys = ["norm", "ensemble", "budget", "split"]
    return scores.groupby(keys, observed=True, sort=False)[["aoi", "above"]].mean().reset_index()


def robust_accuracy(distances: pd.DataFrame, points: pd.DataFrame, radii: Radii) -> pd.DataFrame:
    """Return robust accuracy at the reference radius, beside AutoAttack's and its queries.

    Args:
        distances: Table of distances: a row per model, norm, ensemble, budget and sample.
        points: Table of AutoAttack's accuracies by radius.
        radii: Data to norm to reference radius.
    """
    rows = tiers(distances)
    place = pd.MultiIndex.from_frame(rows[["data", "norm"]])
    rows = rows.assign(radius=place.map(_flat(radii)).astype(float)).dropna(subset="radius")
    rows = rows.assign(accuracy=rows["distance"] > rows["radius"])
    robust = rows.groupby([*_TIER, "radius"], observed=True, sort=False)["accuracy"].mean()
    own = points.rename(columns={"accuracy": "autoattack"})
    return robust.reset_index().merge(own, "left", on=["norm", "model", "radius"])


def against_autoattack(scores: pd.DataFrame, accuracies: pd.DataFrame) -> pd.DataFrame:
    """Return on how many models an ensemble reaches AutoAttack, per norm and split.

    Columns: `models` AutoAttack was run on; `aoi` and `lines`, on how many of them the AOI is at
    least AutoAttack's, exactly or by straight lines; `accuracy`, on how many the robust accuracy
    is at most AutoAttack's; `gain`, by how much it is lower on average; `queries`, AutoAttack's.

    Args:
        scores: Table that `aoi` returns.
        accuracies: Table that `robust_accuracy` returns.
    """
    keys = ["norm", "split", "ensemble", "budget"]
    known = scores.dropna(subset="autoattack")
    at_least = known.assign(
        aoi=known["aoi"] >= known["autoattack"], lines=known["lines"] >= known["autoattack"]
    )
    counts = at_least.groupby(keys, observed=True, sort=False)[["aoi", "lines"]].sum()
    counts.insert(0, "models", at_least.groupby(keys, observed=True).size())
    read = accuracies.dropna(subset="autoattack")
    read = read.assign(gain=read["autoattack"] - read["accuracy"])
    read = read.assign(accuracy=read["gain"] >= -_EQUAL).groupby(keys, observed=True)
    counts["accuracy"] = read["accuracy"].sum()
    return counts.join(read[["gain", "queries"]].mean()).reset_index()


def extreme_cases(scores: pd.DataFrame, family: str) -> pd.DataFrame:
    """Return where an ensemble gains most against AutoAttack, and least, by straight lines.

    The rows are the largest budget on held-out models, if AutoAttack was run on any.

    Args:
        scores: Table that `aoi` returns.
        family: Family of ensembles: `default`, `greedy` or `paper`.
    """
    rows = scores[scores["ensemble"] == family].dropna(subset="autoattack")
    rows = rows[rows["budget"] == rows["budget"].max()]
    if (rows["split"] == HELD_OUT).any():
        rows = rows[rows["split"] == HELD_OUT]
    ordered = rows.assign(gain=rows["lines"] - rows["autoattack"]).sort_values("gain")
    return ordered.iloc[[-1, 0][: len(ordered)]].reset_index(drop=True)


def crossings(
    distances: pd.DataFrame, flags: pd.DataFrame, radii: Radii, family: str, budget: int
) -> pd.DataFrame:
    """Return the pairs of models that change places beyond the reference radius, widest first.

    Columns: `leader` is ahead at the reference radius; `overtaken_by` is ahead from `epsilon` on,
    by at most `lead`. `samples` is the number of samples.

    Args:
        distances: Table of distances: a row per model, norm, ensemble, budget and sample.
        flags: Table of warnings.
        radii: Data to norm to reference radius.
        family: Family of ensembles: `default`, `greedy` or `paper`.
        budget: Budget of the ensemble, in queries per sample.
    """
    rows = []
    for norm, data, found in groups(distances, family, [budget]):
        sure = trusted(found[budget], in_doubt(flags, norm))
        radius = radii.get(data, {}).get(norm)
        if radius is None or len(sure) < 2:
            continue
        samples = len(next(iter(sure.values())))
        for pair in reversals(sure, reference=radius):
            values = (pair.leader, pair.overtaken_by, pair.epsilon, pair.lead)
            rows.append((norm, data, radius, len(sure), samples, *values))
    names = ["leader", "overtaken_by", "epsilon", "lead"]
    return pd.DataFrame(rows, columns=["norm", "data", "radius", "models", "samples", *names])


def ranks_by_radius(
    distances: pd.DataFrame,
    points: pd.DataFrame,
    flags: pd.DataFrame,
    *,
    radii: Radii,
    family: str,
    budget: int,
) -> dict[tuple[str, str, str], RankStability]:
    """Return (norm, data, who ranks) to the ranks of the models against the radius.

    An ensemble ranks at nine percentiles of the defence frontier and at the reference radius.
    AutoAttack ranks at nine percentiles of the radii it was run at, between which its accuracy is
    read off straight lines.

    Args:
        distances: Table of distances: a row per model, norm, ensemble, budget and sample.
        points: Table of AutoAttack's accuracies by radius.
        flags: Table of warnings.
        radii: Data to norm to reference radius.
        family: Family of ensembles: `default`, `greedy` or `paper`.
        budget: Budget of the ensemble, in queries per sample.
    """
    found = {}
    for norm, data, own in groups(distances, family, [budget]):
        sure = trusted(own[budget], in_doubt(flags, norm))
        reference = radii.get(data, {}).get(norm)
        frontier = defence_frontier(sure) if sure else np.zeros(1)
        if len(sure) > 1 and (frontier > 0).any():
            grid = baseline_radii(frontier, reference=reference)
            found[norm, data, family] = rank_stability(sure, epsilons=grid)
        known = points[(points["norm"] == norm) & points["model"].isin(list(sure))]
        if known["model"].nunique() > 1:
            found[norm, data, AUTOATTACK] = _ranks_of_points(known, sure, reference)
    return found


def doi(distances: pd.DataFrame, flags: pd.DataFrame, family: str) -> pd.DataFrame:
    """Return rank and DOI of every model at every budget, best first.

    Models in doubt are no part of the defence frontier; their `rank` is missing and they are last.

    Args:
        distances: Table of distances: a row per model, norm, ensemble, budget and sample.
        flags: Table of warnings.
        family: Family of ensembles: `default`, `greedy` or `paper`.
    """
    rows = []
    for norm, data, found in groups(distances, family, _budgets(distances, family)):
        for budget, own in found.items():
            sure = trusted(own, in_doubt(flags, norm))
            if not sure or max(d.max() for d in sure.values()) == 0:
                continue
            frontier = defence_frontier(sure)
            for model, d in own.items():
                value = doi_of(d, frontier).value
                rows.append((norm, data, budget, model, value, model in sure))
    table = pd.DataFrame(rows, columns=["norm", "data", "budget", "model", "doi", "sure"])
    table = table.astype({"sure": bool})
    sure = table[table["sure"]].groupby(["norm", "data", "budget"])["doi"]
    table["rank"] = sure.rank(method="min", ascending=False)
    order = ["norm", "data", "budget", "sure", "doi"]
    rising = [True, True, True, False, False]
    return table.sort_values(order, ascending=rising, kind="stable", ignore_index=True)


def rejections(
    distances: pd.DataFrame, flags: pd.DataFrame, family: str, budgets: Sequence[int]
) -> pd.DataFrame:
    """Return the pairs that the smallest budget decides: one curve lies below the other.

    A model whose curve at the smallest budget lies below another's at the largest is rejected,
    because more queries only lower it. `aurec` and `other` are the areas up to a common E.

    Args:
        distances: Table of distances: a row per model, norm, ensemble, budget and sample.
        flags: Table of warnings.
        family: Family of ensembles: `default`, `greedy` or `paper`.
        budgets: Budgets to take, in queries per sample.
    """
    first, last = min(budgets), max(budgets)
    rows = []
    for norm, data, found in groups(distances, family, [first, last]):
        doubted = in_doubt(flags, norm)
        early, late = (trusted(found.get(budget, {}), doubted) for budget in (first, last))
        for reference, other in late.items():
            for model, d in early.items():
                if model != reference and lies_below(d, other):
                    limit = epsilon_min(np.concatenate((d, other))).value
                    areas = (aurec(d, E=limit).value, aurec(other, E=limit).value)
                    rows.append((norm, data, model, reference, *areas))
    columns = ["norm", "data", "rejected", "against", "aurec", "other"]
    return pd.DataFrame(rows, columns=columns)


def _flat(radii: Radii) -> dict[tuple[str, str], float]:
    """Return (data, norm) to the reference radius."""
    flat = {}
    for data, own in radii.items():
        for norm, radius in own.items():
            flat[data, norm] = radius
    return flat


def _budgets(distances: pd.DataFrame, family: str) -> list[int]:
    return sorted(distances.loc[distances["ensemble"] == family, "budget"].unique().tolist())


def _ranks_of_points(
    points: pd.DataFrame, distances: ByModel, reference: float | None
) -> RankStability:
    """Return the ranks by AutoAttack, as far as its points go on every model."""
    own = {str(model): rows for model, rows in points.groupby("model")}
    reach = min(known_up_to(rows["radius"], rows["accuracy"]) for rows in own.values())
    inside = points.loc[points["radius"] <= reach, "radius"]
    common = reference if reference is not None and reference <= reach else None
    grid = baseline_radii(inside, reference=common)
    lines = {}
    for model, rows in own.items():
        clean = accuracy_at(distances[model], 0)
        lines[model] = straight_accuracies(rows["radius"], rows["accuracy"], grid, clean=clean)
    return rank_accuracies(lines, epsilons=grid)
