"""The command that checks what others claim: verify."""

from __future__ import annotations

import sys
from typing import Annotated

from advfrontier.cli.options import OUT, Json, Model, Source
from advfrontier.cli.output import say, show
from advfrontier.evaluation.find import find_evaluations
from advfrontier.evaluation.inputs import as_model
from advfrontier.evaluation.verified import write_verified
from advfrontier.evaluation.verify import parse_rerun, verify
from advfrontier.jsonable import jsonable

_SOURCE = Source()
_SHOWN = 5  # of what is false in a norm


def verify_command(
    record: str,
    /,
    *,
    model: Model,
    data: Source = _SOURCE,
    rerun: str = "5%",
    seed: int | None = None,
    out: Annotated[str | None, OUT] = None,
    json: Json = False,
) -> None:
    """Check a record that came from someone else: every point, and some units once more.

    The images must be those of the data; every stored point must lie inside the box, at the distance claimed, and be
    misclassified by the model here. Units drawn at random must come out again: bit for bit where versions and rounding
    are the same, else with distances that differ by at most 5 % in the median. Ends with exit code 1 if anything is
    false. The record is only read.

    Parameters
    ----------
    record
        The folder of an evaluation, or one that holds several.
    rerun
        Units to do again: a share such as 5%, or a number such as 3; 0 for none.
    seed
        Of the draw of these units; by default one that nobody could know beforehand.
    out
        A list, to which records that hold are added; `advfrontier rank --verified` takes it.
    """
    parse_rerun(rerun)
    evaluations = find_evaluations([record])
    samples, subject = data.load(model), as_model(model)
    results = [verify(each, subject, samples, rerun=rerun, seed=seed, progress=True) for each in evaluations]
    lines = []
    for result in results:
        hidden = len(result.false) - _SHOWN
        lines += [str(result), *(f"  false: {what}" for what in result.false[:_SHOWN])]
        lines += [f"  and {hidden} more"] if hidden > 0 else []
        lines += [f"  note: {note}" for note in result.notes]
    if json:
        show(facts=jsonable(results), as_json=True)
    else:
        print("\n".join(lines))
    if out is not None:
        say(f"verified: {write_verified(out, results)}", as_json=json)
    if not all(result.holds for result in results):
        sys.exit(1)
