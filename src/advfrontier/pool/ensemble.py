"""Ensembles: an ordered list of steps that says how the queries of an evaluation are spent.

A step raises a run to a number of queries, refines the best point found so far by a short run
that starts at or beyond it, or forks: the samples on which the step before lowered the distance
get other refinements than the rest. An evaluation takes the steps in order until its budget is
spent, so every budget is a prefix of every larger one: an evaluation with 4k queries can be
extended to 8k without repeating a query.

One frozen model is the object in memory, its TOML file and its entry in a record.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self

from pydantic import (
    BaseModel,
    Discriminator,
    Field,
    Tag,
    ValidationError,
    field_validator,
    model_validator,
)

from advfrontier.errors import FrontierError, printable
from advfrontier.pool.catalogue import (
    BLACK_BOX,
    CHECKPOINT,
    MAX_QUERIES,
    RESTARTS,
    TARGETS,
    check_run,
    pool,
)
from advfrontier.pool.runs import Run, is_external, parse_external
from advfrontier.threat.names import norm_name
from advfrontier.toml import (
    TomlTable,
    first_mistake,
    parse_toml,
    read_toml,
    shown,
    toml_text,
)
from advfrontier.views import Shown

if TYPE_CHECKING:
    from os import PathLike

TIERS = (4000, 8000, 12000)  # the paper's 4k, 8k and 12k
GAIN = 1e-3  # relative fall of a distance that counts as a gain in a fork
REFINED = ":refine"  # suffix of the name under which refinements by an attack are listed

_MOST_STEPS = 100_000
MAX_EXTERNAL = 1_000_000  # queries of an external run, which has no schedule of 1000
_PART = 200  # queries by which the runs of `Ensemble._half_on` are raised at a time
# Norm to the attack that gets half of the queries where gradients are surrogates.
_WITH_SURROGATES = {"L2": "apgd_min-ce"}
_Queries = Annotated[int, Field(strict=True, gt=0, le=MAX_QUERIES, multiple_of=CHECKPOINT)]
_AnyQueries = Annotated[int, Field(strict=True, gt=0, le=MAX_EXTERNAL, multiple_of=CHECKPOINT)]
_Total = Annotated[int, Field(strict=True, ge=0, lt=2**31, multiple_of=CHECKPOINT)]
_Share = Annotated[float, Field(strict=True, ge=0, allow_inf_nan=False)]


class Raise(TomlTable):
    """Run an attack until it has spent `queries` queries; it resumes where it was stopped.

    An external run is done in one piece, from 0 to `queries`.

    Args:
        run: Name of the run.
        queries: Queries that it is raised to.
    """

    run: str
    queries: _AnyQueries

    @field_validator("run")
    @classmethod
    def _sort_parameters(cls, run: str) -> str:
        try:
            external = parse_external(run)
        except FrontierError as error:
            raise ValueError(str(error)) from error
        return run if external is None else str(external)

    @model_validator(mode="after")
    def _check_queries(self) -> Self:
        if self.queries > MAX_QUERIES and not is_external(self.run):
            raise ValueError(
                f"{self.run} is raised to {self.queries} queries: expected at most {MAX_QUERIES}"
            )
        return self


class Refine(TomlTable):
    """Spend `queries` queries on a short run that starts from the best point found so far.

    With `start="best"` it starts there and takes small steps. With `start="beyond"` it starts on
    the ray from the input through the best point, at a distance drawn for each sample between
    one and `reach` times the best distance, so that it can end at another place.

    Args:
        run: Name of the base run.
        queries: Queries that are spent.
        start: `best` for the best point, `beyond` for a point beyond it as seen from the image.
        reach: Largest distance of the start, over the best distance.
    """

    run: str
    queries: _Queries
    start: Literal["best", "beyond"]
    reach: Annotated[float, Field(gt=1, le=100, allow_inf_nan=False)] = 3.0

    @property
    def name(self) -> str:
        """Return the name under which the queries of this refinement are listed."""
        return f"{self.run}{REFINED}"


class Branches(TomlTable):
    """Refinements of both groups of samples; both lists spend the same queries.

    Args:
        gained: Refinements of samples that the step before brought nearer.
        otherwise: Refinements of the others; as many queries.
    """

    gained: Annotated[tuple[Refine, ...], Field(min_length=1, max_length=_MOST_STEPS)]
    otherwise: Annotated[tuple[Refine, ...], Field(min_length=1, max_length=_MOST_STEPS)]

    @model_validator(mode="after")
    def _check_lengths(self) -> Self:
        gained, otherwise = _spent(self.gained), _spent(self.otherwise)
        if gained != otherwise:
            raise ValueError(
                f"a fork spends {gained} queries where the step before gained and {otherwise} "
                "elsewhere: expected equal numbers"
            )
        return self


class Fork(TomlTable):
    """Refine samples differently, by whether the step before lowered their distance.

    Args:
        fork: Both lists.
    """

    fork: Branches

    @property
    def queries(self) -> int:
        """Return the queries that the fork spends on each sample."""
        return _spent(self.fork.gained)


def _spent(steps: tuple[Refine, ...]) -> int:
    return sum(step.queries for step in steps)


def _kind_of(step: Any) -> str:
    """Tell which kind of step a table of a file holds."""
    if isinstance(step, BaseModel):
        keys = set(type(step).model_fields)
    else:
        keys = set(step) if isinstance(step, Mapping) else set()
    if "fork" in keys:
        return "fork"
    return "refine" if "start" in keys else "raise"


Step = Annotated[
    Annotated[Raise, Tag("raise")]
    | Annotated[Refine, Tag("refine")]
    | Annotated[Fork, Tag("fork")],
    Discriminator(_kind_of),
]


@dataclass(frozen=True)
class Span:
    """Step and its place among the queries of the ensemble.

    Args:
        index: Index among the steps, from 0.
        step: Step of the ensemble.
        begin: Queries of the ensemble before it.
        end: Queries of the ensemble after it.
        reached: Queries that the run of a Raise has spent before the step; 0 for other steps.
    """

    index: int
    step: Raise | Refine | Fork
    begin: int
    end: int
    reached: int


class Ensemble(TomlTable, Shown):
    """Steps in order, and how many queries of them are spent on each sample.

    Args:
        name: Display name, such as `4k`.
        norm: Name of the norm, such as `L2`.
        steps: Steps in order. They may go beyond `total`.
        total: Queries per sample: the list is cut there. By default the whole list.
        aoi: Global AOI on the models the ensemble was allocated on, where known.
        bound: Upper bound on the AOI of any ensemble with this budget on those models.
        flags: Sentences to read before trusting the ensemble.
        solvers: Attack to the parameters it was traced with, such as `alpha=1.0`, where they are
            not its defaults.
    """

    hint = "`advfrontier allocate` writes such files"

    name: str
    norm: str
    steps: Annotated[tuple[Step, ...], Field(max_length=_MOST_STEPS)] = ()
    total: _Total = -1  # replaced by the length of the list
    aoi: _Share | None = None
    bound: _Share | None = None
    flags: tuple[str, ...] = ()
    solvers: dict[str, str] = Field(default_factory=dict)

    @field_validator("norm")
    @classmethod
    def _check_norm(cls, norm: str) -> str:
        try:
            return norm_name(norm)
        except FrontierError as error:
            raise ValueError(str(error)) from error

    @model_validator(mode="after")
    def _check_steps(self) -> Self:
        if self.total == -1:
            object.__setattr__(self, "total", self.longest)
        if self.total > self.longest:
            raise ValueError(
                f"total = {self.total}, but its steps spend {self.longest} queries: expected no "
                "more than that"
            )
        if (span := self.cuts(self.total)) is not None:
            raise ValueError(_cut_message(self.total, span))
        if self.steps and isinstance(self.steps[0], Fork):
            raise ValueError("the first step is a fork: expected a step before it")
        return self

    @classmethod
    def of(cls, name: str, norm: str, queries: Mapping[str, int]) -> Ensemble:
        """Make an ensemble from queries per run: base runs first, then restarts and targets.

        Args:
            name: Display name.
            norm: Name of the norm.
            queries: Run to its queries; runs with 0 are left out.
        """
        active = [run for run in queries if queries[run]]
        order = sorted(active, key=lambda run: Run.parse(run).index)
        steps = [{"run": run, "queries": queries[run]} for run in order]
        return make_ensemble(name=name, norm=norm, steps=steps)

    def __repr__(self) -> str:
        label = tier_label(self.total)
        name = printable(self.name)
        return f"<Ensemble {name} in {self.norm}, {len(self.runs)} runs, {label} queries>"

    # What it spends

    @cached_property
    def spans(self) -> tuple[Span, ...]:
        """Return every step with the range of queries it covers, also beyond `total`."""
        spans = []
        reached: dict[str, int] = {}
        begin = 0
        for index, step in enumerate(self.steps):
            before = 0
            cost = step.queries
            if isinstance(step, Raise):
                before = reached.get(step.run, 0)
                cost -= before
                if before and is_external(step.run):
                    raise ValueError(
                        f"{step.run} is done in one piece, and is raised to {before} and to "
                        f"{step.queries} queries: expected one step with it"
                    )
                if cost <= 0:
                    raise ValueError(
                        f"{step.run} goes from {before} to {step.queries} queries: expected a rise"
                    )
                reached[step.run] = step.queries
            spans.append(Span(index, step, begin, begin + cost, before))
            begin += cost
        return tuple(spans)

    def cuts(self, queries: int) -> Span | None:
        """Return the step of an external run that a budget would cut; None if there is none.

        Args:
            queries: Budget, in queries per sample.
        """
        for span in self.between(queries - 1, queries + 1):
            whole = isinstance(span.step, Raise) and is_external(span.step.run)
            if whole and span.begin < queries < span.end:
                return span
        return None

    @property
    def longest(self) -> int:
        """Return the queries per sample of the whole list."""
        return self.spans[-1].end if self.spans else 0

    def between(self, first: int, last: int) -> Iterator[Span]:
        """Yield the steps that spend the queries from `first` to `last` of the ensemble.

        Args:
            first: Queries of the ensemble at which the range begins.
            last: Queries of the ensemble at which it ends.
        """
        for span in self.spans:
            if span.begin < last and first < span.end:
                yield span

    @cached_property
    def queries(self) -> dict[str, int]:
        """Return queries per run within `total`; refinements are listed as `ATTACK:refine`.

        Of a fork the refinements of samples without a gain count.
        """
        spent: dict[str, int] = {}
        for span in self.between(0, self.total):
            length = min(span.end, self.total) - span.begin
            if isinstance(span.step, Raise):
                spent[span.step.run] = span.reached + length
                continue
            for step in refinements(span.step, gained=False):
                part = min(step.queries, length)
                if part > 0:
                    spent[step.name] = spent.get(step.name, 0) + part
                length -= part
        return spent

    @cached_property
    def runs(self) -> tuple[str, ...]:
        """Return the runs raised within `total`, in the order of their first step."""
        return tuple(run for run in self.queries if not run.endswith(REFINED))

    @cached_property
    def names(self) -> tuple[str, ...]:
        """Return all that the whole list may spend queries on: runs, then refinements."""
        runs: dict[str, None] = {}
        refined: dict[str, None] = {}
        for step in self.steps:
            if isinstance(step, Raise):
                runs[step.run] = None
                continue
            for gained in (True, False):
                for each in refinements(step, gained=gained):
                    refined[each.name] = None
        return (*runs, *refined)

    @property
    def attacks(self) -> tuple[str, ...]:
        """Return the attacks of all steps, sorted."""
        return tuple(sorted({attack_of(name) for name in self.names}))

    @property
    def tiers(self) -> tuple[int, ...]:
        """Return the budgets at which results are usually read: 4k, 8k, 12k below, and `total`."""
        return (*(tier for tier in TIERS if tier < self.total), self.total)

    def prefix(self, queries: int) -> tuple[tuple[Any, ...], ...]:
        """Return what decides the result of the first `queries` queries, as plain values.

        Args:
            queries: Budget, in queries per sample.
        """
        parts: list[tuple[Any, ...]] = []
        for span in self.between(0, queries):
            length = min(span.end, queries) - span.begin
            if isinstance(span.step, Raise):
                parts.append((span.step.run, span.reached + length))
            else:
                parts.append((span.step.model_dump_json(), length))
        return tuple(parts)

    def holds(self, other: Ensemble) -> bool:
        """Tell whether `other` is a prefix of this ensemble.

        Args:
            other: Ensemble that may be shorter.
        """
        return self.total >= other.total and (self.prefix(other.total) == other.prefix(other.total))

    # Variants

    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Self:
        """Return a copy with other fields; what was computed from the old ones is left behind.

        Args:
            update: Field to its new value.
            deep: Copy the values of the fields, too.
        """
        copied = super().model_copy(update=update, deep=deep)
        for name in copied.__dict__.keys() - type(self).model_fields.keys():
            del copied.__dict__[name]
        return copied

    def at(self, budget: int) -> Ensemble:
        """Return the ensemble cut at `budget` queries, or at the last place before where it can be.

        That is a multiple of CHECKPOINT that is not inside the step of an external run.

        Args:
            budget: Budget, in queries per sample.
        """
        total = min(budget // CHECKPOINT * CHECKPOINT, self.total)
        if (span := self.cuts(total)) is not None:
            total = span.begin
        return self if total == self.total else self.with_total(total)

    def with_total(self, total: int) -> Ensemble:
        """Return the same steps with another number of queries per sample.

        Args:
            total: Budget, in queries per sample; a multiple of 10 within the list.
        """
        if (span := self.cuts(total)) is not None:
            raise FrontierError(_cut_message(total, span))
        name = tier_name(self.name, total)
        return self.model_copy(update={"name": name, "total": total, "aoi": None, "bound": None})

    def for_classes(self, classes: int) -> Ensemble:
        """Return the ensemble without targets that a model with so few classes does not have.

        Args:
            classes: Number of classes of the model.
        """
        kept = [step for step in self.steps if not _beyond(step, classes)]
        if len(kept) == len(self.steps):
            return self
        whole = self._with_steps(kept)
        return whole.model_copy(update={"total": min(self.total, whole.total)})

    def _with_steps(self, steps: list[Any]) -> Ensemble:
        return make_ensemble(
            name=self.name, norm=self.norm, steps=steps, flags=self.flags, solvers=self.solvers
        )

    def _search(self) -> str | None:
        """Return the first attack that needs no gradients, of the list or of its norm's pool.

        Of a plain list of runs, the pool does not count.
        """
        attacks = [attack_of(name) for name in self.names]
        if any(not isinstance(step, Raise) for step in self.steps):
            attacks.extend(run.attack for run in pool(self.norm, name=BLACK_BOX))
        for attack in attacks:
            facts = check_run(Run.parse(attack), self.norm)
            if facts.step_queries == 1 and not is_external(attack):  # which cannot refine
                return attack
        return None

    def without_gradients(self) -> Ensemble | None:
        """Return the ensemble for a model without gradients: one black-box attack alone.

        The base run to its end, then refinements of 1000 queries each: one long search ends nearer
        than several restarts. The attack is the first of the list that needs no gradients; for a
        list without any that refines, it is the first of the norm's pool. None for a plain list of
        gradient runs: the user asked for these only.
        """
        base = self._search()
        if base is None:
            return None
        rounds = -(-max(self.longest, TIERS[-1]) // MAX_QUERIES)
        steps: list[Any] = [Raise(run=base, queries=MAX_QUERIES)]
        for _ in range(rounds - 1):
            steps.append(Refine(run=base, queries=MAX_QUERIES, start="best"))
        whole = self._with_steps(steps)
        return whole.model_copy(update={"total": self.total})

    def for_gradients(self, gradients: str) -> Ensemble:
        """Return the ensemble as a model with gradients of a kind is attacked by it.

        Args:
            gradients: Kind of a record's gradients: `own`, `doubted` or `surrogate`.
        """
        if gradients == "doubted":
            return self.with_larger_search()
        return self.with_surrogates() if gradients == "surrogate" else self

    def with_larger_search(self) -> Ensemble:
        """Return the ensemble for a model whose gradients are doubted: half of it is a search.

        After every stretch of its own steps, a search without gradients spends as many queries:
        first a base run, 200 queries at a time, then refinements of 1000 queries that start at the
        best point. Lists of runs are left alone, because the user asked for these only.
        """
        base = self._search()
        return self if base is None else self._half_on(_search_steps(base, self.longest))

    def with_surrogates(self) -> Ensemble:
        """Return the ensemble for a model that has surrogate gradients alone.

        In ℓ2, half of it is APGD, run after run. The other attacks in ℓ2 follow the boundary along
        its gradient, and a surrogate is not the gradient of the boundary; APGD maximises a loss
        inside a ball. In other norms the ensemble is left alone, and so are lists of runs.
        """
        attack = _WITH_SURROGATES.get(self.norm)
        return self if attack is None else self._half_on(_steps_of_all_runs(attack))

    def _half_on(self, others: list[Raise | Refine]) -> Ensemble:
        """Return an ensemble that spends half of every budget on other steps, while these last.

        All steps keep their order, so a budget is still a prefix of every larger one. Plain lists
        of runs are left alone, and so is an ensemble that has the other steps.

        Args:
            others: The other steps. The ensemble's own raises of the same runs are left out.
        """
        if all(isinstance(step, Raise) for step in self.steps) or set(others) <= set(self.steps):
            return self
        theirs = {step.run for step in others if isinstance(step, Raise)}
        waiting = deque(others)
        steps: list[Any] = []
        owed = 0  # queries of own steps that no other step has matched
        for span in self.spans:
            if isinstance(span.step, Raise) and span.step.run in theirs:
                continue
            for step, queries in _pieces(span):
                # A fork looks at the step before it, so nothing comes between them.
                while waiting and owed >= _cost(waiting[0]) and not isinstance(step, Fork):
                    owed -= _cost(waiting[0])
                    steps.append(waiting.popleft())
                steps.append(step)
                owed += queries
        steps.extend(waiting)
        whole = self._with_steps(steps)
        return whole.model_copy(update={"total": min(self.total, whole.total)})

    def check(self, *, classes: int = TARGETS + 1) -> None:
        """Raise if a run does not exist in this norm, or with this number of classes.

        Args:
            classes: Number of classes of the model.
        """
        for step in self.steps:
            if isinstance(step, Raise):
                check_run(Run.parse(step.run), self.norm, classes)
                continue
            for gained in (True, False):
                for each in refinements(step, gained=gained):
                    _check_refinement(each, self.norm)

    # Its file

    def to_toml(self) -> str:
        """Return the ensemble as TOML, one step per line."""
        lines = [f"name = {toml_text(self.name)}", f"norm = {toml_text(self.norm)}"]
        lines.append(f"total = {self.total}")
        for key in ("aoi", "bound"):
            value = getattr(self, key)
            if value is not None:
                lines.append(f"{key} = {value!r}")
        if self.flags:
            lines.append(f"flags = [{', '.join(toml_text(flag) for flag in self.flags)}]")
        if self.solvers:
            pairs = (
                f"{toml_text(key)} = {toml_text(value)}" for key, value in self.solvers.items()
            )
            lines.append(f"solvers = {{ {', '.join(pairs)} }}")
        lines.append("steps = [")
        lines.extend(f"    {_step_text(step)}," for step in self.steps)
        lines.append("]")
        return "\n".join(lines) + "\n"

    @classmethod
    def from_toml(cls, text: str | bytes) -> Ensemble:
        """Read what `to_toml` wrote, or a list of steps written by hand.

        Args:
            text: Content of a TOML file.
        """
        return _readable(parse_toml(cls, text, "ensemble"))

    def save(self, path: str | PathLike[str]) -> None:
        """Write the TOML file.

        Args:
            path: File, such as `mine.toml`: a path or an address.
        """
        Path(path).write_text(self.to_toml(), encoding="utf-8")

    @classmethod
    def load(cls, path: str | PathLike[str]) -> Ensemble:
        """Read a TOML file and check that its ensemble can be run.

        Args:
            path: File that `save` or `advfrontier allocate` wrote, or one written by hand.
        """
        ensemble = _readable(read_toml(cls, path))
        ensemble.check()
        return ensemble


def make_ensemble(**fields: Any) -> Ensemble:
    """Make an ensemble; mistakes are FrontierErrors.

    Args:
        fields: Fields of `Ensemble` by name.
    """
    try:
        return Ensemble(**fields)
    except ValidationError as error:
        mistake = first_mistake(error, fields)
        raise FrontierError(f"ensemble {fields.get('name')}: {mistake}") from error


def refinements(step: Refine | Fork, *, gained: bool) -> tuple[Refine, ...]:
    """Return the refinements that a step spends on samples with or without a gain before it.

    Args:
        step: Refinement, or fork with refinements of both kinds of samples.
        gained: Whether the step before brought the samples nearer.
    """
    if isinstance(step, Refine):
        return (step,)
    return step.fork.gained if gained else step.fork.otherwise


def attack_of(name: str) -> str:
    """Return the attack of a run or of a refinement such as `fmn:refine`.

    Args:
        name: Name of the run or refinement.
    """
    external = parse_external(name)
    return name.partition(":")[0] if external is None else str(external)


def _cut_message(queries: int, span: Span) -> str:
    """Say why a budget cannot end inside the step of an external run, and what to type."""
    run = "" if isinstance(span.step, Fork) else span.step.run
    return (
        f"{queries} queries would cut {run}, which is done in one piece from {span.begin} to "
        f"{span.end}: expected {span.begin or span.end} or {span.end} queries"
    )


def _pieces(span: Span) -> Iterator[tuple[Raise | Refine | Fork, int]]:
    """Yield a step with the queries it spends; a long raise is several shorter ones."""
    step, reached = span.step, span.reached
    if isinstance(step, Raise) and not is_external(step.run):
        for queries in range(reached + _PART, step.queries, _PART):
            yield Raise(run=step.run, queries=queries), _PART
            reached = queries
        yield step, step.queries - reached
    else:
        yield step, span.end - span.begin


def _search_steps(run: str, queries: int) -> list[Raise | Refine]:
    """Return the steps of one long search: a base run, and refinements.

    Args:
        run: The base run of an attack without gradients.
        queries: How many it spends at least.
    """
    steps: list[Raise | Refine] = [*_raises(run)]
    for _ in range(MAX_QUERIES, queries, MAX_QUERIES):
        steps.append(Refine(run=run, queries=MAX_QUERIES, start="best"))
    return steps


def _steps_of_all_runs(attack: str) -> list[Raise | Refine]:
    """Return the steps of an attack's base run and of its restarts, each to its end."""
    steps: list[Raise | Refine] = [*_raises(attack)]
    for index in range(1, RESTARTS + 1):
        steps.extend(_raises(f"{attack}:restart{index}"))
    return steps


def _raises(run: str) -> list[Raise]:
    """Return the steps that raise a run to its end, `_PART` queries at a time."""
    return [Raise(run=run, queries=queries) for queries in range(_PART, MAX_QUERIES + 1, _PART)]


def _cost(step: Raise | Refine) -> int:
    """Return the queries that a refinement spends, or one of several raises of a run."""
    return step.queries if isinstance(step, Refine) else _PART


def _readable(ensemble: Ensemble) -> Ensemble:
    for name in ensemble.names:
        Run.parse(name.removesuffix(REFINED))
    return ensemble


def _check_refinement(step: Refine, norm: str) -> None:
    run = Run.parse(step.run)
    if run.external is not None:
        raise FrontierError(
            f"a refinement by {run}: expected an attack of the pool, such as fmn, because an "
            "external run cannot start at another point"
        )
    if run != run.base:
        raise FrontierError(f"a refinement by {run}: expected an attack, such as {run.attack}")
    facts = check_run(run, norm)
    if step.queries % facts.step_queries:
        raise FrontierError(f"{run} cannot spend {step.queries} queries")


def _beyond(step: Raise | Refine | Fork, classes: int) -> bool:
    """Tell whether a step aims at a class that a model with so few classes does not have."""
    if not isinstance(step, Raise):
        return False
    run = Run.parse(step.run)
    return run.variant == "target" and run.index > classes - 1


def _step_text(step: Raise | Refine | Fork) -> str:
    """Return a step as an inline table of TOML."""
    if isinstance(step, Raise):
        return f"{{ run = {toml_text(step.run)}, queries = {step.queries} }}"
    if isinstance(step, Refine):
        text = (
            f"run = {toml_text(step.run)}, queries = {step.queries}, start = "
            f"{toml_text(step.start)}"
        )
        if step.start == "beyond":
            text += f", reach = {step.reach!r}"
        return f"{{ {text} }}"
    gained = ", ".join(_step_text(each) for each in step.fork.gained)
    otherwise = ", ".join(_step_text(each) for each in step.fork.otherwise)
    return f"{{ fork = {{ gained = [{gained}], otherwise = [{otherwise}] }} }}"


def tier_queries(tier: str | int) -> int:
    """Read a budget: `4k`, `12k`, `4000` or a number.

    Args:
        tier: Budget: `4k`, `4000` or 4000.
    """
    text = shown(tier) if isinstance(tier, int) else str(tier).strip().lower()
    number, factor = (text[:-1], 1000) if text.endswith("k") else (text, 1)
    if not number.isdecimal() or len(number) > 9 or int(number) == 0:
        raise FrontierError(
            f"{shown(tier)} is not a budget: expected a number of queries such as 4k, 12k or 6500"
        )
    return int(number) * factor


def tier_label(queries: int) -> str:
    """Return the short name of a budget: 4k, 12k, or the number.

    Args:
        queries: Queries per sample.
    """
    return f"{queries // 1000}k" if queries and queries % 1000 == 0 else str(queries)


def tier_name(name: str, queries: int) -> str:
    """Return the name of another budget: `paper-12k` at 4000 queries is `paper-4k`.

    Args:
        name: Name of an ensemble.
        queries: Queries per sample.
    """
    stem, _, tier = name.rpartition("-")
    if not tier[:1].isdigit():
        stem = name
    return f"{stem}-{tier_label(queries)}" if stem else tier_label(queries)
