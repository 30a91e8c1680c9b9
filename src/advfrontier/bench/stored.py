"""The results of one norm in one file, from which every table and figure of a benchmark can be made again.

It holds what is left of the traces once all tables are made: per model the frontier, the end of every run, what each
tier found, and AutoAttack's points. That is a fiftieth of the traces, so it can lie beside the page it belongs to.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import torch
from pydantic import BaseModel
from torch import Tensor

from advfrontier.attacks.autoattack import KnownPoints
from advfrontier.bench.layout import Bench
from advfrontier.bench.results import NormResults, Results
from advfrontier.bench.subject import Subject
from advfrontier.errors import FrontierError
from advfrontier.flags import Flag
from advfrontier.pool import Ensemble, Race
from advfrontier.record import write_file
from advfrontier.record.tensors import Damaged, pack, unpack

_ABOUT = (
    "model",
    "data",
    "split",
    "samples",
    "growth",
    "known",
    "doubts",
)  # of a model, as they are


class _Model(BaseModel, frozen=True, extra="forbid", ser_json_inf_nan="constants"):
    """What is told of a model beside its distances."""

    model: str
    data: str
    split: str
    samples: tuple[str, ...]
    runs: tuple[str, ...]
    families: dict[str, tuple[int, ...]]
    growth: dict[int, float]
    known: KnownPoints | None
    doubts: tuple[Flag, ...]


class _Norm(BaseModel, frozen=True, extra="forbid", ser_json_inf_nan="constants"):
    """What is told of a norm."""

    benchmark: str
    norm: str
    models: tuple[_Model, ...]
    ensembles: dict[int, str]
    race: str | None
    radii: dict[str, tuple[float, ...]]
    rivals: dict[str, str]
    notes: tuple[str, ...]


def folder_beside(page: str | PathLike[str]) -> Path:
    """The folder of all that a page links to: `docs/results` for `docs/results.md`."""
    if not Path(page).suffix:  # the folder would have the page's own name
        raise FrontierError(
            f"the page is {page}: expected a file with an ending, such as results.md"
        )
    return Path(page).with_suffix("")


def stored_file(folder: Path, norm: str) -> Path:
    """Where the results of a norm lie."""
    return folder / f"{norm}.safetensors"


def store(results: Results, folder: Path) -> list[Path]:
    """Write one file for each norm; returns them."""
    written = []
    for norm, part in results.norms.items():
        told = _Norm(
            benchmark=results.name,
            norm=norm,
            models=tuple(_told(subject) for subject in part.subjects),
            ensembles={budget: ensemble.to_toml() for budget, ensemble in part.ensembles.items()},
            race=None if part.race is None else part.race.to_toml(),
            radii={data: tuple(radii) for data, radii in part.radii.items()},
            rivals=dict(part.rivals),
            notes=tuple(part.notes),
        )
        tensors = {
            name: torch.from_numpy(rows)
            for subject in part.subjects
            for name, rows in _rows(subject)
        }
        words = {"results": told.model_dump_json()}
        written.append(stored_file(folder, norm))
        if not _holds(written[-1], tensors, words):
            write_file(written[-1], pack(tensors, words))
    return written


def _holds(path: Path, tensors: Mapping[str, Tensor], words: Mapping[str, str]) -> bool:
    """Whether a file says the same already: its bytes would differ all the same, in the order of its header."""
    try:
        found, told = unpack(path.read_bytes())
    except (FileNotFoundError, Damaged):
        return False
    return (
        told == words
        and found.keys() == tensors.keys()
        and all(torch.equal(found[name], rows) for name, rows in tensors.items())
    )


def read_stored(folder: Path, bench: Bench) -> Results:
    """The results of a benchmark in those norms whose files lie in a folder.

    Raises FrontierError if a file is damaged or belongs to another benchmark or norm.
    """
    benchmark = bench.benchmark
    found = [norm for norm in benchmark.norms if stored_file(folder, norm).is_file()]
    norms = {norm: _read(stored_file(folder, norm), bench, norm) for norm in found}
    return Results(benchmark.name, tuple(benchmark.budgets), norms, tuple(benchmark.models))


def _told(subject: Subject) -> _Model:
    families = {family: tuple(found) for family, found in subject.families.items()}
    return _Model(
        runs=tuple(subject.ends),
        families=families,
        **{name: getattr(subject, name) for name in _ABOUT},
    )


def _rows(subject: Subject) -> Iterable[tuple[str, np.ndarray[Any, Any]]]:
    """The distances of a model, by name."""
    yield f"{subject.model}/frontier", subject.frontier
    every = {"ends": [*subject.ends.values()]} | {
        name: [*found.values()] for name, found in subject.families.items()
    }
    for name, rows in every.items():
        yield f"{subject.model}/{name}", np.array(rows).reshape(len(rows), len(subject.frontier))


def _read(path: Path, bench: Bench, norm: str) -> NormResults:
    try:
        tensors, words = unpack(path.read_bytes())
        told = _Norm.model_validate_json(words["results"])
        rows = {name: tensor.numpy() for name, tensor in tensors.items()}
        subjects = [_subject(model, rows) for model in told.models]
    except (Damaged, KeyError, ValueError) as error:
        raise FrontierError(
            f"{path} cannot be read ({error}): remove it, and run that norm again"
        ) from error
    if (told.benchmark, told.norm) != (bench.benchmark.name, norm):
        raise FrontierError(
            f"{path} is of the benchmark {told.benchmark} in {told.norm}: expected {bench.benchmark.name} in {norm}"
        )
    return NormResults(
        norm,
        subjects,
        {budget: Ensemble.from_toml(text) for budget, text in told.ensembles.items()},
        radii=told.radii,
        paper=bench.paper(norm),
        race=None if told.race is None else Race.from_toml(told.race),
        rivals=told.rivals,
        notes=told.notes,
    )


def _subject(told: _Model, rows: dict[str, np.ndarray[Any, Any]]) -> Subject:
    own = {name: rows[f"{told.model}/{name}"] for name in ("frontier", "ends", *told.families)}
    return Subject(
        frontier=own["frontier"],
        families={
            name: dict(zip(budgets, own[name], strict=True))
            for name, budgets in told.families.items()
        },
        ends=dict(zip(told.runs, own["ends"], strict=True)),
        **{name: getattr(told, name) for name in _ABOUT},
    )
