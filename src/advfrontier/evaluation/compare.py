"""Compare two evaluations by their curves, or rank many by DOI.

All models of a table stand on the same samples and the same number of queries. A record that went
further is read back there, which costs nothing. Newcomers can be ranked against a reference pool
that is embedded: distances of the zoo's models at the three tiers.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from importlib.resources import files

import numpy as np

from advfrontier.errors import FrontierError
from advfrontier.evaluation.evaluation import Evaluation
from advfrontier.evaluation.radii import parse_radii
from advfrontier.flags import Flag, Kind
from advfrontier.frontier import comparison, ranking
from advfrontier.frontier.comparison import Comparison
from advfrontier.frontier.confidence import RESAMPLES
from advfrontier.frontier.defence import ReferencePool
from advfrontier.frontier.measure import Evaluated, check_same_settings
from advfrontier.frontier.ranking import Ranking
from advfrontier.pool import TIERS, find_ensemble, find_larger, tier_label
from advfrontier.record import find_records
from advfrontier.record.identity import settings
from advfrontier.record.tensors import unpack
from advfrontier.threat.names import NORMS, norm_name, norm_order
from advfrontier.zoo import images_and_labels

REFERENCES = ("fashion-mnist",)
_TIERS = ", ".join(map(tier_label, TIERS))


def find_evaluations(paths: Iterable[str], *, needed: bool = True) -> list[Evaluation]:
    """Open every evaluation at or below these folders; raise where one is needed and missing.

    Args:
        paths: Folders, or addresses such as `s3://bucket/mine`.
        needed: Whether a folder without evaluations is an error.
    """
    evaluations = []
    for path in paths:
        for record in find_records(path, kind="evaluation", needed=needed):
            evaluations.append(Evaluation(record))
    return evaluations


def by_model(evaluations: Iterable[Evaluation]) -> dict[str, dict[str, Evaluation]]:
    """Return model → norm → evaluation; raise if a model has two records in one norm.

    Args:
        evaluations: Evaluations of any models in any norms.
    """
    table: dict[str, dict[str, Evaluation]] = {}
    for evaluation in evaluations:
        norms = table.setdefault(evaluation.model, {})
        if evaluation.norm in norms:
            raise FrontierError(
                f"two records of {evaluation.model} in {evaluation.norm}: "
                f"{norms[evaluation.norm].place} and {evaluation.place}; leave one of them out, "
                "or evaluate it under another --name in another --out"
            )
        norms[evaluation.norm] = evaluation
    return table


def of_one_model(folder: str) -> dict[str, Evaluation]:
    """Return norm → evaluation of the one model with records at or below a folder.

    Args:
        folder: Folder of one model's evaluations: a path or an address.
    """
    table = by_model(find_evaluations([folder]))
    if len(table) > 1:
        models = []
        for model, norms in table.items():
            places = ", ".join(evaluation.place for evaluation in norms.values())
            models.append(f"{model} in {places}")
        raise FrontierError(
            f"{folder} holds records of {len(table)} models ({'; '.join(models)}): "
            "expected the folder of one"
        )
    return next(iter(table.values()))


def compare(first: Evaluation, second: Evaluation, *, E: float | None = None) -> Comparison:
    """Compare the curves of two models on the same samples in one norm, each at its tier.

    Args:
        first: Evaluation of one model.
        second: Evaluation of another model, on the same samples in the same norm.
        E: Common end of the areas, in units of the norm; by default the largest finite distance.
    """
    both = (first, second)
    if first.norm == second.norm:  # or it is refused below, in other words
        check_alike(both)
    models = []
    for one in both:
        name = one.place if first.model == second.model else one.model
        tiers = tuple(tier for tier in TIERS if _can_reach(one, tier))
        models.append(replace(evaluated(one, name=name), tiers=tiers))
    return comparison.compare(*models, E=E)


def evaluated(
    evaluation: Evaluation, *, queries: int | None = None, name: str | None = None
) -> Evaluated:
    """Return one evaluation at its queries, or at fewer, which are a prefix.

    Args:
        evaluation: Evaluation to read, finished up to `queries` at least.
        queries: Queries per sample to read; by default all that were spent.
        name: Name in messages and tables; by default the model's own.
    """
    found = reached(evaluation)
    tier = found if queries is None else queries
    if found < tier:
        raise FrontierError(
            f"{evaluation.model} was evaluated in {evaluation.norm} with {tier_label(found)} "
            f"queries, the others with {tier_label(tier)}: expected equal queries; type "
            "`advfrontier extend` with its folder and "
            + (f"--tier {tier_label(tier)}" if tier in TIERS else f"--queries {tier}")
        )
    return Evaluated(
        model=name or evaluation.model,
        norm=evaluation.norm,
        samples=tuple(evaluation.samples),
        distances=evaluation.distances if tier == found else evaluation.distances_at(tier),
        queries=tier,
        flags=evaluation.flags,
        data=evaluation.data,
    )


def _can_reach(evaluation: Evaluation, tier: int) -> bool:
    """Return whether `extend` can reach this tier; a plain list ends at 1000 queries per run."""
    try:
        find_larger(tier, evaluation.ensemble, evaluation.record.clean.classes)
    except FrontierError:
        return False
    return True


def check_alike(evaluations: Sequence[Evaluation]) -> None:
    """Raise if models were attacked in different ways: one would look more robust.

    Args:
        evaluations: Evaluations that are to be compared, in one norm.
    """
    first, *others = evaluations
    common = min(map(reached, evaluations))
    for other in others:
        names = [each.record.header.terms.criterion for each in (first, other)]
        if names[0] != names[1]:
            raise FrontierError(
                f"{first.model} was evaluated with the criterion {names[0]}, {other.model} with "
                f"{names[1]}: expected the same; their distances answer different questions"
            )
        domains = [each.record.header.terms.domain for each in (first, other)]
        if domains[0] != domains[1]:
            raise FrontierError(
                f"{first.model} was evaluated in the {domains[0]}, {other.model} in the "
                f"{domains[1]}: expected the same; their distances are measured differently"
            )
    for other in others:
        check_same_labels(
            other, dict(zip(first.samples, first.labels.tolist(), strict=True)), first.model
        )
        if not _same_attacks(first, other, common):
            raise FrontierError(
                f"{first.model} was evaluated in {first.norm} with {first.ensemble.name}, "
                f"{other.model} with {other.ensemble.name}: expected the same attacks for all, "
                "because others do not find the same distances; evaluate one of them again in a "
                "new folder with --ensemble, --pool or --runs of the other"
            )
        check_same_settings(
            settings(first.solver_parameters),
            settings(other.solver_parameters),
            names=(first.model, other.model),
            attacks=first.solver_parameters.keys() & other.solver_parameters.keys(),
        )


def check_same_labels(evaluation: Evaluation, known: Mapping[str, int], whose: str) -> None:
    """Refuse other classes of samples that others were evaluated on too: sample → class.

    Args:
        evaluation: Evaluation whose labels are checked.
        known: Sample id to its class; samples that are not in it are not checked.
        whose: Owner of the known classes, for messages.
    """
    own = zip(evaluation.samples, evaluation.labels.tolist(), strict=True)
    if different := [(sample, label) for sample, label in own if known.get(sample, label) != label]:
        sample, label = different[0]
        raise FrontierError(
            f"{evaluation.model} was evaluated with other labels than {whose} on {len(different)} "
            f"samples (the first: class {label}, not {known[sample]}): expected the same data; "
            "evaluate one of them again in a new folder"
        )


def _same_attacks(one: Evaluation, other: Evaluation, queries: int) -> bool:
    """Tell whether the first `queries` queries of both ensembles take the same steps."""
    if _lacks_gradients(one) != _lacks_gradients(other):
        # A model without gradients has an ensemble of its own, which stands in for any.
        return True
    mine, theirs = one.record.header.gradients, other.record.header.gradients
    if {mine, theirs} == {"doubted", "surrogate"}:
        return True  # so have both of these
    # Where one of them is doubted or a surrogate, other steps stand between those of its ensemble.
    of_one = one.ensemble.for_gradients(theirs).prefix(queries)
    return of_one == other.ensemble.for_gradients(mine).prefix(queries)


def _lacks_gradients(evaluation: Evaluation) -> bool:
    """Tell whether black-box runs stood in for others, not whether they were asked for."""
    header = evaluation.record.header
    flagged = any(flag.kind is Kind.NO_GRADIENTS for flag in header.flags)
    return flagged and header.gradients == "none"


def reached(evaluation: Evaluation) -> int:
    """Return the tier of an evaluation: the budget its ensemble was made for.

    Args:
        evaluation: Evaluation of any number of queries.
    """
    return evaluation.ensemble.tiers[-1] if evaluation.ensemble.tiers else 0


def as_pool(
    evaluations: Sequence[Evaluation], reference: ReferencePool | None = None
) -> ReferencePool:
    """Return models at the queries they have in common, joined with a reference pool if given.

    Args:
        evaluations: Evaluations of different models, on the same samples in one norm.
        reference: Reference pool to join, in the same norm.
    """
    check_alike(evaluations)
    queries = reference.queries if reference else min(map(reached, evaluations))
    return ReferencePool.of(
        [evaluated(one, queries=queries) for one in evaluations], reference=reference
    )


def rank(
    evaluations: Iterable[Evaluation],
    *,
    reference: Mapping[str, ReferencePool] | None = None,
    radii: str | None = None,
    resamples: int = RESAMPLES,
) -> Ranking:
    """Rank models by DOI against each other and against the norm's reference pool, if given.

    Without any records the reference pools are ranked as they are.

    Args:
        evaluations: Evaluations of any models in any norms.
        reference: Norm → reference pool that the models are ranked with.
        radii: Radii such as `L2=0.5,Linf=8/255`, which add robust accuracies to the tables.
        resamples: Bootstrap resamples for intervals and ranges of ranks.
    """
    by_norm: dict[str, list[Evaluation]] = {}
    for evaluation in evaluations:
        by_norm.setdefault(evaluation.norm, []).append(evaluation)
    known = dict(reference or {})
    pools = {norm: as_pool(found, known.get(norm)) for norm, found in by_norm.items()} or known
    given: set[str] = set()
    for found in by_norm.values():
        given.update(evaluation.model for evaluation in found)
    return ranking.rank(
        {norm: pools[norm] for norm in sorted(pools, key=norm_order)},
        given=given,
        radii={norm: dict(parse_radii(radii or "", norm)) for norm in pools},
        resamples=resamples,
    )


def reference_pool(norm: str, queries: int, *, name: str = REFERENCES[0]) -> ReferencePool:
    """Return the models of a shipped pool in one norm at one of the tiers.

    Args:
        norm: Name of the norm: L0, L1, L2 or Linf.
        queries: Queries per sample: 4000, 8000 or 12000.
        name: Name of the pool, one of `REFERENCES`; so far it is that of its data set.
    """
    if name not in REFERENCES:
        raise FrontierError(f"no reference pool {name!r}: expected one of {', '.join(REFERENCES)}")
    if norm_name(norm) not in NORMS:
        raise FrontierError(
            f"there are no reference models in {norm}: expected one of {', '.join(NORMS)}; leave "
            "out "
            "--reference to rank models among each other"
        )
    tables, words = _shipped(norm_name(norm))
    stored: dict[str, list[dict[str, str]]] = json.loads(words["flags"])
    flags = {}
    for model, entries in stored.items():
        flags[model] = tuple(Flag(Kind(entry["kind"]), entry["text"]) for entry in entries)
    return ReferencePool(
        norm=norm_name(norm),
        dataset=name,
        queries=queries,
        samples=tuple(json.loads(words["samples"])),
        distances={model: table[TIERS.index(queries)] for model, table in tables.items()},
        flags=flags,
    )


def common_pool(
    evaluations: Sequence[Evaluation], norm: str, *, name: str = REFERENCES[0]
) -> ReferencePool:
    """Return a shipped pool at the largest tier that all of these evaluations reached.

    Args:
        evaluations: Evaluations in the norm, on samples of the pool.
        norm: Name of the norm: L0, L1, L2 or Linf.
        name: Name of the pool, one of `REFERENCES`.
    """
    tiers = list(TIERS)
    for evaluation in evaluations:
        tiers = [tier for tier in tiers if tier in evaluation.ensemble.tiers]
    for evaluation in evaluations:
        if evaluation.criterion is not None:
            raise FrontierError(
                f"the reference models were evaluated untargeted, {evaluation.model} with the "
                f"criterion {evaluation.criterion.name}: leave out --reference"
            )
        if evaluation.space is not None:
            raise FrontierError(
                f"the reference models were evaluated in [0, 1], {evaluation.model} in a domain "
                f"({evaluation.space.words}): leave out --reference"
            )
    pool = reference_pool(norm, tiers[-1] if tiers else TIERS[-1], name=name)
    _, labels = images_and_labels()
    classes = dict(zip(pool.samples, labels.tolist(), strict=False))  # of the first images
    for evaluation in evaluations:
        check_same_labels(evaluation, classes, "the reference models")
        if extra := len(set(evaluation.samples) - set(pool.samples)):
            raise FrontierError(
                f"the reference models were run on the first {len(pool.samples)} samples of "
                f"{name}, and {extra} of the {len(evaluation.samples)} of {evaluation.model} are "
                f"others: evaluate it with --data {name} --samples {len(pool.samples)}"
            )
    if not tiers:
        found = ", ".join(
            f"{evaluation.model} with {tier_label(reached(evaluation))}"
            for evaluation in evaluations
        )
        raise FrontierError(
            f"the reference models were run with {_TIERS} queries per sample, {found}: expected "
            f"tiers in common; type --tier {tier_label(TIERS[0])}"
        )
    return pool


def reference_pools(evaluations: Sequence[Evaluation], *, name: str) -> dict[str, ReferencePool]:
    """Return a shipped pool per norm of the evaluations, each at the largest tier they share.

    Args:
        evaluations: Evaluations in any of the four norms; without any, a pool per norm is returned.
        name: Name of the pool, one of `REFERENCES`.
    """
    norms = {evaluation.norm for evaluation in evaluations} or NORMS
    pools = {}
    for norm in norms:
        in_norm = [one for one in evaluations if one.norm == norm]
        pools[norm] = common_pool(in_norm, norm, name=name)
    return pools


def ensemble_notes(evaluation: Evaluation) -> list[str]:
    """Return a note if a model was attacked with another ensemble than the reference models.

    Args:
        evaluation: Evaluation that is ranked among the reference models.
    """
    classes = evaluation.record.clean.classes
    default = find_ensemble(tier_label(TIERS[-1]), evaluation.norm, classes)
    if default.holds(evaluation.ensemble):
        return []
    note = (
        f"the reference models were attacked with the default ensemble, {evaluation.model} with "
        f"{evaluation.ensemble.name}: the DOI is too high if that ensemble finds larger distances; "
        "evaluate with --tier 4k in a new folder"
    )
    return [note]


def embedded_pool(evaluation: Evaluation) -> tuple[ReferencePool | None, str | None]:
    """Return the embedded pool at the evaluation's tier, or the reason why there is none.

    Args:
        evaluation: Evaluation of any model on any data.
    """
    plain = evaluation.criterion is None and evaluation.space is None
    if evaluation.norm not in NORMS or not plain:
        return None, None
    try:
        return common_pool([evaluation], evaluation.norm), None
    except FrontierError as error:
        near = set(evaluation.samples) & set(reference_pool(evaluation.norm, TIERS[0]).samples)
        return None, str(error) if near else None


@lru_cache(maxsize=4)
def _shipped(
    norm: str,
) -> tuple[dict[str, np.ndarray[tuple[int, int], np.dtype[np.float64]]], dict[str, str]]:
    content = files("advfrontier.zoo").joinpath("reference", f"{norm}.safetensors").read_bytes()
    tensors, words = unpack(content)
    return {model: tensor.numpy() for model, tensor in tensors.items()}, words
