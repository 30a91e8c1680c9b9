"""A record is of one numerics with the same solvers: otherwise it is read, and not extended."""

import pickle

import pytest
import torch
from record_cases import LARGER, OPTIONS, SMALL, edit_record, refused, same

from advfrontier import Evaluation, FrontierError, evaluate, trace
from advfrontier.flags import doubts
from advfrontier.jobs.units import UnitTask
from advfrontier.numerics import NUMERICS
from advfrontier.record import Record, UnitName, identity
from advfrontier.solvers import FMN


def of_other_numerics(place):
    """Turn a record into one that a version with other numerics has written."""
    old = Record.find(place)
    units = {unit: old.read_unit(unit, queries) for unit, queries in old.units().items()}
    clean = old.clean
    record = edit_record(place, numerics=NUMERICS | {"solvers": 7})
    record.write_clean(clean)
    for unit, stored in units.items():
        record.write_unit(unit, stored)


def test_a_record_of_other_numerics_is_read_and_not_extended(problem, tmp_path):
    place = tmp_path / "a" / "L2"
    own = evaluate(*problem, out=place, **OPTIONS)
    of_other_numerics(place)
    same(Evaluation.load(place), own)
    held = evaluate(*problem, out=place, **OPTIONS)  # nothing is to be computed
    same(held, own)
    message = r"computed with the numerics .*solvers 7.*here they are .*solvers 1.*in a new folder"
    with pytest.raises(FrontierError, match=message):
        evaluate(*problem, out=place, **OPTIONS | {"ensemble": LARGER})
    assert Evaluation.load(place).ensemble == SMALL
    victim = next((place / "units" / "ensemble").iterdir())
    before = victim.read_bytes()
    victim.write_bytes(before[:-4])
    held = evaluate(*problem, out=place, **OPTIONS)
    with pytest.raises(FrontierError, match=message):
        _ = held.distances  # which would have to be computed again
    victim.write_bytes(before)
    more = torch.cat([problem[1], 1 - problem[1]])
    with pytest.raises(FrontierError, match=message):
        evaluate(problem[0], more, torch.cat([problem[2]] * 2), out=place, **OPTIONS)
    same(Evaluation.load(place), own)


def test_a_worker_with_other_numerics_says_so(problem, tmp_path, monkeypatch):
    done = evaluate(*problem, out=tmp_path / "a" / "L2", **OPTIONS)
    work = pickle.loads(pickle.dumps(done._job))  # noqa: S301  # as a worker gets it
    monkeypatch.setitem(NUMERICS, "engine", 8)
    with pytest.raises(FrontierError, match=r"another version of advfrontier .*'engine': 8"):
        work(UnitTask(UnitName("ensemble", 0, 4), 40))


def test_solvers_with_other_parameters_are_refused_and_used_ones_recorded(problem, tmp_path):
    options = {"norm": "L2", "queries": 20, "batch_size": 4, "out": tmp_path / "a" / "L2"}
    trace(*problem, runs=["ddn", "fmn:restart1"], **options)
    held = Record.find(tmp_path / "a" / "L2").header.solvers
    assert set(held) == {"ddn", "fmn"}
    assert held["fmn"] == identity.solver_parameters(FMN())
    refused(
        r"another solver of fmn: FMN\(alpha=None.*, not FMN\(alpha=1",
        tmp_path / "a" / "L2",
        lambda: trace(*problem, runs=["fmn"], solvers={"fmn": FMN(alpha=1.0)}, **options),
    )
    edit_record(tmp_path / "a" / "L2", solvers=held | {"fmn": {"class": "FMN", "alpha": "7"}})
    refused(
        r"another solver of fmn: FMN\(alpha=7\), not FMN\(alpha=None",
        tmp_path / "a" / "L2",
        lambda: trace(*problem, runs=["ddn"], **options),
    )


def test_another_version_of_what_rounds_is_a_flag(problem, tmp_path):
    evaluate(*problem, out=tmp_path / "a" / "L2", **OPTIONS)
    earlier = identity.versions().model_copy(update={"torch": "1.0"})
    edit_record(tmp_path / "a" / "L2", versions=earlier)
    assert (
        evaluate(*problem, out=tmp_path / "a" / "L2", **OPTIONS).flags == ()
    )  # nothing was computed by the newer one
    done = evaluate(*problem, out=tmp_path / "a" / "L2", **OPTIONS | {"ensemble": LARGER})
    text = (
        f"computed with several versions of torch (1.0, {torch.__version__}), which may round "
        "differently"
    )
    assert [flag.text for flag in done.flags] == [text]
    assert doubts(done.flags) == ()  # which is no reason to rank it in brackets
    again = evaluate(*problem, out=tmp_path / "a" / "L2", **OPTIONS | {"ensemble": LARGER})
    assert again.flags == done.flags
    assert len(again.record.header.later) == 1
