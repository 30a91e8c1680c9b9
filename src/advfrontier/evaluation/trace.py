"""Tracing: how the best distance of every run falls with the queries it spends, on one model."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Self

import numpy as np
import torch
from torch import Tensor

from advfrontier.engine import (
    CHECKPOINT,
    Oracle,
    advance,
    check_model,
    clean_pass,
    start_unit,
    verify,
)
from advfrontier.errors import FrontierError
from advfrontier.evaluation.identity import mixed
from advfrontier.evaluation.reading import DOUBTS, doubtful, flags_of, read_units, spent_by
from advfrontier.evaluation.session import Session, Workers, check_attacks, needs_gradients, open_session, units_of
from advfrontier.evaluation.units import SPENT, Terms, few_rows, plain_data, read_clean
from advfrontier.frontier.trajectories import Trajectories
from advfrontier.pool import MAX_QUERIES, Run, check_run
from advfrontier.pool import pool as pool_of
from advfrontier.progress import Progress, Silent
from advfrontier.store import Store
from advfrontier.threat.norms import get_norm
from advfrontier.threat.random import sample_ids

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from numpy.typing import NDArray

    from advfrontier.evaluation.units import Clean
    from advfrontier.solvers import Solver
    from advfrontier.sources import Samples

TRACE = "trace"


@dataclass(frozen=True, eq=False)
class Traces(Trajectories):
    """Trajectories with what is known about how they were made."""

    flags: tuple[str, ...] = ()  # in words: what may make these distances too large, or too good
    counts: Mapping[str, int] = field(default_factory=dict)  # forward plus backward passes, by purpose

    def join(self, other: Trajectories) -> Self:
        """Add another's runs, with its flags and its cost."""
        joined = super().join(other)
        if not isinstance(other, Traces):
            return joined
        flags = tuple(dict.fromkeys(self.flags + other.flags))
        return replace(joined, flags=flags, counts=dict(Counter(self.counts) + Counter(other.counts)))


def trace(
    model: Callable[[Tensor], Tensor],
    images: Tensor,
    labels: Tensor,
    *,
    norm: str,
    runs: Sequence[str] | None = None,
    queries: int = MAX_QUERIES,
    pool: str = "paper",
    seed: int = 42,
    batch_size: int = 100,
    pack: int = 1,
    device: str | torch.device = "cpu",
    dtype: torch.dtype = torch.float32,
    solvers: Mapping[str, Solver] | None = None,
    progress: bool = False,
) -> Traces:
    """Run attacks against a model and record the best distance of each, per sample, every 10 queries.

    `model` maps images in [0, 1] to logits. `runs` names what to run (None: the whole `pool` of that norm), and
    `queries` says where each run stops: the first so many queries of its full schedule of 1000. Samples that are
    misclassified anyway have distance 0 and cost nothing; those that a run never breaks have inf. `pack` runs share a
    batch, which helps when there are few samples, at the price of bits that depend on it. `solvers` replaces the solver
    of an attack (`{"fmn": Fmn(alpha=1)}`, or `PUBLISHED` for all as in their papers).
    """
    (images, labels), seed = plain_data(images, labels), int(seed)
    if queries % CHECKPOINT or not CHECKPOINT <= queries <= MAX_QUERIES:
        raise FrontierError(
            f"cannot stop after {queries} queries: expected a multiple of {CHECKPOINT} up to {MAX_QUERIES}"
        )
    check_attacks(solvers)
    for name, value in (("batch_size", batch_size), ("pack", pack)):
        if value < 1:
            raise FrontierError(f"{name} is {value}: expected at least 1")
    threat = get_norm(norm)
    named = None if runs is None else [Run.parse(run) for run in runs]
    gradients = runs is None or needs_gradients(runs, threat.name)
    ids = sample_ids(images.float().numpy())
    few = few_rows(len(images))
    with Oracle(model, device=device, dtype=dtype) as oracle:
        flags = [flag.text for flag in check_model(oracle, images[few], labels[few], gradients=gradients)]
        clean = clean_pass(oracle, images, labels, threat, batch_size=batch_size, gradients=gradients)
        members = named if named is not None else pool_of(threat.name, classes=clean.classes, name=pool)
        for run in members:
            check_run(run, threat.name, clean.classes)
        attacked = clean.correct.nonzero().squeeze(1)
        distances = np.zeros((len(members), queries // CHECKPOINT, len(images)))
        doubts: Counter[tuple[str, str]] = Counter()
        work = Progress(queries * len(attacked) * len(members), unit="queries") if progress else Silent()
        with work:
            for rows in torch.split(attacked, batch_size):
                shard, samples = clean.rows(rows), rows.numpy()
                for first in range(0, len(members), pack):
                    units = [
                        start_unit(
                            oracle, run, images[rows], labels[rows], shard, norm=threat, seed=seed, ids=ids[samples],
                            solver=(solvers or {}).get(run.attack),
                        )
                        for run in members[first : first + pack]
                    ]  # fmt: skip
                    work.show(", ".join(str(unit.run) for unit in units))
                    advance(oracle, units, [queries] * len(units), tick=work.advance)
                    for offset, unit in enumerate(units):
                        distances[first + offset][:, samples] = unit.trajectory[: queries // CHECKPOINT].cpu().numpy()
                        held = verify(oracle, unit, batch_size=max(1, 2 * unit.rows // 3))
                        doubts += doubtful(str(unit.run), unit.queries, unit.tensors() | {"held": held})
    flags += flags_of(doubts)
    return Traces(
        norm=threat.name,
        runs=tuple(str(run) for run in members),
        queries=np.arange(CHECKPOINT, queries + 1, CHECKPOINT),
        distances=distances,
        samples=sample_names(ids),
        flags=tuple(flags),
        counts=oracle.counts.as_dict(),
    )


def trace_to(
    out: str,
    model: Callable[[Tensor], Tensor] | str,
    samples: Samples,
    *,
    norm: str,
    runs: Sequence[str] | None = None,
    queries: int = MAX_QUERIES,
    pool: str = "paper",
    seed: int = 42,
    solvers: Mapping[str, Solver] | None = None,
    name: str | None = None,
    batch_size: int = 100,
    device: str = "cpu",
    dtype: str = "float32",
    threads: int | None = None,
    workers: int = 0,
    ray: str | None = None,
    progress: bool = False,
    command: str = "",
) -> Traces:
    """Trace into a record: as `trace`, but unit by unit on disk, on many workers, and only what is missing.

    What the record holds of other runs stays in it. More runs, more samples after the same first ones, or more queries
    add to it.
    """
    terms = Terms(get_norm(norm).name, seed, batch_size, device, dtype, threads or torch.get_num_threads())
    session = open_session(
        out,
        kind=TRACE,
        model=model,
        model_name=name,
        samples=samples,
        terms=terms,
        keep_points=False,
        keep_state=False,
        solvers=solvers,
        gradients=runs is None or needs_gradients(runs, terms.norm),
        command=command,
    )
    members = [str(run) for run in pool_of(terms.norm, classes=session.classes, name=pool)] if runs is None else runs
    session.fulfil(dict.fromkeys(members, queries), workers=Workers(workers, ray), progress=progress)
    return load_traces(out, runs=members, session=session)


def load_traces(place: str, *, runs: Sequence[str] | None = None, session: Session | None = None) -> Traces:
    """Read a traced record: these runs, or all that are finished on every shard, as far as all have come."""
    store = Store(place)
    held, clean = store.record(), read_clean(store)
    if held is None or held.get("kind") != TRACE or clean is None:
        raise FrontierError(f"{place} holds no trace: expected a folder that `advfrontier trace --out` has written")
    reached = finished_runs(store, clean, held["shard"])
    wanted = list(reached if runs is None else runs)
    if unfinished := [run for run in wanted if run not in reached]:
        raise FrontierError(
            f"not finished in {place}: {', '.join(unfinished)} ({len(reached)} runs are); type the trace command again "
            "to go on, or ask for others"
        )
    if not wanted:
        raise FrontierError(f"no run is finished in {place}: type the trace command again to go on")
    queries = min(reached[run] for run in wanted)
    distances = np.zeros((len(wanted), queries // CHECKPOINT, len(clean.labels)))
    spent, doubts = spent_by(held), Counter[tuple[str, str]]()
    redo = session.redo if session is not None else None
    far = {run: reached[run] for run in wanted}
    for unit, rows, stored in read_units(store, held, clean, far, redo=redo, names=("trajectory", *DOUBTS)):
        distances[wanted.index(unit.run)][:, rows.numpy()] = stored.tensors["trajectory"][
            : queries // CHECKPOINT
        ].numpy()
        spent += Counter({key: int(stored.words[key]) for key in SPENT})
        doubts += doubtful(unit.run, stored.queries, stored.tensors)
    return Traces(
        norm=held["norm"],
        runs=tuple(wanted),
        queries=np.arange(CHECKPOINT, queries + 1, CHECKPOINT),
        distances=distances,
        samples=sample_names(clean.ids),
        flags=(*held["flags"], *flags_of(doubts), *mixed(held)),
        counts={key: spent[key] for key in ("checks", "setup", "attack", "verification")},
    )


def finished_runs(store: Store, clean: Clean, shard: int) -> dict[str, int]:
    """The runs that are there on every shard, and how far the shortest of their units has come.

    Where no sample is classified correctly there are no units, and all runs that were asked for are finished.
    """
    done, held = store.units(), store.record() or {}
    reached = {
        run: min((done.get(unit, 0) for unit, _ in units_of(clean, shard, [run])), default=queries)
        for run, queries in held["runs"].items()
    }
    order = {str(run): k for k, run in enumerate(pool_of(held["norm"], classes=clean.passed.classes, name="extended"))}
    named = sorted((run for run in reached if reached[run]), key=lambda run: (order.get(run, len(order)), run))
    return {run: reached[run] for run in named}


def sample_names(ids: NDArray[np.uint64]) -> tuple[str, ...]:
    """The ids in hexadecimal; copies of one image are told apart by a number."""
    seen: Counter[int] = Counter()
    names = []
    for key in ids.tolist():
        seen[key] += 1
        names.append(f"{key:016x}" if seen[key] == 1 else f"{key:016x}-{seen[key]}")
    return tuple(names)
