"""Page of a benchmark as Markdown: at a glance, norm by norm, comparisons, warnings.

`update_page` first puts the rows of finished records in the tables beside the page. Rows that are
missing (a model, a norm, an ensemble) make tables shorter, and the page lists what is missing.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from html import escape
from os import PathLike
from pathlib import Path

from advfrontier.bench import tables
from advfrontier.bench.benchmark import HELD_OUT, TRAIN
from advfrontier.bench.collect import collect
from advfrontier.bench.folder import BASELINE, EVALUATE, Bench
from advfrontier.bench.frame import (
    AUTOATTACK,
    DEFAULT,
    FAMILIES,
    GREEDY,
    PAPER,
    TABLE,
    Results,
    model_key,
    pd,
)
from advfrontier.bench.published import published
from advfrontier.errors import FrontierError
from advfrontier.frontier.comparison import RankStability
from advfrontier.frontier.confidence import curve_margin
from advfrontier.pool import tier_label
from advfrontier.record.folder import check_writable, write_file
from advfrontier.report.benchmark_figures import draw_figures
from advfrontier.threat.names import NORMS, norm_symbol

_MARK = "`advfrontier bench page"  # by which a page is known as written here
_NONE = "–"
_SPLITS = {TRAIN: "training", HELD_OUT: "held-out"}
_LISTED = 3  # models named as the most robust


def update_page(
    bench: Bench, page: str | PathLike[str], *, norms: Sequence[str] = NORMS
) -> list[Path]:
    """Put the rows of finished records in the tables beside a page, and write all of it again.

    Args:
        bench: Benchmark, and the folder of its records, which may be empty.
        page: The page, such as `docs/results.md`; tables and figures are in `docs/results/`.
        norms: Norms whose records are looked at.

    Returns:
        The files that were written.
    """
    target = check_page(page)
    beside = target.with_suffix("")
    results = Results.load(beside)
    collect(bench, results, norms=norms)
    if results.distances.empty:
        raise FrontierError(
            f"no distances in {beside / TABLE} and no finished records below {bench.out}: type "
            f"`advfrontier bench run {bench.name}`"
        )
    written = results.save(beside)
    view = View(bench, results)
    figures = draw_figures(view, beside / "figures")
    links = {name: path.relative_to(target.parent).as_posix() for name, path in figures.items()}
    write_file(target, page_text(view, links, beside.name).encode())
    return [target, *written, *figures.values()]


def check_page(page: str | PathLike[str]) -> Path:
    """Return the path of a page; raise if it has no ending or somebody else wrote the file.

    Args:
        page: The page, such as `docs/results.md`.
    """
    target = Path(page)
    if not target.suffix:
        raise FrontierError(f"the page is {page}: expected a file such as results.md")
    check_writable(target, _MARK.encode())
    return target


@dataclass
class View:
    """Tables of a benchmark, each computed once for the page and its figures.

    Args:
        bench: Benchmark, and the folder of its records.
        results: Tables of the benchmark.
    """

    bench: Bench
    results: Results

    @property
    def budgets(self) -> tuple[int, ...]:
        """Return the budgets of the benchmark."""
        return self.bench.benchmark.budgets

    @cached_property
    def norms(self) -> list[str]:
        """Return the norms with rows."""
        found = set(self.results.distances["norm"])
        return [norm for norm in NORMS if norm in found]

    @cached_property
    def radii(self) -> dict[str, Mapping[str, float]]:
        """Return data to norm to reference radius."""
        return {name: data.radii for name, data in self.bench.benchmark.data.items()}

    @cached_property
    def family(self) -> str:
        """Return the ensembles that models are ranked by."""
        return tables.ranking_family(self.results.distances)

    @cached_property
    def scores(self) -> pd.DataFrame:
        """Return the AOI of every ensemble at every budget that has rows."""
        return tables.aoi(self.results.distances, self.results.points)

    @cached_property
    def accuracies(self) -> pd.DataFrame:
        """Return robust accuracy at the reference radius."""
        return tables.robust_accuracy(self.results.distances, self.results.points, self.radii)

    @cached_property
    def counts(self) -> pd.DataFrame:
        """Return on how many models the ensembles reach AutoAttack."""
        return tables.against_autoattack(self.scores, self.accuracies)

    @cached_property
    def cases(self) -> pd.DataFrame:
        """Return the best and the worst case against AutoAttack."""
        return tables.extreme_cases(self.scores, self.family)

    @cached_property
    def doi(self) -> pd.DataFrame:
        """Return rank and DOI at the budgets of the benchmark."""
        table = tables.doi(self.results.distances, self.results.flags, self.family)
        return table[table["budget"].isin(self.budgets)]

    @cached_property
    def crossings(self) -> pd.DataFrame:
        """Return the pairs of models that change places beyond the reference radius."""
        distances, flags = self.results.distances, self.results.flags
        return tables.crossings(distances, flags, self.radii, self.family, max(self.budgets))

    @cached_property
    def ranks(self) -> dict[tuple[str, str, str], RankStability]:
        """Return the ranks against the radius, by the largest budget and by AutoAttack."""
        return tables.ranks_by_radius(
            self.results.distances,
            self.results.points,
            self.results.flags,
            radii=self.radii,
            family=self.family,
            budget=max(self.budgets),
        )

    @cached_property
    def rejections(self) -> pd.DataFrame:
        """Return the pairs that the smallest budget decides."""
        distances, flags = self.results.distances, self.results.flags
        return tables.rejections(distances, flags, self.family, self.budgets)

    @cached_property
    def judged(self) -> str:
        """Return the split that ensembles are judged on: held-out models where there are any."""
        return HELD_OUT if HELD_OUT in set(self.scores["split"]) else TRAIN

    def label(self, family: str, budget: int) -> str:
        """Return the name of an ensemble as `--ensemble` takes it: `4k`, `greedy-4k`.

        Args:
            family: Family of ensembles: `default`, `greedy` or `paper`.
            budget: Queries per sample.
        """
        tier = tier_label(budget)
        return tier if family == DEFAULT else f"{family}-{tier}"

    def ordered(self, names: Iterable[str]) -> list[str]:
        """Return ids of models in the order of the benchmark.

        Args:
            names: Ids of models.
        """
        place = {model.id: k for k, model in enumerate(self.bench.benchmark.models)}
        return sorted(names, key=lambda name: (place.get(name, len(place)), model_key(name)))

    def title(self, norm: str, data: str) -> str:
        """Return the symbol of a norm, with the data set where there are several.

        Args:
            norm: Name of the norm.
            data: Name of the data set.
        """
        several = self.results.distances["data"].nunique() > 1
        return f"{norm_symbol(norm)}, {data}" if several else norm_symbol(norm)


# The page


def page_text(view: View, figures: Mapping[str, str], folder: str) -> str:
    """Return the page.

    Args:
        view: Benchmark with its tables.
        figures: Name to link of the figures that could be drawn.
        folder: Name of the folder beside the page.
    """
    blocks = [_introduction(view, folder), _glance(view), _figure(figures, "growth")]
    for norm in view.norms:
        blocks += _norm(view, norm)
    blocks += _models(view, figures)
    blocks += _autoattack(view, figures)
    blocks += _order(view, figures)
    blocks += _pools(view, folder)
    blocks.append(_warnings(view, drawn=bool(figures)))
    return "\n\n".join(block for block in blocks if block) + "\n"


def _introduction(view: View, folder: str) -> str:
    distances = view.results.distances
    parts = []
    for data, rows in distances.groupby("data", sort=False):
        models = rows.drop_duplicates("model")
        held_out = int((models["split"] == HELD_OUT).sum())
        parts.append(
            f"{len(models)} models ({held_out} held out) on {rows['sample'].nunique()} samples of "
            f"{data}"
        )
    labels = "`, `".join(tier_label(budget) for budget in view.budgets)
    kinds = {
        DEFAULT: f"`{labels}`: the default ensembles of advfrontier.",
        GREEDY: "`greedy-…`: allocated on the training models of this page.",
        PAPER: "`paper-…`: the ensembles of the paper, made on its own models.",
    }
    shown = set(distances["ensemble"])
    listed = "\n".join(f"- {text}" for family, text in kinds.items() if family in shown)
    return f"""# Results of {view.bench.name}

{_joined(parts)}. Every figure is computed from [one table of distances]({folder}/{TABLE}); \
{_MARK} {view.bench.name} PAGE` writes this page again in seconds.

**AOI** (attack optimality index): share of the area above the best known distances that an \
ensemble covers; 100 % is the best known. **DOI** (defence optimality index): area under a model's \
curve, relative to the most robust model at every radius. *Above*: mean distance above the best \
known. All of them are in percent.

{listed}"""


def _glance(view: View) -> str:
    """Return the smallest budget of every norm on held-out models."""
    budget = min(view.budgets)
    means = tables.aoi_by_split(view.scores)
    means = means[(means["split"] == view.judged) & (means["budget"] == budget)]
    means = means.set_index(["norm", "ensemble"])
    counts = view.counts[(view.counts["split"] == view.judged) & (view.counts["budget"] == budget)]
    counts = counts.set_index(["norm", "ensemble"])
    everywhere = all((norm, DEFAULT) in means.index for norm in view.norms)
    family = DEFAULT if everywhere else view.family
    label = view.label(family, budget)
    rows = []
    for norm in view.norms:
        key = (norm, family)
        row = {"norm": norm_symbol(norm)}
        row[f"AOI of {label}"] = _percent(_at(means, key, "aoi"), 2)
        row["above"] = _percent(_at(means, key, "above"), 2)
        if PAPER in set(means.index.get_level_values("ensemble")):
            paper = _at(means, (norm, PAPER), "above")
            row[f"above, {view.label(PAPER, budget)}"] = _percent(paper, 2)
        if len(counts):
            row["as strong as AutoAttack"] = _share(counts, key, "accuracy")
            row["AutoAttack's queries"] = _count(_at(counts, key, "queries"))
        rows.append(row)
    split = _SPLITS[view.judged].capitalize()
    text = f"## At a glance\n\n{split} models with {tier_label(budget)} queries per sample."
    if len(counts):
        text += (
            " *As strong as AutoAttack*: models whose robust accuracy at the reference radius is "
            "at most AutoAttack's."
        )
    return f"{text}\n\n{markdown(pd.DataFrame(rows))}"


def _norm(view: View, norm: str) -> list[str]:
    """Return the section of a norm: a summary, then ensembles, AOI and accuracy per model."""
    scores = view.scores[(view.scores["norm"] == norm) & view.scores["budget"].isin(view.budgets)]
    own = view.accuracies
    own = own[(own["norm"] == norm) & own["budget"].isin(view.budgets)]
    blocks = [f"## {norm_symbol(norm)}", _summary(view, norm, scores)]
    if scores.empty:
        return [*blocks, "No ensemble has rows."]
    blocks.append(markdown(_means(view, norm, scores)))
    blocks.append("AOI of every model.")
    blocks.append(markdown(_per_model(view, scores, "aoi", digits=2)))
    if len(own):
        radii = _joined([f"{radius:.4g}" for radius in own["radius"].drop_duplicates()])
        text = f"Robust accuracy at ε = {radii}"
        if own["autoattack"].notna().any():
            own = own[own["autoattack"].notna()]
            text += ", on the models that AutoAttack was run on"
        else:
            own = own[own["split"] == view.judged]
            text += f", on {_SPLITS[view.judged]} models"
        blocks.append(f"{text}.")
        blocks.append(markdown(_per_model(view, own, "accuracy", digits=1)))
    return blocks


def _summary(view: View, norm: str, scores: pd.DataFrame) -> str:
    """Return what a norm's tables say, in two or three sentences."""
    first, last = min(view.budgets), max(view.budgets)
    means = scores[(scores["ensemble"] == view.family) & (scores["split"] == view.judged)]
    means = means.groupby("budget")["above"].mean()
    sentences = []
    if first in means.index and last in means.index:
        sentences.append(
            f"On {_SPLITS[view.judged]} models, distances are {_percent(means[first], 2)} % above "
            f"the best known with {tier_label(first)} queries and {_percent(means[last], 2)} % "
            f"with {tier_label(last)}."
        )
    ranked = view.doi[(view.doi["norm"] == norm) & (view.doi["budget"] == last)]
    for data, table in ranked[ranked["sure"]].groupby("data", sort=False):
        best = [f"{row.model} ({_percent(row.doi)} %)" for row in table.head(_LISTED).itertuples()]
        sentences.append(f"Most robust by DOI on {data}: {_joined(best)}.")
    moved = _doi_moves(view, norm)
    if moved is not None:
        sentences.append(f"Between budgets a DOI moves by at most {_percent(moved)} points.")
    return " ".join(sentences)


def _doi_moves(view: View, norm: str) -> float | None:
    """Return the most that a DOI differs between budgets, among models trusted at all of them."""
    own = view.doi[view.doi["norm"] == norm]
    steady = own.groupby("model")["sure"].agg(["all", "size"])
    steady = steady[steady["all"] & (steady["size"] == len(view.budgets))].index
    distances = view.results.distances
    kept = distances[(distances["norm"] == norm) & distances["model"].isin(steady)]
    among = tables.doi(kept, view.results.flags, view.family)
    among = among[among["budget"].isin(view.budgets)]
    spans = among.groupby(["data", "model"])["doi"].agg(["min", "max"])
    return None if spans.empty else float((spans["max"] - spans["min"]).max())


def _means(view: View, norm: str, scores: pd.DataFrame) -> pd.DataFrame:
    """Return mean AOI and distance above the best known of every ensemble, per split."""
    means = tables.aoi_by_split(scores).set_index(["ensemble", "budget", "split"])
    splits = [split for split in (TRAIN, HELD_OUT) if split in set(scores["split"])]
    rows = []
    for family in FAMILIES:
        for budget in view.budgets:
            keys = [(family, budget, split) for split in splits]
            if any(key in means.index for key in keys):
                row = {"ensemble": view.label(family, budget)}
                for figure in ("aoi", "above"):
                    for key in keys:
                        heading = f"{'AOI' if figure == 'aoi' else 'above'}, {key[2]}"
                        row[heading] = _percent(_at(means, key, figure), 2)
                ensemble = view.results.ensembles.get((norm, budget))
                bound = ensemble.bound if ensemble is not None and family == GREEDY else None
                row["bound"] = _percent(bound, 2)
                rows.append(row)
    printed = published()
    printed = printed[(printed["norm"] == norm) & printed["budget"].isin(view.budgets)]
    for budget, own in printed.groupby("budget"):
        found = own.set_index("split")["aoi"]
        row = {"ensemble": f"{view.label(PAPER, budget)}, as published"}
        for split in splits:
            row[f"AOI, {split}"] = _percent(found[split], 2)
        rows.append(row)
    table = pd.DataFrame(rows)
    return table if (table["bound"].fillna(_NONE) != _NONE).any() else table.drop(columns="bound")


def _per_model(view: View, rows: pd.DataFrame, figure: str, *, digits: int) -> pd.DataFrame:
    """Return a figure per model and budget, beside AutoAttack's; bold: at least as good."""
    family = view.family if view.family in set(rows["ensemble"]) else GREEDY
    rows = rows[rows["ensemble"] == family].set_index(["model", "budget"])
    compared = rows["autoattack"].notna().any()
    lines = []
    for model in view.ordered(rows.index.get_level_values("model").unique()):
        line = {"model": model}
        own = rows.loc[model]
        if figure == "aoi":
            line["split"] = own["split"].iloc[0]
        if compared:
            line["AutoAttack"] = _percent(own["autoattack"].iloc[0], digits)
        if compared and "queries" in own:
            line["its queries"] = _count(own["queries"].iloc[0])
        for budget in view.budgets:
            value = own[figure].get(budget, math.nan)
            text = _percent(value, digits)
            gain = value - own["autoattack"].iloc[0]
            at_least = gain >= -1e-9 if figure == "aoi" else gain <= 1e-9
            line[view.label(family, budget)] = f"**{text}**" if at_least else text
        lines.append(line)
    return pd.DataFrame(lines)


def _models(view: View, figures: Mapping[str, str]) -> list[str]:
    """Return DOI and rank of every model in every norm, and the curves."""
    last = view.doi[view.doi["budget"] == max(view.budgets)]
    if last.empty:
        return []
    text = (
        "## Models by DOI\n\nDOI with "
        f"{view.label(view.family, max(view.budgets))} and the rank in brackets. Without a rank: "
        "the model is in doubt (see the warnings), and no part of the comparison."
    )
    blocks = [text]
    for data, rows in last.groupby("data", sort=False):
        lines = []
        for model in view.ordered(rows["model"].unique()):
            line = {str(data): model}
            for norm in view.norms:
                own = rows[(rows["model"] == model) & (rows["norm"] == norm)]
                line[norm_symbol(norm)] = _NONE
                for row in own.itertuples():
                    rank = f" ({row.rank:.0f})" if row.sure else ""
                    line[norm_symbol(norm)] = f"{_percent(row.doi)}{rank}"
            lines.append(line)
        blocks.append(markdown(pd.DataFrame(lines)))
    return [*blocks, _figure(figures, "curves")]


def _autoattack(view: View, figures: Mapping[str, str]) -> list[str]:
    """Return on how many models the ensembles reach AutoAttack, and the extreme cases."""
    counts = view.counts
    counts = counts[(counts["ensemble"] == view.family) & counts["budget"].isin(view.budgets)]
    if counts.empty:
        return []
    lines = [
        {
            "norm": f"{norm_symbol(row.norm)}, {row.split}",
            "ensemble": view.label(row.ensemble, row.budget),
            "AOI": f"{row.aoi}/{row.models}",
            "by lines": f"{row.lines}/{row.models}",
            "accuracy": f"{row.accuracy:.0f}/{row.models}",
            "points lower": f"{100 * row.gain:+.1f}",
        }
        for row in counts.itertuples()
    ]
    text = (
        "## Against AutoAttack\n\nOn how many models the AOI is at least AutoAttack's; the same "
        "with "
        "the ensemble, too, read off straight lines between AutoAttack's radii; on how many its "
        "robust accuracy at the reference radius is at most AutoAttack's, and how much lower."
    )
    blocks = [text, markdown(pd.DataFrame(lines))]
    sentences = []
    for case, row in zip(("best", "worst"), view.cases.itertuples(), strict=False):
        sentences.append(
            f"The {case} case is {row.model} in {norm_symbol(row.norm)}: "
            f"{100 * row.gain:+.2f} points of AOI by lines."
        )
    return [*blocks, " ".join(sentences), _figure(figures, "cases")]


def _order(view: View, figures: Mapping[str, str]) -> list[str]:
    """Return how models' order depends on the radius, and what the smallest budget decides."""
    blocks = ["## The order of models"]
    lines = []
    for (norm, data), pairs in view.crossings.groupby(["norm", "data"], sort=False):
        widest = pairs.iloc[0]
        models = int(widest["models"])
        certain = int((pairs["lead"] > curve_margin(int(widest["samples"]))).sum())
        lines.append(
            {
                "norm": view.title(norm, data),
                "pairs that cross": f"{len(pairs)}/{math.comb(models, 2)}",
                "by more than chance": certain,
                "widest": f"{widest['overtaken_by']} over {widest['leader']}",
                "from ε": f"{widest['epsilon']:.3g}",
                "lead": _percent(widest["lead"]),
            }
        )
    if lines:
        blocks.append(
            "Curves that cross beyond the reference radius: pairs of models that change places, "
            "and how many by more than the choice of samples explains (95 %)."
        )
        blocks += [markdown(pd.DataFrame(lines)), _figure(figures, "crossings")]
    lines = []
    for (norm, data, by), ranks in view.ranks.items():
        moved = ranks.moved
        most = max(moved, key=lambda model: moved[model])
        lines.append(
            {
                "norm": view.title(norm, data),
                "ranked by": by if by == tables.AUTOATTACK else view.label(by, max(view.budgets)),
                "models": len(moved),
                "by 2 or more": sum(ranks >= 2 for ranks in moved.values()),
                "by 5 or more": sum(ranks >= 5 for ranks in moved.values()),
                "most": f"{most}, {moved[most]}",
            }
        )
    if lines:
        blocks.append("Models whose rank by robust accuracy moves between ten radii.")
        blocks += [markdown(pd.DataFrame(lines)), _figure(figures, "ranks")]
    lines = []
    for (norm, data), pairs in view.rejections.groupby(["norm", "data"], sort=False):
        first = pairs.assign(gap=pairs["other"] - pairs["aurec"]).sort_values("gap").iloc[-1]
        lines.append(
            {
                "norm": view.title(norm, data),
                "pairs": len(pairs),
                "models": pairs["rejected"].nunique(),
                "widest": f"{first['rejected']} below {first['against']}",
                "AUREC": f"{first['aurec']:.3g} and {first['other']:.3g}",
            }
        )
    if lines:
        first, last = tier_label(min(view.budgets)), tier_label(max(view.budgets))
        blocks.append(
            f"Rejected early: pairs in which one curve after {first} queries lies below the other "
            f"after {last} everywhere. More queries only lower it."
        )
        blocks += [markdown(pd.DataFrame(lines)), _figure(figures, "rejection")]
    return blocks if len(blocks) > 1 else []


def _pools(view: View, folder: str) -> list[str]:
    """Return the pools of models and attacks, and the greedy ensembles."""
    listed = tables.models(view.bench.benchmark, view.results.distances)
    shown = listed.assign(accuracy=[_percent(value) for value in listed["accuracy"]])
    shown["source"] = [f"`{source}`" if source else _NONE for source in listed["source"]]
    blocks = ["## Models and attacks", markdown(shown.drop(columns="batch"))]
    attacks = tables.attacks(view.results.distances)
    if len(attacks):
        norms = [norm for norm in view.norms if norm in attacks]
        attacks = attacks.rename(columns={norm: norm_symbol(norm) for norm in norms})
        attacks["in the paper"] = ["yes" if known else "no" for known in attacks["in the paper"]]
        runs = "Traced runs per solver: base runs, restarts and targets."
        blocks += [runs, markdown(attacks[["solver", "in the paper", *map(norm_symbol, norms)]])]
    queries = tables.ensemble_queries(view.results.ensembles)
    if len(queries):
        queries = queries.rename(columns={b: tier_label(b) for b in view.budgets})
        queries["norm"] = [norm_symbol(norm) for norm in queries["norm"]]
        files = []
        for norm, budget in view.results.ensembles:
            if budget == max(view.budgets):
                file = f"{folder}/ensembles/{norm}-{tier_label(budget)}.toml"
                files.append(f"[{norm_symbol(norm)}]({file})")
        table = html_table(queries)
        blocks.append(
            f"Greedy ensembles as files for `advfrontier evaluate --ensemble`: {_joined(files)}."
        )
        blocks.append(_folded("Queries of the greedy ensembles, per attack", table))
    return blocks


def _warnings(view: View, *, drawn: bool) -> str:
    """Return missing rows and all warnings, folded."""
    items = missing(view)
    if not drawn:
        items.append("No figures: type pip install 'advfrontier[figures]'.")
    items += warnings(view)
    if not items:
        return ""
    listed = "\n".join(f"<li>{escape(item)}</li>" for item in items)
    return "## Warnings\n\n" + _folded(f"{len(items)} warnings", f"<ul>\n{listed}\n</ul>")


def missing(view: View) -> list[str]:
    """Return one line for every kind of rows that some models of the benchmark lack.

    Args:
        view: Benchmark with its tables.
    """
    bench, distances, points = view.bench, view.results.distances, view.results.points
    absent: dict[tuple[str, str], list[str]] = {}  # (what, models) → norms
    for norm in NORMS:
        rows = distances[distances["norm"] == norm]
        for stage in bench.stages:
            expected = [model.id for model in bench.models_of(stage, norm)]
            if stage == BASELINE:
                what, known = tables.AUTOATTACK, points.loc[points["norm"] == norm, "model"]
            else:
                family = DEFAULT if stage == EVALUATE else GREEDY
                what = f"{family} ensembles"
                known = rows.loc[rows["ensemble"] == family, "model"]
            lacking = [model for model in expected if model not in set(known)]
            if lacking:
                names = "all models" if lacking == expected else ", ".join(lacking)
                absent.setdefault((what, names), []).append(norm_symbol(norm))
    return [f"No rows: {what} on {names} in {_joined(n)}." for (what, names), n in absent.items()]


def warnings(view: View) -> list[str]:
    """Return the warnings about models, those that differ in numbers alone as one.

    Args:
        view: Benchmark with its tables.
    """
    flags = view.results.flags
    pattern = flags["text"].map(lambda text: re.sub(r"[\d.]+", "#", text))
    of_autoattack = flags["source"] == AUTOATTACK
    lines = []
    for (theirs, _), alike in flags.groupby([of_autoattack, pattern], sort=False):
        named, shown = [], 0
        for model, rows in alike.groupby("model", sort=False):
            norms = [norm_symbol(norm) for norm in NORMS if norm in set(rows["norm"])]
            named.append(f"{model} in {', '.join(norms)}")
            shown += len(norms)
        who = f"{tables.AUTOATTACK} on " if theirs else ""
        more = f" (and {len(alike) - 1} more like it)" if len(alike) > shown else ""
        lines.append(f"{who}{'; '.join(named)}: {alike['text'].iloc[0]}{more}")
    return lines


# Markdown


def markdown(table: pd.DataFrame) -> str:
    """Return a table as Markdown, columns of numbers on the right; missing cells are dashes.

    Args:
        table: Table whose cells are texts and numbers.
    """
    cells = []
    for row in table.itertuples(index=False):
        cells.append([_cell(value) for value in row])
    headings = [str(column) for column in table.columns]
    marks = []
    for column in range(len(headings)):
        numbers = all(re.match(r"[\d+*(–-]", row[column]) for row in cells)
        marks.append("--:" if numbers else ":--")
    lines = [f"| {' | '.join(line)} |" for line in (headings, *cells)]
    return "\n".join([lines[0], f"|{'|'.join(marks)}|", *lines[1:]])


def html_table(table: pd.DataFrame) -> str:
    """Return a table as HTML, one line per row, for parts of the page that are folded.

    Args:
        table: Table whose cells are texts and numbers.
    """
    head = "".join(f"<th>{escape(str(column))}</th>" for column in table.columns)
    lines = [f"<tr>{head}</tr>"]
    for row in table.itertuples(index=False):
        cells = "".join(f"<td>{escape(_cell(value))}</td>" for value in row)
        lines.append(f"<tr>{cells}</tr>")
    return "\n".join(["<table>", *lines, "</table>"])


def _cell(value: object) -> str:
    if value is None or value == "" or (isinstance(value, float) and math.isnan(value)):
        return _NONE
    if isinstance(value, float):
        return f"{value:.0f}"
    return str(value).replace("|", "/")


def _folded(title: str, content: str) -> str:
    return f"<details>\n<summary>{escape(title)}</summary>\n{content}\n</details>"


def _figure(figures: Mapping[str, str], name: str) -> str:
    return f"![{_CAPTIONS[name]}]({figures[name]})" if name in figures else ""


_CAPTIONS = {
    "growth": "Mean AOI against queries per sample, on training and held-out models",
    "curves": "Robustness curves of all models, coloured by mean DOI, with the defence frontier",
    "cases": "Best and worst case against AutoAttack",
    "crossings": "Curves of the pairs that cross most",
    "ranks": "Ranks against the radius",
    "rejection": "A model that the smallest budget rejects",
}


def _percent(value: float | None, digits: int = 1) -> str:
    if value is None or not math.isfinite(value):
        return _NONE
    return f"{100 * value:.{digits}f}"


def _count(value: float) -> str:
    return f"{value:,.0f}" if math.isfinite(value) else _NONE


def _share(table: pd.DataFrame, key: object, column: str) -> str:
    return f"{table[column][key]:.0f}/{table['models'][key]}" if key in table.index else _NONE


def _at(table: pd.DataFrame, key: object, column: str) -> float:
    return float(table[column][key]) if key in table.index else math.nan


def _joined(parts: Sequence[str]) -> str:
    """Return parts as a list in a sentence."""
    if len(parts) < 2:
        return "".join(parts)
    return f"{', '.join(parts[:-1])} and {parts[-1]}"
