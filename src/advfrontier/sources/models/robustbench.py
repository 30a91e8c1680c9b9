"""`robustbench:cifar10/Linf/NAME`: RobustBench's models, which carry their own normalisation.

Checkpoints are looked for where RobustBench keeps them, `models/DATASET/THREAT/NAME.pt`; `?dir=FOLDER` names another
folder than `models`.
"""

from __future__ import annotations

import importlib.util
import sys
from contextlib import redirect_stdout
from difflib import get_close_matches
from pathlib import Path
from types import ModuleType
from typing import Any

from torch import nn

from advfrontier.sources.extras import need
from advfrontier.sources.guards import connections, download_hint, explaining, weights_only
from advfrontier.sources.spec import Spec


def load(spec: Spec, *, download: bool) -> nn.Module:
    """Build the architecture and load its checkpoint with RobustBench's own code."""
    utils = _utils(spec)
    dataset, threat, name = _entry(spec, utils)
    folder = Path(spec.options.get("dir", "models")).expanduser()
    missing = [] if download else [p for p in _checkpoints(utils, folder, dataset, threat, name) if not p.is_file()]
    if missing:
        raise spec.error(
            f"no checkpoint at {missing[0]}; allow the download with --download (download=True), or put the file there"
        )
    what = f"{spec.text}: RobustBench could not load it"
    # It prints what it downloads; results are what belongs on stdout.
    with (
        explaining(what, download_hint(download=download)),
        connections(allowed=download),
        weights_only(spec.text),
        redirect_stdout(sys.stderr),
    ):
        model: nn.Module = utils.load_model(name, model_dir=folder, dataset=dataset, threat_model=threat)
    return model


def _utils(spec: Spec) -> Any:
    """RobustBench's loader, without the rest of it.

    The package itself imports its evaluation, which needs modules that its own requirements do not bring along
    (autoattack, pkg_resources). An empty package in its place gives access to the part that is wanted.
    """
    if "robustbench" not in sys.modules and (found := importlib.util.find_spec("robustbench")) is not None:
        package = ModuleType("robustbench")
        package.__path__ = list(found.submodule_search_locations or ())
        sys.modules["robustbench"] = package
        try:
            return need("robustbench.utils", extra="robustbench", source=spec.text)
        finally:
            del sys.modules["robustbench"]  # whoever imports it later gets the whole
    return need("robustbench.utils", extra="robustbench", source=spec.text)


def _entry(spec: Spec, utils: Any) -> tuple[str, str, str]:
    parts = spec.place.split("/")
    if len(parts) != 3:
        raise spec.error("expected robustbench:DATASET/THREAT/NAME such as cifar10/Linf/Wong2020Fast")
    dataset, threat, name = parts
    zoo = {d.value: {t.value: entries for t, entries in threats.items()} for d, threats in utils.all_models.items()}
    if threat not in zoo.get(dataset, {}):
        known = ", ".join(f"{d}/{t}" for d in zoo for t in zoo[d])
        raise spec.error(f"RobustBench has no {dataset}/{threat}: expected one of {known}")
    if name not in zoo[dataset][threat]:
        near = get_close_matches(name, zoo[dataset][threat], n=4, cutoff=0.4)
        hint = f"near it: {', '.join(near)}" if near else f"it has {len(zoo[dataset][threat])} others"
        raise spec.error(f"RobustBench has no {name} in {dataset}/{threat}; {hint}")
    return dataset, threat, name


def _checkpoints(utils: Any, folder: Path, dataset: str, threat: str, name: str) -> list[Path]:
    """The files its loader will read; none where timm holds the weights in its own cache."""
    benchmark = utils.BenchmarkDataset(dataset)
    ids = utils.all_models[benchmark][utils.ThreatModel(threat)][name].get("gdrive_id")
    timm_name = f"{name.lower().replace('-', '_')}_{dataset.lower()}_{threat.lower()}"
    if ids is None or utils.timm.is_model(timm_name):
        return []
    path = folder / dataset / threat / f"{name}.pt"
    return [Path(f"{path}_m{i}.pt") for i in range(len(ids))] if isinstance(ids, list) else [path]
