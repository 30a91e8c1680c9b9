"""AutoAttack into records: at the radii people quote, and at percentiles of the frontier."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from importlib.util import find_spec
from typing import Any

import numpy as np
from numpy.typing import NDArray

from advfrontier.attacks.autoattack import NORMS, KnownPoints, check_norm
from advfrontier.bench.layout import Bench
from advfrontier.engine.data import Samples
from advfrontier.errors import FrontierError
from advfrontier.evaluation.inputs import as_model, as_terms
from advfrontier.evaluation.radii import parse_radii, reference_radii
from advfrontier.execution import Machine
from advfrontier.frontier.optimality import baseline_aoi, baseline_radii
from advfrontier.jobs import Model, drive, prepare
from advfrontier.jobs.autoattack import AutoAttackJob, read_points
from advfrontier.jsonable import jsonable
from advfrontier.record import Record
from advfrontier.table import Column, Table
from advfrontier.threat.names import SYMBOLS

_EXTRA = "pyautoattack"


def run_autoattack(
    out: str,
    model: Model | str,
    samples: Samples,
    *,
    norm: str,
    radii: Sequence[float],
    seed: int = 42,
    batch_size: int = 100,
    machine: Machine | None = None,
) -> KnownPoints:
    """Run AutoAttack at these radii into a record, and return what it found. Killed, the same call goes on.

    Args:
        out: The folder of the record.
        model: The model, or the name of a source.
        samples: What it is attacked on.
        norm: `L1`, `L2` or `Linf`.
        radii: Where it is run; those of earlier calls stay in the record.
        seed: Of AutoAttack.
        batch_size: Samples per batch, which are one unit of work.
        machine: Where the work is done.
    """
    # AutoAttack computes in float32.
    machine, subject = replace(machine or Machine(), dtype="float32"), as_model(model)
    terms = as_terms(check_norm(norm), subject, seed=seed, batch_size=batch_size, machine=machine)
    record = prepare(out, subject, samples, terms, kind="baseline")
    job = AutoAttackJob(
        model=subject, samples=samples, radii=tuple(sorted({float(radius) for radius in radii}))
    )
    drive(record, job, machine)
    return read_points(record)


def radii_of(place: str) -> tuple[float, ...] | None:
    """The radii of a record that was begun; None if there is none.

    They were chosen by the frontier as it was then. Another attack moves the frontier, but AutoAttack's points stay
    true: they are kept, not run again elsewhere.
    """
    record = Record.find(place)
    return record.header.radii or None if record is not None else None


def radii_to_run(
    text: str | None, data: str, norm: str, frontier: NDArray[np.float64] | None
) -> list[float]:
    """The radii written out, or else the usual ones of the data; with a frontier, nine percentiles of it as well."""
    usual = [radius for _, radius in parse_radii(text or "", norm) or reference_radii(data, norm)]
    wanted = [*usual, *(baseline_radii(frontier).tolist() if frontier is not None else [])]
    if not wanted:
        raise FrontierError(
            "no radius to run AutoAttack at: expected --radii 4/255,8/255 or --trace traces/MODEL/NORM"
        )
    return wanted


def told_baseline(
    points: KnownPoints, frontier: NDArray[np.float64] | None, norm: str, folder: str
) -> tuple[Table, dict[str, Any]]:
    """Robust accuracy and queries at every radius, and the AOI where a frontier is known; the same for programs."""
    columns = (
        Column(f"ε in {SYMBOLS[norm]}", "size", key="epsilon"),
        Column("robust accuracy (%)", "percent", key="robust accuracy"),
        Column("queries per sample", "count"),
    )
    notes, judged = list(points.flags), None
    if frontier is not None:
        judged = baseline_aoi(points.radii, points.accuracies, frontier)
        notes.append(
            f"AOI of AutoAttack: {100 * judged.value:.2f} % by straight lines between these points, which prove "
            f"{100 * judged.low:.2f} to {100 * judged.high:.2f} %"
        )
        notes += judged.flags
    rows = tuple(zip(points.radii, points.accuracies, points.queries, strict=True))
    facts = {"norm": norm, "record": folder, **jsonable(points), "aoi": jsonable(judged)}
    return Table("", columns, rows, (*notes, f"record: {folder}")), facts


def no_baseline(bench: Bench, norm: str) -> str | None:
    """Why there is no baseline, if there is none."""
    if bench.benchmark.baseline is None:
        return "no baseline: the benchmark asks for none"
    if norm not in NORMS:
        return f"no baseline: AutoAttack does not attack in {norm}"
    if find_spec(_EXTRA) is None:
        return (
            "no baseline: AutoAttack is not installed; type pip install 'advfrontier[autoattack]'"
        )
    return None
