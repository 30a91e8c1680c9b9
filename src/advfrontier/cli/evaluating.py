"""Commands that attack a model: evaluate, extend, demo."""

# ruff: noqa: PLC0415  # torch is imported when a command runs, not for --help

from __future__ import annotations

import sys
from dataclasses import replace
from typing import Annotated

from advfrontier.cli.options import (
    OUT,
    Attacks,
    Budget,
    Data,
    DomainFile,
    Machine,
    Model,
    Norm,
    Output,
    Seed,
    Success,
    Trusted,
    Workers,
    load_domain,
    norms,
    trusted_attacks,
)
from advfrontier.errors import FrontierError

_DATA = Data()
_MACHINE = Machine()
_WORKERS = Workers()
_BUDGET = Budget()
_OUTPUT = Output()
_ATTACKS = Attacks()
_SUCCESS = Success()
_TIER = "4k"


def evaluate_command(
    model: Model,
    /,
    *,
    data: Data = _DATA,
    norm: Norm = "Linf",
    budget: Budget = _BUDGET,
    attacks: Attacks = _ATTACKS,
    success: Success = _SUCCESS,
    domain: DomainFile = None,
    out: Annotated[str | None, OUT] = None,
    name: str | None = None,
    seed: Seed = 42,
    machine: Machine = _MACHINE,
    state: bool = True,
    output: Output = _OUTPUT,
) -> None:
    """Measure the robustness curve of a model.

    Each sample gets 4k queries by default. Runs or pools that are named advance alternately, up to
    1000 queries per run, or --queries in all. Interrupted? Run the same command again to resume.

    Args:
        out: Output folder, or an address such as s3://bucket/mine (default: runs/MODEL).
        name: Display name of the model (default: its source).
        state: Keep the state of unfinished runs, so that extending repeats no queries.
    """
    from advfrontier.cli.output import show_evaluations
    from advfrontier.evaluation import evaluate as evaluating
    from advfrontier.record import below, folder_name

    ensemble = _ensemble(budget, attacks)
    folder = out or below("runs", folder_name(name or model))
    output.check(norms(norm), folder)
    given = load_domain(domain)
    samples = data.load(model, unit=given is None)
    work_machine = machine.machine(keep_state=state)
    evaluations = []
    with data.explained():
        for each in norms(norm):
            evaluation = evaluating.evaluate(
                model,
                samples,
                norm=each,
                ensemble=ensemble,
                seed=seed,
                solvers=attacks.solvers,
                eot=attacks.eot,
                criterion=success.criterion(),
                domain=given,
                out=folder,
                name=name,
                batch_size=data.batch_size,
                machine=work_machine,
            )
            evaluations.append(evaluation)
    show_evaluations(evaluations, folder, output, notice=data.notice)


def _ensemble(budget: Budget, attacks: Attacks) -> str | int:
    """Return the ensemble as `evaluate` takes it."""
    runs, spent = attacks.chosen(), budget.chosen()
    if runs is not None and budget.ensemble is not None:
        raise FrontierError(
            "--ensemble was given together with --runs or --pool: expected one of them, because an "
            "ensemble names its runs"
        )
    if runs is None:
        return _TIER if spent is None else spent
    return runs if spent is None else f"{runs}@{spent}"


def extend_command(
    record: str,
    /,
    *,
    budget: Budget = _BUDGET,
    model: str | None = None,
    attack: Trusted = (),
    workers: Workers = _WORKERS,
    output: Output = _OUTPUT,
) -> None:
    """Extend a finished evaluation to a larger budget. No query is repeated.

    Exports that are beside the record are written again.

    A number of queries extends the ensemble that the record began with. An ensemble that is named
    must begin with the one evaluated so far. Device, threads and batches stay the same.

    Args:
        record: Folder of an evaluation, or of several.
        model: Source of the model. Needed if the record names none, or one that runs code.
    """
    from advfrontier.cli.output import show_evaluations
    from advfrontier.engine import find_device
    from advfrontier.evaluation.compare import find_evaluations
    from advfrontier.execution import Machine as WorkMachine
    from advfrontier.report.export import earlier_formats, parse_formats

    ensemble = budget.chosen()
    if ensemble is None:
        raise FrontierError(
            "no larger budget was given: expected one of --tier 8k, --queries 6000, --ensemble FILE"
        )
    until = workers.until
    evaluations = find_evaluations([record])
    output.check([evaluation.norm for evaluation in evaluations], record)
    extended = []
    for evaluation in evaluations:
        terms = evaluation.record.header.terms
        find_device(terms.device)
        machine = WorkMachine(
            workers=workers.count(terms.device, terms.threads),
            ray=workers.ray,
            until=until,
            progress=True,
        )
        given = trusted_attacks(attack, evaluation.norm) or None
        extended.append(evaluation.extend(ensemble, model=model, machine=machine, solvers=given))
    earlier = earlier_formats(record)  # they would be of the smaller budget
    if earlier:
        formats = dict.fromkeys((*parse_formats(output.export), *earlier))
        output = replace(output, export=",".join(formats))
    show_evaluations(extended, record, output)


def demo_command(
    *, out: str = "runs/demo", samples: int = 100, tier: str = _TIER, machine: Machine = _MACHINE
) -> None:
    """Evaluate an embedded model in four norms and write the report. Nothing is downloaded.

    Args:
        out: Output folder.
        samples: Number of embedded images.
        tier: Queries per sample: 4k, 8k or 12k.
    """
    from advfrontier.zoo import MODELS

    held_out = [name for name, card in MODELS.items() if card.split == "held-out" and card.radius]
    name = held_out[0]
    print(
        f"{name}: {MODELS[name].title}, {samples} images of Fashion-MNIST, {tier} queries each",
        file=sys.stderr,
    )
    evaluate_command(
        f"zoo:{name}",
        data=Data("fashion-mnist", samples),
        norm="all",
        budget=Budget(tier),
        out=out,
        machine=machine,
    )
