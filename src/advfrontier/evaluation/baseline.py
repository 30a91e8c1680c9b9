"""AutoAttack at several radii, every pass through the model counted, to compare ensembles with.

Croce and Hein, "Reliable evaluation of adversarial robustness with an ensemble of diverse
parameter-free attacks" (ICML 2020). It answers which samples are robust at one radius, and finds no
distances.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from importlib.util import find_spec
from os import PathLike
from typing import Any

import numpy as np
from numpy.typing import NDArray

from advfrontier.attacks.autoattack import NORMS, KnownPoints, check_norm
from advfrontier.engine.data import Samples
from advfrontier.errors import FrontierError
from advfrontier.evaluation.evaluation import Evaluation
from advfrontier.evaluation.inputs import as_model, as_terms
from advfrontier.evaluation.radii import parse_radii, reference_radii
from advfrontier.execution import Machine
from advfrontier.frontier.optimality import baseline_aoi, baseline_radii
from advfrontier.jobs import Model, drive, prepare
from advfrontier.jobs.autoattack import AutoAttackJob, read_points
from advfrontier.jsonable import jsonable
from advfrontier.record import Record, find_records
from advfrontier.table import Column, Table
from advfrontier.threat.names import norm_symbol

_EXTRA = "pyautoattack"

__all__ = [
    "KnownPoints",
    "baseline_table",
    "load_baseline",
    "radii_to_run",
    "run_autoattack",
    "stored_baselines",
    "why_no_autoattack",
]


def run_autoattack(
    out: str | PathLike[str],
    model: Model | str,
    samples: Samples,
    *,
    norm: str,
    radii: Sequence[float],
    seed: int = 42,
    batch_size: int = 100,
    machine: Machine | None = None,
) -> KnownPoints:
    """Run AutoAttack at these radii into a record; the same call resumes after an interruption.

    Args:
        out: Folder of the record.
        model: Model, or the name of a source.
        samples: Samples to attack.
        norm: `L1`, `L2` or `Linf`.
        radii: Radii of the perturbation. Those of earlier calls stay in the record.
        seed: Random seed.
        batch_size: Samples per batch; a batch at one radius is one unit of work.
        machine: Device and processes. AutoAttack computes in float32.

    Returns:
        Robust accuracy and queries per sample at every radius of the record.
    """
    machine = replace(machine or Machine(), dtype="float32")
    subject = as_model(model)
    terms = as_terms(check_norm(norm), subject, seed=seed, batch_size=batch_size, machine=machine)
    prepared = prepare(str(out), subject, samples, terms, kind="baseline")
    wanted = tuple(sorted({float(radius) for radius in radii}))
    job = AutoAttackJob(model=subject, samples=prepared.samples, radii=wanted)
    drive(prepared.record, job, machine)
    return read_points(prepared.record)


def load_baseline(folder: str | PathLike[str]) -> KnownPoints:
    """Read a finished record of AutoAttack; raises if it is not finished.

    Args:
        folder: Folder of the record.
    """
    return read_points(Record.open(folder, "baseline"))


def stored_baselines(
    evaluations: Sequence[Evaluation], folders: Sequence[str]
) -> dict[tuple[str, str], KnownPoints]:
    """Return AutoAttack's points on the models and samples of evaluations, by model and norm.

    Args:
        evaluations: Evaluations whose models and samples the records must be of.
        folders: Folders to search for records of AutoAttack; those without any are passed over.
    """
    records: dict[str, Record] = {}
    for folder in folders:
        for record in find_records(folder, kind="baseline", needed=False):
            records[record.place] = record
    found = {}
    for evaluation in evaluations:
        if evaluation.criterion is not None:
            continue  # AutoAttack aims at misclassification
        header = evaluation.record.header
        own = (header.model.digest, header.terms.norm, header.data.digest)
        for record in records.values():
            other = record.header
            if (other.model.digest, other.terms.norm, other.data.digest) == own:
                found[evaluation.model, evaluation.norm] = read_points(record)
    return found


def radii_to_run(
    text: str | None, data: str, norm: str, frontier: NDArray[np.float64] | None
) -> list[float]:
    """Return the radii to run AutoAttack at.

    Args:
        text: Radii such as `4/255,8/255`. Default: those usually quoted for the data.
        data: Name of the data set, which decides the radii usually quoted.
        norm: Name of the norm.
        frontier: Distances of the model's frontier, if it is traced: adds nine percentiles of them.
    """
    written = parse_radii(text or "", norm) or reference_radii(data, norm)
    radii = [radius for _, radius in written]
    if frontier is not None:
        radii += baseline_radii(frontier).tolist()
    if not radii:
        raise FrontierError(
            "no radius to run AutoAttack at: expected --radii 4/255,8/255 or "
            "--trace traces/MODEL/NORM"
        )
    return radii


def baseline_table(
    points: KnownPoints, frontier: NDArray[np.float64] | None, norm: str, folder: str
) -> tuple[Table, dict[str, Any]]:
    """Return robust accuracy and queries at every radius, for people and for programs.

    Args:
        points: Robust accuracy and queries of AutoAttack at every radius.
        frontier: Distances of the model's frontier, if it is traced: adds AutoAttack's AOI.
        norm: Name of the norm, for the title.
        folder: Folder of the record.
    """
    columns = (
        Column(f"ε in {norm_symbol(norm)}", "size", key="epsilon"),
        Column("robust accuracy (%)", "percent", key="robust accuracy"),
        Column("queries per sample", "count"),
    )
    notes, judged = list(points.flags), None
    if frontier is not None:
        judged = baseline_aoi(points.radii, points.accuracies, frontier)
        notes.append(
            f"AOI of AutoAttack: {100 * judged.value:.2f} % by straight lines between these "
            f"points, which prove {100 * judged.low:.2f} to {100 * judged.high:.2f} %"
        )
        notes += judged.flags
    notes.append(f"record: {folder}")
    rows = tuple(zip(points.radii, points.accuracies, points.queries, strict=True))
    facts = {"norm": norm, "record": folder, **jsonable(points), "aoi": jsonable(judged)}
    return Table("", columns, rows, tuple(notes)), facts


def why_no_autoattack(norm: str) -> str | None:
    """Return why AutoAttack cannot run in a norm on this machine; None if it can.

    Args:
        norm: Name of the norm.
    """
    if norm not in NORMS:
        return f"AutoAttack does not attack in {norm}"
    if find_spec(_EXTRA) is None:
        return "AutoAttack is not installed; type pip install 'advfrontier[autoattack]'"
    return None
