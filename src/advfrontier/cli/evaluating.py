"""Commands that attack a model: evaluate, extend, demo."""

from __future__ import annotations

import sys
from typing import Annotated

from cyclopts import Parameter

from advfrontier.cli.options import (
    OUT,
    Attacks,
    Budget,
    Data,
    Machine,
    Model,
    Norm,
    Output,
    Seed,
    Workers,
    norms,
)
from advfrontier.cli.output import show_evaluations
from advfrontier.engine import find_device
from advfrontier.errors import FrontierError
from advfrontier.evaluation.compare import find_evaluations
from advfrontier.evaluation.evaluate import evaluate
from advfrontier.execution import Machine as WorkMachine
from advfrontier.record import below, folder_name

_DATA, _MACHINE, _WORKERS, _BUDGET, _OUTPUT, _ATTACKS = (
    Data(),
    Machine(),
    Workers(),
    Budget(),
    Output(),
    Attacks(),
)
_TIER = "4k"
_FOLDER = "Folder of the record, or an address such as s3://bucket/mine"


def evaluate_command(
    model: Model,
    /,
    *,
    data: Data = _DATA,
    norm: Norm = "Linf",
    budget: Budget = _BUDGET,
    attacks: Attacks = _ATTACKS,
    out: Annotated[
        str | None, OUT, Parameter(help=f"{_FOLDER}; by default runs/ and the model's name.")
    ] = None,
    name: Annotated[str | None, Parameter(help="How tables call the model.")] = None,
    seed: Seed = 42,
    machine: Machine = _MACHINE,
    state: Annotated[
        bool, Parameter(help="Keep what is needed to extend without repeating queries.")
    ] = True,
    output: Output = _OUTPUT,
) -> None:
    """Measure the robustness curve of a model.

    Each sample is given 4k queries if nothing else is said. Runs or a pool that are named take turns, up to 1000
    queries each, or --queries in all. Killed at any moment, the same command goes on where it stopped.
    """
    ensemble = _ensemble(budget, attacks)
    folder = out or below("runs", folder_name(name or model))
    output.check(norms(norm), folder)
    samples, done_by = data.load(model), machine.machine(keep_state=state)
    done = [
        evaluate(
            model,
            samples,
            norm=each,
            ensemble=ensemble,
            seed=seed,
            solvers=attacks.solvers,
            eot=attacks.eot,
            out=folder,
            name=name,
            batch_size=data.batch_size,
            machine=done_by,
        )
        for each in norms(norm)
    ]
    show_evaluations(done, folder, output)


def _ensemble(budget: Budget, attacks: Attacks) -> str | int:
    """What `evaluate` calls the ensemble."""
    runs, spent = attacks.chosen(), budget.chosen()
    if runs is not None and budget.ensemble is not None:
        raise FrontierError(
            "--ensemble says which runs there are: expected it without --runs and --pool"
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
    workers: Workers = _WORKERS,
    output: Output = _OUTPUT,
) -> None:
    """Extend a finished evaluation to a larger budget. No query is repeated.

    A number of queries extends the ensemble that the record began with. An ensemble that is named
    must begin with the one evaluated so far. Device, threads and batches stay the same.

    Args:
        record: The folder of an evaluation, or one that holds several.
        model: Where the model is: needed where the record does not say, or names something that would run code.
    """
    ensemble = budget.chosen()
    if ensemble is None:
        raise FrontierError(
            "extend needs to know how far: expected one of --tier 8k, --queries 6000, --ensemble FILE"
        )
    done, until, found = [], workers.until, find_evaluations([record])
    output.check([evaluation.norm for evaluation in found], record)
    for evaluation in found:
        terms = evaluation.record.header.terms
        find_device(terms.device)
        machine = WorkMachine(
            workers=workers.count(terms.device, terms.threads),
            ray=workers.ray,
            until=until,
            progress=True,
        )
        done.append(evaluation.extend(ensemble, model=model, machine=machine))
    show_evaluations(done, record, output)


def demo_command(
    *, out: str = "runs/demo", samples: int = 100, tier: str = _TIER, machine: Machine = _MACHINE
) -> None:
    """Evaluate an embedded model in four norms and write the report: nothing is downloaded.

    Args:
        out: Folder of the record.
        samples: How many of the embedded images.
        tier: 4k, 8k or 12k queries per sample.
    """
    from advfrontier.zoo import MODELS  # noqa: PLC0415

    name = next(name for name, card in MODELS.items() if card.split == "held-out" and card.radius)
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
