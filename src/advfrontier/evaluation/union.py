"""Unions of norms, from the records of each: one model, or several to compare and to rank."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from advfrontier.errors import FrontierError
from advfrontier.evaluation.compare import by_model, check_alike, find_evaluations, reached
from advfrontier.evaluation.evaluation import Evaluation
from advfrontier.evaluation.radii import parse_radii
from advfrontier.flags import Flag
from advfrontier.frontier import comparison, ranking
from advfrontier.frontier.comparison import Comparison
from advfrontier.frontier.defence import ReferencePool
from advfrontier.frontier.measure import Evaluated, check_same_samples
from advfrontier.frontier.ranking import Ranking
from advfrontier.frontier.union import Union
from advfrontier.jsonable import jsonable
from advfrontier.threat.names import name_union, norm_name, norm_order


@dataclass(frozen=True, eq=False)
class UnionOfModel(Union):
    """Union of norms of one model, from its evaluations.

    Args:
        model: Name of the model.
        data: Name of the data.
        name: Name of the union, made of the radii as they were written.
        samples: Ids of the samples.
        queries: Queries per sample in each norm, the fewest of them.
        flags: Flags of the evaluations, each with its norm.
    """

    model: str = ""
    data: str = ""
    name: str = ""
    samples: tuple[str, ...] = ()
    queries: int = 0
    flags: tuple[Flag, ...] = ()

    def evaluated(self) -> Evaluated:
        """Return what comparing and ranking ask: distances are in units of the path."""
        return Evaluated(
            model=self.model,
            norm=self.name,
            samples=self.samples,
            distances=self.distances,
            queries=self.queries,
            flags=self.flags,
            data=self.data,
            tiers=(),
        )

    def to_dict(self, shares: Sequence[float] = (1.0,)) -> dict[str, Any]:
        """Return all figures as JSON knows them: infinite numbers are "inf".

        Args:
            shares: Values of t at which accuracies are read.
        """
        accuracies = []
        for t in shares:
            accuracies.append(
                {
                    "t": t,
                    "robust_accuracy": self.robust_accuracy_interval(t),
                    "alone": {norm: self.alone(norm, t) for norm in self.radii},
                    "broken_only_by": {norm: self.broken_only_by(norm, t) for norm in self.radii},
                }
            )
        content: dict[str, Any] = jsonable(
            {
                "model": self.model,
                "data": self.data,
                "radii": dict(self.radii),
                "queries": self.queries,
                "accuracies": accuracies,
                "aurec": self.aurec_interval(),
                "flags": self.flags,
                "distances": self.distances,
                "weakest": self.weakest,
                "samples": self.samples,
            }
        )
        return content


def union(
    evaluations: Iterable[Evaluation | str] | Evaluation | str, *, radii: str
) -> UnionOfModel:
    """Return the robustness of one model against several norms at once.

    Args:
        evaluations: Evaluations of one model or their folders, one per norm; norms that `radii`
            does not name are left out.
        radii: Radius of each norm at t = 1, such as `L1=12,L2=0.5,Linf=8/255`; without names in the
            order of the evaluations.
    """
    found = unions(evaluations, radii=radii)
    if len(found) > 1:
        names = ", ".join(each.model for each in found)
        raise FrontierError(
            f"these are evaluations of {len(found)} models ({names}): expected those of one; take "
            "`unions` for several"
        )
    return found[0]


def unions(
    evaluations: Iterable[Evaluation | str] | Evaluation | str, *, radii: str
) -> list[UnionOfModel]:
    """Return the union of norms of every model; arguments as in `union`.

    Args:
        evaluations: Evaluations or their folders, of any models, one per norm and model.
        radii: Radius of each norm at t = 1, as in `union`.
    """
    opened = _opened(evaluations)
    table = by_model(opened)
    named = _named(radii, list(dict.fromkeys(each.norm for each in opened)))
    found = []
    for model, norms in table.items():
        missing = [norm for norm in named if norm not in norms]
        if missing:
            raise FrontierError(
                f"{model} has no evaluation in {', '.join(missing)} among these records: expected "
                f"one in each of {', '.join(named)}; type `advfrontier evaluate` with --norm "
                f"{','.join(missing)}, or leave out the radius"
            )
        found.append(_of_model([norms[norm] for norm in named], named))
    for norm in named:
        check_alike([norms[norm] for norms in table.values()])
    return found


def compare_unions(first: UnionOfModel, second: UnionOfModel) -> Comparison:
    """Compare the whole curves of two models along the same path.

    Args:
        first: Union of norms of one model.
        second: Union of the same norms and radii of another model, on the same samples.
    """
    return comparison.compare(first.evaluated(), second.evaluated())


def rank_unions(found: Sequence[UnionOfModel], at: Mapping[str, float] | None = None) -> Ranking:
    """Rank models by DOI along the same path, all at the same number of queries.

    Args:
        found: Unions of the models, all of the same radii.
        at: Values of t at which robust accuracy is read, by the text that heads their column.
    """
    fewest = min(each.queries for each in found)
    rows = []
    for each in found:
        if each.queries != fewest:
            raise FrontierError(
                f"{each.model} has {each.queries} queries per sample in each norm, another model "
                f"{fewest}: expected equal queries; type `advfrontier extend` with its folder"
            )
        rows.append(each.evaluated())
    pool = ReferencePool.of(rows)
    return ranking.rank(
        {pool.norm: pool},
        given=[each.model for each in found],
        radii={pool.norm: at or {"1": 1.0}},
    )


def _opened(evaluations: Iterable[Evaluation | str] | Evaluation | str) -> list[Evaluation]:
    """Open folders, in the order given."""
    several = [evaluations] if isinstance(evaluations, Evaluation | str) else evaluations
    opened: list[Evaluation] = []
    for each in several:
        opened.extend([each] if isinstance(each, Evaluation) else find_evaluations([each]))
    if not opened:
        raise FrontierError("no evaluations: expected one of a model in each of two norms or more")
    return opened


def _named(radii: str, norms: Sequence[str]) -> dict[str, tuple[str, float]]:
    """Return norm to its radius, as written and as a number, in the catalogue's order."""
    if "=" not in radii:
        sizes = parse_radii(radii)
        if len(sizes) != len(norms):
            raise FrontierError(
                f"{len(sizes)} radii ({radii}) for evaluations in {', '.join(norms)}: expected one "
                "for each, or with names, as in L1=12,L2=0.5,Linf=8/255"
            )
        return dict(zip(norms, sizes, strict=True))
    named: dict[str, tuple[str, float]] = {}
    for part in radii.split(","):
        text, equals, _ = part.partition("=")
        if not equals:
            raise FrontierError(
                f"{part.strip()!r} in {radii!r} names no norm: expected one radius for each norm, "
                "as in L1=12,L2=0.5,Linf=8/255"
            )
        norm = norm_name(text)
        if norm in named:
            raise FrontierError(f"two radii of {norm} in {radii!r}: expected one")
        named[norm] = parse_radii(part)[0]
    return dict(sorted(named.items(), key=lambda entry: norm_order(entry[0])))


def _of_model(
    evaluations: Sequence[Evaluation], named: Mapping[str, tuple[str, float]]
) -> UnionOfModel:
    """Return the union of one model's evaluations, at the queries that all of them have had."""
    first = evaluations[0]
    flags: list[Flag] = []
    for other in evaluations:
        check_same_samples(
            first.samples,
            other.samples,
            names=(f"{first.model} in {first.norm}", f"{other.model} in {other.norm}"),
        )
        criteria = [each.record.header.terms.criterion for each in (first, other)]
        if criteria[0] != criteria[1]:
            raise FrontierError(
                f"{first.place} has the criterion {criteria[0]}, {other.place} {criteria[1]}: "
                "expected the same"
            )
        domains = [each.record.header.terms.domain for each in (first, other)]
        if domains[0] != domains[1]:
            raise FrontierError(
                f"{first.place} is in the {domains[0]}, {other.place} in the {domains[1]}: "
                "expected the same"
            )
        if first.record.header.model.digest != other.record.header.model.digest:
            raise FrontierError(
                f"{first.place} and {other.place} are of different models of the name "
                f"{first.model}: expected one model; evaluate it again in a new folder"
            )
        for flag in other.flags:
            flags.append(replace(flag, text=f"{other.norm}: {flag.text}"))
    queries = min(reached(each) for each in evaluations)
    return UnionOfModel(
        by_norm={each.norm: each.distances_at(queries) for each in evaluations},
        radii={norm: radius for norm, (_, radius) in named.items()},
        model=first.model,
        data=first.data,
        name=name_union({norm: text for norm, (text, _) in named.items()}),
        samples=tuple(first.samples),
        queries=queries,
        flags=tuple(flags),
    )
