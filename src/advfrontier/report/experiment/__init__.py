"""The tables and figures of a benchmark: `results.md`, `results.json`, and one figure per question."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

from advfrontier.jsonable import jsonable
from advfrontier.report.experiment.figures import draw, drawable
from advfrontier.report.experiment.markdown import results_markdown

if TYPE_CHECKING:
    from os import PathLike

    from advfrontier.evaluation.experiment import Experiment

__all__ = ["results_json", "results_markdown", "write_experiment"]


def write_experiment(experiment: Experiment, folder: str | PathLike[str]) -> list[Path]:
    """Write all of it, figures only where matplotlib is installed; returns the files."""
    target = Path(folder)
    target.mkdir(parents=True, exist_ok=True)
    figures = draw(experiment, target / "figures") if drawable() else {}
    table, text = target / "results.json", target / "results.md"
    table.write_text(json.dumps(results_json(experiment), indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    linked = {name: paths[-1].relative_to(target).as_posix() for name, paths in figures.items()}
    text.write_text(results_markdown(experiment, figures=linked if drawable() else None), encoding="utf-8")
    return [text, table, *(path for paths in figures.values() for path in paths)]


def results_json(experiment: Experiment) -> dict[str, object]:
    """Every table as plain numbers."""
    return {
        "name": experiment.name,
        "budgets": list(experiment.budgets),
        "models": jsonable(experiment.models),
        "cases": jsonable(experiment.cases),
        "totals": jsonable(experiment.totals),
        "norms": {
            norm: {
                "attacks": jsonable(part.attacks),
                "defences": {data: jsonable(group.tables) for data, group in part.defences.items()},
                "notes": list(part.notes),
            }
            for norm, part in experiment.norms.items()
        },
        "failures": list(experiment.failures),
    }
