"""What a record is told apart by: its numerics, and solvers with their parameters."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import pytest
from record_made import clean_of, header_of, made_record

from advfrontier import FrontierError
from advfrontier.flags import doubts
from advfrontier.numerics import NUMERICS
from advfrontier.pool import Run
from advfrontier.record import Header, Record
from advfrontier.record.header import solver_repr
from advfrontier.record.identity import (
    settings,
    several_versions,
    solver_parameters,
    solvers_of,
    stand_ins,
    versions,
)
from advfrontier.solvers import PUBLISHED, solver_of


def with_header(record, **fields):
    """Write another header, as another version of the program would have."""
    header = record.header.model_copy(update=fields)
    record.folder.write("record.json", header.to_bytes())
    return Record.find(record.place)


def test_a_record_of_other_numerics_is_read_but_not_extended(tmp_path):
    old = with_header(made_record(tmp_path), numerics={"threat": 1, "solvers": 7, "engine": 1})
    assert isinstance(old.header, Header)
    message = (
        r"computed with the numerics threat 1, solvers 7, engine 1 \(advfrontier .*\); here they "
        r"are threat 1, solvers 1, engine 1 .*evaluate again in a new folder\. The record can"
    )
    with pytest.raises(FrontierError, match=message):
        old.check_numerics()
    earlier = old.header.versions.model_copy(update={"advfrontier": "0.0.7"})
    with pytest.raises(FrontierError, match=r"in a new folder, or install advfrontier 0\.0\.7\. "):
        with_header(old, versions=earlier).check_numerics()


def test_numerics_name_rooms_that_there_are():
    import importlib  # noqa: PLC0415

    for room, number in NUMERICS.items():
        assert importlib.import_module(f"advfrontier.{room}")
        assert type(number) is int
        assert number >= 1


def test_another_version_of_what_rounds_is_noted_and_flagged(tmp_path):
    here = versions()
    record = with_header(
        made_record(tmp_path), versions=here.model_copy(update={"torch": "1.0", "python": "2.7"})
    )
    assert several_versions(record.header) == ()
    record.check_numerics()
    record.check_numerics()
    assert record.header.later == (here,)
    (flag,) = several_versions(Record.find(tmp_path).header)
    assert flag.text == (
        f"computed with several versions of torch (1.0, {here.torch}), which may round differently"
    )
    assert doubts([flag]) == ()  # which is no reason to rank it in brackets


@dataclass(frozen=True)
class WithFunction:
    rule: Callable[[int], int]
    rate: float = 0.5
    cache: dict = field(default_factory=dict, repr=False)


class Plain:
    pass


class Described:
    def __repr__(self):
        return "Described(function <f at 0x7f21a1c302c0>)"


def test_parameters_of_a_solver_tell_no_address():
    one, two = (solver_parameters(WithFunction(lambda step: step)) for _ in range(2))
    assert one == two
    assert one["class"] == "WithFunction"
    assert one["rate"] == "0.5"
    assert "0x" not in one["rule"]
    assert "cache" not in one
    assert solver_parameters(Plain()) == {"class": f"{Plain.__module__}.Plain"}
    described = {"class": "Described", "repr": "Described(function <f>)"}
    assert solver_parameters(Described()) == described
    assert solver_repr({"class": "FMN", "alpha": "1.0", "x": "2"}) == "FMN(alpha=1.0, x=2)"


def test_solvers_of_attacks_leave_out_what_is_not_installed():
    own = solver_of(Run.parse("fmn"))
    found = solvers_of(("fmn", "invented"), {})
    assert found == {"fmn": solver_parameters(own)}
    other = replace(own, alpha=7.0)
    assert solvers_of(("fmn",), {"fmn": other})["fmn"]["alpha"] == "7.0"


def test_settings_are_what_differs_from_the_attack_s_own_solver():
    own = solvers_of(("fmn", "ddn"), {})
    assert settings(own) == {}
    changed = own["fmn"] | {"alpha": "7.0"}
    assert settings({**own, "fmn": changed}) == {"fmn": "alpha=7.0"}
    before = {name: value for name, value in own["fmn"].items() if name != "alpha"}
    assert settings({"fmn": before}) == {}  # a parameter that came later
    assert settings({"fmn": own["fmn"] | {"gone": "1"}}) == {"fmn": "gone=1"}
    assert settings({"fmn": {"class": "Other", "a": "1"}}) == {"fmn": "Other(a=1)"}
    assert settings({"invented": {"class": "X"}}) == {"invented": "X()"}


def test_published_solvers_are_recognised():
    published = {attack: solver_parameters(solver) for attack, solver in PUBLISHED.items()}
    assert stand_ins(published) == PUBLISHED
    assert stand_ins({}) == {}
    own = solvers_of(("fmn",), {})
    assert stand_ins(own) == {}
    assert stand_ins(published | own).keys() == PUBLISHED.keys() - {"fmn"}


def test_a_header_of_this_version_has_its_numerics():
    assert header_of(clean_of(4)).numerics == NUMERICS
