"""The results as one Markdown page, in the order of the paper."""

from __future__ import annotations

from typing import TYPE_CHECKING

from advfrontier.evaluation.experiment import SPLITS
from advfrontier.report.experiment import attacks, models
from advfrontier.report.numbers import SYMBOLS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from advfrontier.evaluation.experiment import Experiment


def results_markdown(experiment: Experiment, *, figures: Mapping[str, str] | None = None) -> str:
    """The page. `figures` are files by name; None says that they could not be drawn."""
    shown = figures or {}
    parts = [f"# Results of {experiment.name}", _opening(experiment, drawn=figures is not None)]
    for heading, body in (
        ("Models", models.pool(experiment)),
        ("Ensembles", attacks.ensembles(experiment)),
        ("Attack optimality (AOI)", attacks.aoi(experiment)),
        ("AOI against the query budget", attacks.growth(experiment, shown)),
        ("Best and worst case against AutoAttack", attacks.cases(experiment, shown)),
        ("Robust accuracy at the reference radius", attacks.robust(experiment)),
        ("Curves that cross beyond the reference radius", models.crossings(experiment, shown)),
        ("Ranks depend on the radius", models.instability(experiment, shown)),
        ("Models by DOI", models.doi(experiment)),
        ("Robustness curves and the defence frontier", models.curves(shown)),
        ("Rejecting a model early", models.early(experiment, shown)),
    ):
        if body:
            parts += [f"## {heading}", *body]
    return "\n\n".join(parts) + "\n"


def _opening(experiment: Experiment, *, drawn: bool) -> str:
    lines = []
    for norm, part in experiment.norms.items():
        counts = {split: sum(s.split == split for s in part.subjects) for split in SPLITS}
        samples = ", ".join(f"{len(group.subjects[0].samples)} of {data}" for data, group in part.defences.items())
        models = f"{counts['train']} training and {counts['held-out']} held-out models"
        lines.append(f"- {SYMBOLS[norm]}: {models}, samples: {samples}")
        lines += [f"  - {note}" for note in part.notes]
        lines += [f"  - {data}: {note}" for data, group in part.defences.items() for note in group.tables.notes]
    if not drawn:
        lines.append("- no figures: matplotlib is not installed; type `pip install 'advfrontier[figures]'`")
    if experiment.failures:
        lines.append(f"- {len(experiment.failures)} parts failed and are missing below:")
        lines += [f"  - {failure}" for failure in experiment.failures]
    return "\n".join(lines)
