"""A record is of one code with the same solvers: nothing else is computed into it, but it can be read."""

import pickle
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from record_cases import LARGER, OPTIONS, SMALL, edit_record, refused, same

from advfrontier import Evaluation, FrontierError, evaluate, trace
from advfrontier.flags import doubts
from advfrontier.jobs.units import UnitPart, UnitTask
from advfrontier.record import Record, identity, units
from advfrontier.solvers import Fmn


def test_other_code_is_not_mixed_in_but_its_record_can_be_read(problem, tmp_path):
    evaluate(*problem, out=tmp_path / "a" / "L2", **OPTIONS)
    old = Record.find(tmp_path / "a" / "L2")
    contents_of = {unit: old.read_unit(unit, queries) for unit, queries in old.units().items()}
    clean = old.clean
    record = edit_record(tmp_path / "a" / "L2", code="0" * 32)
    for unit, stored in contents_of.items():  # as that code would have marked them
        solver = record.header.solvers[unit.run]
        record.write_clean(clean)
        record.write_file(
            unit.file(stored.queries), stored.tensors, stored.words, record.unit_mark(unit, solver)
        )
    own = evaluate(*problem, **OPTIONS)
    same(Evaluation.load(tmp_path / "a" / "L2"), own)
    same(evaluate(*problem, out=tmp_path / "a" / "L2", **OPTIONS), own)  # nothing is to be computed
    message = "was computed by other code: advfrontier .* 00000000; here is .*choose a new folder.*still be read"
    with pytest.raises(FrontierError, match=message):
        evaluate(*problem, out=tmp_path / "a" / "L2", **OPTIONS | {"ensemble": LARGER})
    assert Evaluation.load(tmp_path / "a" / "L2").ensemble == SMALL
    same(Evaluation.load(tmp_path / "a" / "L2"), own)
    held = evaluate(*problem, out=tmp_path / "a" / "L2", **OPTIONS)
    victim = next((tmp_path / "a" / "L2" / "units" / "fmn").iterdir())
    before = victim.read_bytes()
    victim.write_bytes(before[:-4])
    with pytest.raises(FrontierError, match=message):
        _ = held.distances  # which would have to be computed again
    victim.write_bytes(before)
    more = torch.cat([problem[1], 1 - problem[1]])
    with pytest.raises(FrontierError, match=message):
        evaluate(
            problem[0],
            more,
            torch.cat([problem[2], problem[2]]),
            out=tmp_path / "a" / "L2",
            **OPTIONS,
        )
    same(Evaluation.load(tmp_path / "a" / "L2"), own)


def test_the_digest_of_the_code_is_that_of_its_files(tmp_path, monkeypatch):
    package = Path(identity.__file__).parent.parent
    shutil.copytree(package, tmp_path / "advfrontier", ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.setattr(identity, "files", lambda _: tmp_path / "advfrontier")
    digest = identity.code_digest.__wrapped__
    assert digest() == identity.code_digest()
    (tmp_path / "advfrontier" / "report" / "page.py").write_text("")
    assert digest() == identity.code_digest()
    for deciding in ("solvers/fmn.py", "pool/catalogue.py", "engine/unit.py", "threat/norms.py"):
        edited = tmp_path / "advfrontier" / deciding
        before = edited.read_text()
        edited.write_text(before + "\n")
        assert digest() != identity.code_digest()
        edited.write_text(before)


def test_a_worker_with_other_code_says_so(problem, tmp_path, monkeypatch):
    done = evaluate(*problem, out=tmp_path / "a" / "L2", **OPTIONS)
    work = pickle.loads(pickle.dumps(done._job))  # noqa: S301  # as a worker gets it
    monkeypatch.setattr("advfrontier.jobs.driver.code_digest", lambda: "1" * 32)
    with pytest.raises(FrontierError, match=r"other code of advfrontier \(11111111, not"):
        work(UnitTask((UnitPart(units.UnitName("alma", 0, 4), 20),)))


def test_solvers_with_other_parameters_are_refused_and_used_ones_recorded(problem, tmp_path):
    options = {"norm": "L2", "queries": 20, "batch_size": 4, "out": tmp_path / "a" / "L2"}
    trace(*problem, runs=["ddn", "fmn:restart1"], **options)
    held = Record.find(tmp_path / "a" / "L2").header.solvers
    assert set(held) == {"ddn", "fmn"}
    assert held["fmn"] == repr(Fmn())
    refused(
        r"another solver of fmn: Fmn\(alpha=None.*, not Fmn\(alpha=1",
        tmp_path / "a" / "L2",
        lambda: trace(*problem, runs=["fmn"], solvers={"fmn": Fmn(alpha=1.0)}, **options),
    )
    edit_record(tmp_path / "a" / "L2", solvers=held | {"fmn": "Fmn(alpha=7)"})
    refused(
        r"another solver of fmn: Fmn\(alpha=7\), not Fmn\(alpha=None",
        tmp_path / "a" / "L2",
        lambda: trace(*problem, runs=["ddn"], **options),
    )


def test_another_version_of_what_rounds_is_a_flag(problem, tmp_path):
    evaluate(*problem, out=tmp_path / "a" / "L2", **OPTIONS)
    edit_record(
        tmp_path / "a" / "L2", versions=identity.versions().model_copy(update={"torch": "1.0"})
    )
    assert (
        evaluate(*problem, out=tmp_path / "a" / "L2", **OPTIONS).flags == ()
    )  # nothing was computed by the newer one
    done = evaluate(*problem, out=tmp_path / "a" / "L2", **OPTIONS | {"ensemble": LARGER})
    text = f"computed with several versions of torch (1.0, {torch.__version__}), which may round differently"
    assert [flag.text for flag in done.flags] == [text]
    assert doubts(done.flags) == ()  # which is no reason to rank it in brackets
    again = evaluate(*problem, out=tmp_path / "a" / "L2", **OPTIONS | {"ensemble": LARGER})
    assert again.flags == done.flags
    assert len(again.record.header.later) == 1


@dataclass(frozen=True)
class WithFunction:
    rule: Callable[[int], int]


def test_words_of_a_solver_tell_no_address():
    words = [identity.solver_words(WithFunction(lambda step: step)) for _ in range(2)]
    assert words[0] == words[1]
    assert "0x" not in words[0]
