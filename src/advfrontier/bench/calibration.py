"""How long a query takes on this machine, from a few short runs.

The time of a query is that of a pass through the model plus that of a solver's own arithmetic. The first is measured
once per model, the second once per attack on the first model: a few seconds in all, where measuring every pair would
take minutes.
"""

from __future__ import annotations

import json
import math
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field

from advfrontier.bench.benchmark import BenchmarkModel
from advfrontier.bench.layout import Bench, claim
from advfrontier.evaluation.trace import trace
from advfrontier.execution import Machine
from advfrontier.pool import Run
from advfrontier.record import Record, UnitName, open_folder
from advfrontier.sources.samples import choose

FILE = "calibration.json"
_QUERIES = 20  # of each short run
_LEAST = 0.1  # of what a solver took on the first model: no estimate falls below it


@dataclass
class Calibration:
    """Seconds per query and sample, on one process."""

    device: str = "cpu"
    threads: int = 1
    models: dict[str, float] = field(default_factory=dict)  # with the common run
    attacks: dict[str, dict[str, float]] = field(default_factory=dict)  # norm → attack, on the first model
    common: float = 0.0  # the common run on the first model

    def seconds(self, model: str, norm: str, run: str) -> float:
        """Estimated seconds per query and sample; NaN if the model or the attack was not calibrated."""
        attack = self.attacks.get(norm, {}).get(Run.parse(run).attack, math.nan)
        return max(self.models.get(model, math.nan) + attack - self.common, _LEAST * attack)


def read_calibration(out: str, *, device: str, threads: int) -> Calibration:
    """The one that is stored for this device and number of threads, or an empty one."""
    empty = Calibration(device, threads)
    stored = json.loads(open_folder(out).read(FILE) or b"{}")
    fitting = (stored.get("device"), stored.get("threads")) == (device, threads) and stored.keys() == vars(empty).keys()
    return Calibration(**stored) if fitting else empty


def calibrate(bench: Bench, models: Sequence[BenchmarkModel], *, device: str, threads: int) -> Calibration:
    """Measure what is not yet known, on one batch per short run, and store it."""
    known = read_calibration(bench.out, device=device, threads=threads)
    able = [model for model in models if model.source is not None]
    if not able:
        return known
    common_norm = bench.benchmark.norms[0]
    common = _attacks(bench, common_norm)[0]
    for norm in bench.benchmark.norms:
        measured = known.attacks.setdefault(norm, {})
        unknown = [attack for attack in _attacks(bench, norm) if attack not in measured]
        if unknown:
            measured |= _measured(bench, known, able[0], norm, unknown)
        if norm == common_norm and common in unknown:
            known.models[able[0].id] = known.common = measured[common]
    for model in able:
        if model.id not in known.models:
            known.models[model.id] = _measured(bench, known, model, common_norm, [common])[common]
    claim(bench.out, bench.benchmark.name)
    open_folder(bench.out).write(FILE, json.dumps(asdict(known), indent=2).encode())
    return known


def _attacks(bench: Bench, norm: str) -> list[str]:
    """Attacks of the pool in a norm; ten classes, because every attack has a base run in any case."""
    return list(dict.fromkeys(Run.parse(run).attack for run in bench.runs(norm, 10)))


def _measured(
    bench: Bench, known: Calibration, model: BenchmarkModel, norm: str, attacks: Sequence[str]
) -> dict[str, float]:
    """Seconds per query and sample of these attacks' base runs on one batch; 0 where there is nothing to attack."""
    batch = choose(bench.samples(model), min(model.batch, bench.benchmark.data[model.data].samples), None)
    with tempfile.TemporaryDirectory(prefix="advfrontier-") as folder:
        traces = trace(
            str(model.source),
            batch,
            norm=norm,
            runs=list(attacks),
            queries=_QUERIES,
            out=folder,
            batch_size=model.batch,
            machine=Machine(known.device, threads=known.threads),
        )
        record, spent = Record.open(folder, "trace"), _QUERIES * int((~traces.misclassified).sum())
        units = {attack: record.read_unit(UnitName(attack, 0, len(batch)), _QUERIES) for attack in attacks}
        return {attack: float(unit.words["seconds"]) / spent if unit else 0.0 for attack, unit in units.items()}
