"""Commands that attack a model: evaluate, extend, demo."""

from __future__ import annotations

import sys
from typing import Annotated

from cyclopts import Parameter

from advfrontier.cli.app import app, typed
from advfrontier.cli.options import Data, Machine, default_folder, norms
from advfrontier.cli.showing import check, show
from advfrontier.errors import FrontierError
from advfrontier.evaluation.evaluate import evaluate
from advfrontier.evaluation.records import find_evaluations

_DATA, _MACHINE = Data(), Machine()


@app.command(name="evaluate")
def evaluate_command(
    model: str,
    /,
    *,
    data: Data = _DATA,
    norm: str = "Linf",
    tier: str | None = None,
    queries: int | None = None,
    ensemble: str | None = None,
    out: Annotated[str | None, Parameter(name=("--out", "-o"))] = None,
    name: str | None = None,
    seed: int = 42,
    radii: str | None = None,
    machine: Machine = _MACHINE,
    state: bool = True,
    export: str | None = None,
    report: bool = True,
    json: bool = False,
) -> None:
    """Measure the robustness curve of a model.

    Killed at any moment, the same command goes on where it stopped.

    Parameters
    ----------
    model
        zoo:F3, file.py:factory, package.module:factory, robustbench:cifar10/Linf/NAME, timm:NAME, hf:NAME,
        onnx:FILE, export:FILE.
    norm
        L0, L1, L2, Linf, several with commas, or all.
    tier
        4k (the default), 8k or 12k queries per sample.
    queries
        Any other number of queries per sample.
    ensemble
        A file that `advfrontier allocate` wrote, in place of the shipped tiers.
    out
        Folder of the record; by default runs/ and the model's name.
    name
        How tables call the model.
    seed
        Of the random restarts.
    radii
        Where robust accuracy is read, such as 4/255,8/255.
    state
        Keep what is needed to extend without repeating queries.
    export
        Write a table as well: csv, parquet, npz, or card.
    report
        Write report.html into the folder.
    json
        Print figures as JSON and nothing else.
    """
    chosen = [option for option in (tier, queries, ensemble) if option is not None]
    if len(chosen) > 1:
        raise FrontierError(f"--tier, --queries and --ensemble were given together ({chosen}): expected one of them")
    check(radii=radii, export=export)
    folder = out or str(default_folder(name or model))
    samples = data.load(model)
    workers, threads = machine.resolved()
    done = [
        evaluate(
            model,
            samples,
            norm=each,
            ensemble=chosen[0] if chosen else "4k",
            seed=seed,
            out=f"{folder}/{each}",
            name=name,
            batch_size=machine.batch_size,
            device=machine.device,
            threads=threads,
            workers=workers,
            ray=machine.ray,
            keep_state=state,
            progress=True,
            command=typed(),
        )
        for each in norms(norm)
    ]
    show(done, folder=folder, radii=radii, export=export, report=report, as_json=json)


@app.command(name="extend")
def extend_command(
    record: str,
    /,
    *,
    tier: str | None = None,
    queries: int | None = None,
    ensemble: str | None = None,
    model: str | None = None,
    radii: str | None = None,
    machine: Machine = _MACHINE,
    export: str | None = None,
    report: bool = True,
    json: bool = False,
) -> None:
    """Go on with a finished evaluation to a larger tier. No query is repeated.

    Parameters
    ----------
    record
        The folder of an evaluation.
    tier
        8k or 12k queries per sample.
    queries
        Any other number of queries per sample.
    ensemble
        An ensemble file that holds the one evaluated so far.
    model
        Where the model is, if the record does not say.
    radii
        Where robust accuracy is read, such as 4/255,8/255.
    export
        Write a table as well: csv, parquet, npz, or card.
    report
        Write report.html into the folder.
    json
        Print figures as JSON and nothing else.
    """
    chosen = [option for option in (tier, queries, ensemble) if option is not None]
    if len(chosen) != 1:
        raise FrontierError("extend needs to know how far: expected one of --tier 8k, --queries 6000, --ensemble FILE")
    check(radii=radii, export=export)
    workers, _ = machine.resolved()
    done = find_evaluations([record])
    for evaluation in done:
        evaluation.extend(chosen[0], model=model, workers=workers, ray=machine.ray, progress=True)
    show(done, folder=record, radii=radii, export=export, report=report, as_json=json)


@app.command
def demo(*, out: str = "runs/demo", samples: int = 100, tier: str = "4k", machine: Machine = _MACHINE) -> None:
    """Evaluate an embedded model in four norms and write the report: nothing is downloaded.

    Parameters
    ----------
    out
        Folder of the record.
    samples
        How many of the embedded images.
    tier
        4k, 8k or 12k queries per sample.
    """
    from advfrontier.zoo import MODELS  # noqa: PLC0415

    name = next(name for name, card in MODELS.items() if card.split == "held-out" and card.radius)
    print(
        f"{name}: {MODELS[name].title}, {samples} images of Fashion-MNIST, {tier} queries per sample", file=sys.stderr
    )
    evaluate_command(
        f"zoo:{name}", data=Data("fashion-mnist", samples), norm="all", tier=tier, out=out, machine=machine
    )
