"""Reference sets of one's own: models of any data, with which others are ranked by DOI.

A set is one JSON file, which can be shared. It holds distances and no images:

    {"format": "advfrontier reference set", "version": 1, "advfrontier": "0.1.0",
     "data": "CIFAR-10",
     "norms": {"Linf": {"queries": 4000, "ensemble": "…", "samples": ["ID", …], "labels": [3, …],
                        "models": {"NAME": {"distances": [0.031, 0, null, …],
                                            "flags": [["random", "…"]]}}}}}

`samples` are ids made of the content of the images, `labels` their classes, `ensemble` the TOML of
the ensemble that all models were evaluated with, and a distance of null belongs to a sample that
was never broken.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from os import PathLike
from typing import Annotated, Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from advfrontier import __version__
from advfrontier.errors import FrontierError, printable
from advfrontier.evaluation.compare import as_pool, check_same_labels
from advfrontier.evaluation.evaluation import Evaluation
from advfrontier.flags import Flag, Kind
from advfrontier.frontier.defence import ReferencePool
from advfrontier.pool import Ensemble
from advfrontier.record import open_folder, write_file
from advfrontier.record.header import first_mistake
from advfrontier.table import Column, Table
from advfrontier.threat.names import norm_name

_FORMAT = "advfrontier reference set"
_VERSION = 1
_Distance = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class _Model(_Frozen):
    distances: tuple[_Distance | None, ...]
    flags: tuple[tuple[Kind, str], ...] = ()


class _Norm(_Frozen):
    queries: int = Field(ge=0)
    ensemble: str
    samples: tuple[str, ...] = Field(min_length=1)
    labels: tuple[int, ...]
    models: dict[str, _Model] = Field(min_length=1)

    @model_validator(mode="after")
    def _check_lengths(self) -> _Norm:
        lengths = {len(self.labels), *(len(model.distances) for model in self.models.values())}
        if lengths != {len(self.samples)} or len(set(self.samples)) < len(self.samples):
            raise ValueError("expected one label and one distance per sample, and each sample once")
        return self


class ReferenceSet(_Frozen):
    """Models of one data set that others are ranked with.

    Args:
        format: Constant that identifies the format of the file.
        version: Version of its format.
        advfrontier: Version of the program that wrote it.
        data: Name of the data set.
        norms: Norm to the models evaluated in it.
    """

    format: Literal["advfrontier reference set"] = "advfrontier reference set"
    version: Literal[1] = 1
    advfrontier: str = __version__
    data: str
    norms: dict[str, _Norm]

    def pools(self, evaluations: Sequence[Evaluation]) -> dict[str, ReferencePool]:
        """Return norm to reference pool, in the norms of the evaluations; of all without any.

        Args:
            evaluations: Evaluations to rank, on samples of the set with its labels.
        """
        wanted = {evaluation.norm for evaluation in evaluations} or set(self.norms)
        missing = sorted(wanted - set(self.norms))
        if missing:
            raise FrontierError(
                f"the reference set of {printable(self.data)} has no models in "
                f"{', '.join(missing)}: expected evaluations in {', '.join(self.norms)}"
            )
        for evaluation in evaluations:
            entry = self.norms[evaluation.norm]
            classes = dict(zip(entry.samples, entry.labels, strict=True))
            check_same_labels(evaluation, classes, "the reference models")
        return {norm: self._pool(norm) for norm in self.norms if norm in wanted}

    def notes(self, evaluations: Sequence[Evaluation]) -> list[str]:
        """Return a sentence for every evaluation that was made with another ensemble.

        Args:
            evaluations: Evaluations to rank.
        """
        notes = []
        for evaluation in evaluations:
            entry = self.norms.get(evaluation.norm)
            if entry is None:
                continue
            steps = Ensemble.from_toml(entry.ensemble).prefix(entry.queries)
            if evaluation.ensemble.prefix(entry.queries) != steps:
                notes.append(
                    f"{evaluation.model} was evaluated in {evaluation.norm} with another ensemble "
                    "than the reference models, so that its DOI may be too high or too low"
                )
        return notes

    def table(self) -> Table:
        """Return what the set holds, a line per norm."""
        columns = (
            Column("norm", "norm"),
            Column("models", "integer"),
            Column("samples", "integer"),
            Column("queries", "count"),
        )
        rows = []
        for norm, entry in self.norms.items():
            rows.append((norm, len(entry.models), len(entry.samples), entry.queries))
        return Table(f"reference set of {printable(self.data)}", columns, tuple(rows))

    def save(self, path: str | PathLike[str]) -> str:
        """Write the file and return its path or address.

        Args:
            path: Output file, such as `cifar10.ref`: a path or an address.
        """
        text = json.dumps(self.model_dump(mode="json"), ensure_ascii=False, indent=1)
        return write_file(path, f"{text}\n".encode(), mark=_FORMAT.encode())

    @classmethod
    def load(cls, path: str | PathLike[str]) -> ReferenceSet:
        """Read a file that `save` wrote.

        Args:
            path: File that `save` wrote: a path or an address.
        """
        folder, _, name = str(path).replace("\\", "/").rpartition("/")
        content = open_folder(folder or ".").read(name)
        if content is None:
            raise FrontierError(
                f"no reference set {path}: expected fashion-mnist, or a file that `advfrontier "
                "reference make` wrote"
            )
        try:
            fields = json.loads(content)
        except (ValueError, RecursionError) as error:
            raise FrontierError(f"{path} is no reference set: it is not JSON ({error})") from error
        found = fields.get("version") if isinstance(fields, dict) else None
        if isinstance(found, int) and found > _VERSION:
            raise FrontierError(
                f"{path} is a reference set of version {found}, written by advfrontier "
                f"{printable(str(fields.get('advfrontier')))}: expected version {_VERSION}; "
                "install a newer advfrontier"
            )
        try:
            return cls.model_validate(fields)
        except ValidationError as error:
            raise FrontierError(
                f"{path} is no reference set: {printable(first_mistake(error))}"
            ) from error

    def _pool(self, norm: str) -> ReferencePool:
        entry = self.norms[norm]
        distances, flags = {}, {}
        for model, found in entry.models.items():
            values = [np.inf if each is None else each for each in found.distances]
            distances[model] = np.array(values, dtype=np.float64)
            flags[model] = tuple(Flag(kind, text) for kind, text in found.flags)
        return ReferencePool(
            norm=norm_name(norm),
            dataset=self.data,
            queries=entry.queries,
            samples=entry.samples,
            distances=distances,
            flags=flags,
        )


def make_reference(evaluations: Sequence[Evaluation], *, data: str | None = None) -> ReferenceSet:
    """Make a reference set of evaluations, at the queries that they have in common in each norm.

    Args:
        evaluations: Evaluations of several models on the same samples, with the same ensemble.
        data: Name of the data set; by default as in the first evaluation.
    """
    if not evaluations:
        raise FrontierError("no evaluation to make a reference set of: expected several models")
    norms = {}
    for norm in dict.fromkeys(evaluation.norm for evaluation in evaluations):
        own = [evaluation for evaluation in evaluations if evaluation.norm == norm]
        pool = as_pool(own)
        classes = dict(zip(own[0].samples, own[0].labels.tolist(), strict=True))
        for evaluation in own:
            check_same_labels(evaluation, classes, own[0].model)
        models = {}
        for model, distances in pool.distances.items():
            values = [float(d) if np.isfinite(d) else None for d in distances]
            flags = tuple((flag.kind, flag.text) for flag in pool.flags.get(model, ()))
            models[model] = _Model(distances=tuple(values), flags=flags)
        norms[norm] = _Norm(
            queries=pool.queries,
            ensemble=own[0].ensemble.to_toml(),
            samples=pool.samples,
            labels=tuple(classes[sample] for sample in pool.samples),
            models=models,
        )
    return ReferenceSet(data=evaluations[0].data if data is None else data, norms=norms)
