"""The results of a benchmark: `results.md` in the order of the paper, `results.json`, and one figure per question."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from advfrontier.bench import model_tables
from advfrontier.bench.benchmark import SPLITS
from advfrontier.report.benchmark_figures import draw_results
from advfrontier.report.render import as_json, as_markdown
from advfrontier.report.style import drawable
from advfrontier.table import Column, stacked
from advfrontier.threat.names import SYMBOLS

if TYPE_CHECKING:
    from collections.abc import Mapping
    from os import PathLike

    from advfrontier.bench.results import Results
    from advfrontier.table import Table

_PAIRS = 10  # crossings written out
_POOL = (
    "Accuracy is on unperturbed samples, in percent. Ranks are by DOI at the largest tier, among the models of one "
    "data set: a model may be first in one norm and last in another. In brackets: a model in doubt."
)
_ENSEMBLES = (
    "Queries of base runs, and of all restarts or targets of an attack together. AOI and what no allocation with that "
    "budget can pass are means over the training models."
)
_AOI = "AOI in percent against the frontier of the whole pool."
_AOI_BASELINE = (
    " AutoAttack is known at a few radii: its AOI is read off straight lines between them, as in the paper, and in "
    "brackets is what the points prove. Such lines alone shift an AOI by a point or two, so the columns *by lines* "
    "read the tiers off the same lines at the same radii, like for like, and the frontier itself, whose AOI is 100 "
    "otherwise. **Bold**: at least AutoAttack's."
)
_GROWTH = "Mean AOI in percent at every tier."
_ROBUST = "Robust accuracy in percent."
_ROBUST_BASELINE = " AutoAttack's queries are per sample, on average. **Bold**: at least as strong as AutoAttack."
_CASES = (
    "On how many models, over all norms, a tier matches or passes AutoAttack; and where the largest tier gains most "
    "and least, in points of AOI by straight lines, beside it by all its distances."
)
_RANKS = (
    "Ranks by robust accuracy, as the largest tier finds it, at ten radii: nine percentiles of the defence frontier "
    "and the reference."
)
_BASELINE_RANKS = (
    "AutoAttack's order of the models, which is what the paper shows, is at nine percentiles of the radii it was run "
    "at, as far as it goes on every model, and the reference; between a model's own radii its accuracy is read off "
    "straight lines. Below it is the largest tier at the same radii."
)
_DOI = (
    "DOI in percent, and the rank at the largest tier. In brackets: a model whose distances at that tier cannot be "
    "trusted, and why. It is no part of that tier's frontier: the others' DOI there is against one without it."
)
_DOI_TIERS = "How far DOIs move between tiers, with the models that can be trusted at every tier as the whole pool:"
_EARLY = (
    "A model whose curve at the smallest tier lies below another's at the largest everywhere is rejected: more queries "
    "only lower it."
)


def write_results(results: Results, folder: str | PathLike[str]) -> list[Path]:
    """Write all of it, figures only where matplotlib is installed; returns the files."""
    target = Path(folder)
    target.mkdir(parents=True, exist_ok=True)
    figures = draw_results(results, target / "figures") if drawable() else None
    content, page = target / "results.json", target / "results.md"
    content.write_text(json.dumps(results_json(results), indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    linked = {name: paths[-1].relative_to(target).as_posix() for name, paths in (figures or {}).items()}
    page.write_text(results_markdown(results, figures=None if figures is None else linked), encoding="utf-8")
    return [page, content, *(path for paths in (figures or {}).values() for path in paths)]


def results_json(results: Results) -> dict[str, object]:
    """Every table with its rows by column name: over all norms, per norm, and per data set of each norm."""
    return {
        "name": results.name,
        "budgets": list(results.budgets),
        "models": {data: as_json(table) for data, table in results.model_tables().items()},
        "tables": {name: as_json(table) for name, table in results.tables().items()},
        "norms": {
            norm: {
                "notes": list(part.notes),
                "tables": {name: as_json(table) for name, table in part.tables().items()},
                "data": {
                    data: {
                        "notes": list(group.notes),
                        "tables": {
                            name: as_json(table)
                            for name, table in model_tables.tables(group, title=SYMBOLS[norm]).items()
                        },
                    }
                    for data, group in part.groups.items()
                },
            }
            for norm, part in results.norms.items()
        },
        "failures": list(results.failures),
    }


def results_markdown(results: Results, *, figures: Mapping[str, str] | None = None) -> str:
    """The page. `figures` are files by name; None says that they could not be drawn."""
    page = _Page(
        results.tables(),
        {SYMBOLS[norm]: part.tables() for norm, part in results.norms.items()},
        {title: model_tables.tables(group, title=title) for title, group in results.groups()},
        figures or {},
    )
    parts = [f"# Results of {results.name}", _opening(results, drawn=figures is not None)]
    pool = [as_markdown(table) for table in results.model_tables().values()]
    for heading, body in (("Models", [_POOL, *pool] if pool else []), *page.attacks().items(), *page.models().items()):
        parts += [f"## {heading}", *body] if body else []
    return "\n\n".join(parts) + "\n"


@dataclass(frozen=True)
class _Page:
    """The tables, and what is said above them."""

    whole: Mapping[str, Table]
    norms: Mapping[str, Mapping[str, Table]]
    groups: Mapping[str, Mapping[str, Table]]  # the models of one data set in one norm
    figures: Mapping[str, str]

    def attacks(self) -> dict[str, list[str]]:
        """The sections about attacks."""
        compared = "cases" in self.whole
        against = [as_markdown(table) for table in self.whole.values()]
        robust = self._each("robust_accuracy", "robust_accuracy_summary")
        return {
            "Ensembles": [_ENSEMBLES, *self._each("ensembles", "tiers")],
            "Attack optimality (AOI)": [
                _AOI + _AOI_BASELINE * compared,
                *self._each("aoi", "aoi_summary"),
            ],
            "AOI against the query budget": [
                _GROWTH,
                *self._figure("growth", "mean AOI against queries"),
                *self._stacked(self.norms, "growth_at_tiers"),
            ],
            "Robust accuracy at the reference radius": [_ROBUST + _ROBUST_BASELINE * compared, *robust]
            if robust
            else ["No data set has a reference radius."],
            "Against AutoAttack": [_CASES, *against, *self._figure("cases", "best and worst case")]
            if against
            else ["There is no baseline to compare with."],
        }

    def models(self) -> dict[str, list[str]]:
        """The sections about models."""
        rejections = self._stacked(self.groups, "early_rejection")
        return {
            "Curves that cross beyond the reference radius": [
                *self._figure("crossings", "pairs of curves that cross"),
                *self._stacked(self.groups, "crossings"),
                *self._stacked(self.groups, "crossing_pairs", rows=_PAIRS),
            ],
            "Ranks depend on the radius": [
                _RANKS,
                *self._figure("instability", "ranks against the radius"),
                *([_BASELINE_RANKS] if "cases" in self.whole else []),
                *self._stacked(self.groups, "rank_moves"),
            ],
            "Models by DOI": [
                _DOI,
                *(as_markdown(tables["doi"]) for tables in self.groups.values() if "doi" in tables),
                _DOI_TIERS,
                *self._stacked(self.groups, "doi_between_tiers"),
            ],
            "Robustness curves and the defence frontier": self._figure(
                "curves", "all robustness curves, coloured by mean DOI, with the defence frontier"
            ),
            "Rejecting a model early": [
                _EARLY,
                *(rejections or ["The smallest tier rejects no model."]),
                *self._figure("early-rejection", "a model rejected by the smallest tier"),
            ],
        }

    def _each(self, *names: str) -> list[str]:
        return [as_markdown(tables[name]) for tables in self.norms.values() for name in names if name in tables]

    def _stacked(
        self, tables_of: Mapping[str, Mapping[str, Table]], name: str, *, rows: int | None = None
    ) -> list[str]:
        """The tables of one name, one below the other as one; of each only the first rows if a number is given."""
        tables = {title: tables[name].head(rows) for title, tables in tables_of.items() if name in tables}
        return [as_markdown(stacked(name, Column("norm"), tables))] if tables else []

    def _figure(self, name: str, text: str) -> list[str]:
        return [f"![{text}]({self.figures[name]})"] if name in self.figures else []


def _opening(results: Results, *, drawn: bool) -> str:
    lines = []
    for norm, part in results.norms.items():
        counts = {split: sum(subject.split == split for subject in part.subjects) for split in SPLITS}
        samples = ", ".join(f"{len(group.subjects[0].samples)} of {data}" for data, group in part.groups.items())
        models = f"{counts['train']} training and {counts['held-out']} held-out models"
        lines.append(f"- {SYMBOLS[norm]}: {models}, samples: {samples}")
        lines += [f"  - {note}" for note in part.notes]
        lines += [f"  - {data}: {note}" for data, group in part.groups.items() for note in group.notes]
    if not drawn:
        lines.append("- no figures: matplotlib is not installed; type `pip install 'advfrontier[figures]'`")
    if results.failures:
        lines.append(f"- {len(results.failures)} parts failed and are missing below:")
        lines += [f"  - {failure}" for failure in results.failures]
    return "\n".join(lines)
