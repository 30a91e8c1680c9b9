"""`record.json`: read as it was written, or refused with one message; changes are declared."""

import json

import pytest
from record_made import LARGER, SMALL, SOLVERS, clean_of, header_of

from advfrontier import FrontierError
from advfrontier.flags import Flag, Kind
from advfrontier.record import Header, HeaderChange, Terms
from advfrontier.record.header import SCHEMA, checksum, solver_repr
from advfrontier.threat.names import NormFacts, register_norm

RANDOM = Flag(Kind.RANDOM, "the model is random")
TRAINING = Flag(Kind.TRAINING, "was in train mode")


@pytest.fixture
def header():
    return header_of(
        clean_of(6), ensemble=SMALL, solvers=SOLVERS, commands=("advfrontier evaluate",)
    )


def forged(header, **changes):
    """Return the file of a header with other fields, and the checksum that belongs to them."""
    content = json.loads(header.to_bytes())
    del content["checksum"]
    content |= changes
    return json.dumps({**content, "checksum": checksum(content)}).encode()


def test_header_read_as_written(header):
    assert Header.from_bytes(header.to_bytes(), "here") == header
    assert json.loads(header.to_bytes())["schema"] == SCHEMA


def test_header_changed_by_hand(header):
    content = json.loads(header.to_bytes())
    for change in ({"flags": [1]}, {"runs": {"fmn": 10}}, {"checksum": "0"}, {"keep_state": False}):
        changed = json.dumps(content | change).encode()
        with pytest.raises(
            FrontierError, match=r"here/record\.json is damaged \(its checksum does"
        ):
            Header.from_bytes(changed, "here")


@pytest.mark.parametrize("content", [b"{", b"[]", b"null", b"\xff", b"{}", b"[" * 100_000])
def test_header_that_is_no_json_object(content):
    with pytest.raises(FrontierError, match=r"is damaged .*: expected a record; put back a copy"):
        Header.from_bytes(content, "here")


def test_header_of_a_newer_schema(header):
    versions = {"advfrontier": "7.2", "python": "4"}
    content = forged(header, schema=SCHEMA + 1, versions=versions, quantum=[{"of": "solace"}])
    with pytest.raises(
        FrontierError, match=r"which advfrontier 7\.2 wrote: it is newer .* is intact$"
    ):
        Header.from_bytes(content, "here")
    content = forged(header, schema=SCHEMA + 1, versions="unknown here")
    with pytest.raises(FrontierError, match="another version wrote: it is newer"):
        Header.from_bytes(content, "here")


def test_header_of_a_newer_schema_with_another_checksum(header):
    content = json.loads(header.to_bytes()) | {"schema": 99, "checksum": {"sha3": "?"}}
    with pytest.raises(FrontierError, match=r"of schema 99, which advfrontier .* is newer"):
        Header.from_bytes(json.dumps(content).encode(), "here")


def test_header_of_an_older_schema(header):
    with pytest.raises(
        FrontierError, match=r"it is older than this .*Evaluate again in a new folder"
    ):
        Header.from_bytes(forged(header, schema=SCHEMA - 1), "here")


@pytest.mark.parametrize("schema", [None, "5", 5.0, True, [5]])
def test_header_whose_schema_is_no_number(header, schema):
    with pytest.raises(FrontierError, match=r"record\.json is damaged"):
        Header.from_bytes(forged(header, schema=schema), "here")


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("kind", "report", "kind: Input should be"),
        ("commands", [1], "commands.0: Input should be a valid string"),
        ("runs", {"fmn": 15}, "runs.fmn: Input should be a multiple of 10"),
        ("runs", {"Not A Run": 20}, "'Not A Run' does not name a run"),
        ("solvers", {"fmn": {"alpha": "1"}}, "the solver of fmn has no class"),
        ("counts", {"checks": -1}, "greater than or equal to 0"),
        ("counts", {"checks": 2**63}, "less than"),
        ("radii", [-1.0], "greater than or equal to 0"),
        ("radii", [float("nan")], "finite|valid JSON|damaged"),
        ("flags", [{"kind": "invented", "text": "x"}], r"flags\.0"),
        ("surprise", 1, "surprise: Extra inputs are not permitted"),
        ("ensemble", {"name": "x", "norm": "Linf", "steps": []}, "in Linf, the record in L2"),
        ("ensemble", {"name": "x"}, "ensemble: has no norm"),
        (
            "ensemble",
            {"name": "x", "norm": "L2", "steps": [{"run": "fmn", "queries": 15}]},
            "multiple of 10",
        ),
        (
            "ensemble",
            {"name": "x", "norm": "L2", "steps": [{"run": "FMN!", "queries": 20}]},
            "'FMN!' does not name a run",
        ),
    ],
)
def test_header_with_a_field_out_of_range(header, field, value, message):
    with pytest.raises(FrontierError, match=rf"here/record\.json is damaged \(.*({message})"):
        Header.from_bytes(forged(header, **{field: value}), "here")


@pytest.mark.parametrize(
    ("part", "field", "value"),
    [
        ("data", "samples", 0),
        ("data", "samples", 10**12),
        ("data", "shape", []),
        ("data", "shape", [0, 3]),
        ("terms", "shard", 0),
        ("terms", "seed", 10**400),
        ("terms", "threads", 10**6),
        ("terms", "dtype", "bfloat16"),
        ("terms", "eot", 0),
    ],
)
def test_header_with_a_term_out_of_range(header, part, field, value):
    fields = json.loads(header.to_bytes())[part] | {field: value}
    with pytest.raises(FrontierError, match=rf"is damaged \({part}\.{field}"):
        Header.from_bytes(forged(header, **{part: fields}), "here")


def test_header_in_a_norm_that_is_not_registered(header):
    terms = json.loads(header.to_bytes())["terms"] | {"norm": "L7"}
    content = forged(header, terms=terms, ensemble=None)
    with pytest.raises(FrontierError, match="in the norm 'L7', which is not registered here"):
        Header.from_bytes(content, "here")


def test_header_in_a_registered_norm(header):
    register_norm(NormFacts("Ltest", "ℓt", "mine:Norm"))
    own = header.model_copy(update={"terms": Terms(norm="Ltest"), "ensemble": None})
    assert Header.from_bytes(own.to_bytes(), "here") == own


def test_terms_need_the_canonical_name_of_a_norm():
    with pytest.raises(ValueError, match="the norm is l2: expected L2"):
        Terms(norm="l2")


# Changes


def test_a_change_of_nothing_is_no_change(header):
    assert HeaderChange().apply(header) == header
    known = HeaderChange(
        command="advfrontier evaluate", ensemble=SMALL, solvers=SOLVERS, later=header.versions
    )
    assert known.apply(header) == header


def test_names_are_changed_one_by_one(header):
    changed = HeaderChange(model_name="new", data_name="other").apply(header)
    assert (changed.model.name, changed.model.source, changed.data.name) == ("new", None, "other")
    assert HeaderChange(model_source="zoo:F3").apply(changed).model.name == "new"


def test_other_samples_end_what_was_finished(header):
    done = header.model_copy(update={"finished": SMALL})
    grown = done.data.model_copy(update={"samples": 8, "digest": "1"})
    assert HeaderChange(data=grown).apply(done).finished is None
    assert HeaderChange(data=done.data).apply(done).finished == SMALL
    assert HeaderChange(data=grown, finished=LARGER).apply(done).finished == LARGER


def test_flags_are_added_unless_the_header_has_one_of_their_kind(header):
    once = HeaderChange(add_flags=(RANDOM,)).apply(header)
    again = HeaderChange(add_flags=(Flag(Kind.RANDOM, "still"), TRAINING)).apply(once)
    assert again.flags == (RANDOM, TRAINING)


def test_flags_are_replaced_by_kind(header):
    flagged = header.model_copy(update={"flags": (RANDOM, TRAINING)})
    new = Flag(Kind.RANDOM, "even more")
    assert HeaderChange(set_flags={Kind.RANDOM: new}).apply(flagged).flags == (new, TRAINING)
    assert HeaderChange(set_flags={Kind.RANDOM: None}).apply(flagged).flags == (TRAINING,)
    assert HeaderChange(set_flags={Kind.RANDOM: RANDOM}).apply(header).flags == (RANDOM,)
    assert HeaderChange(set_flags={Kind.RANDOM: None}).apply(header) == header


def test_counts_add_up_and_runs_grow(header):
    change = HeaderChange(add_counts={"checks": 3}, runs={"fmn": 40}, replaced={"a": {"attack": 1}})
    twice = change.apply(change.apply(header))
    assert twice.counts == {"checks": 6}
    assert twice.runs == {"fmn": 40}
    assert HeaderChange(runs={"fmn": 20, "ddn": 10}).apply(twice).runs == {"fmn": 40, "ddn": 10}
    assert twice.replaced == {"a": {"attack": 1}}


def test_the_first_solver_of_an_attack_stays(header):
    other = {"fmn": {"class": "FMN", "alpha": "7"}, "pdgd": {"class": "PDGD"}}
    changed = HeaderChange(solvers=other).apply(header)
    assert changed.solvers == SOLVERS | {"pdgd": {"class": "PDGD"}}
    assert solver_repr(other["fmn"]) == "FMN(alpha=7)"


def test_commands_are_noted_once_in_order(header):
    second = HeaderChange(command="advfrontier extend").apply(header)
    assert second.commands == ("advfrontier evaluate", "advfrontier extend")
    assert HeaderChange(command="advfrontier evaluate").apply(second) == second
    aside = HeaderChange(command="advfrontier certify", resumes=False).apply(second)
    assert aside.commands == ("advfrontier evaluate", "advfrontier certify", "advfrontier extend")
    assert aside.how_to_resume == "to resume, type advfrontier extend"
    empty = header.model_copy(update={"commands": ()})
    assert HeaderChange(command="advfrontier certify", resumes=False).apply(empty) == empty
    assert empty.how_to_resume == "to resume, repeat the same call"


def test_radii_are_set_or_joined(header):
    assert HeaderChange(radii=(0.5, 0.25)).apply(header).radii == (0.5, 0.25)
    one = HeaderChange(add_radii=(0.5, 0.25)).apply(header)
    assert HeaderChange(add_radii=(0.125, 0.5)).apply(one).radii == (0.125, 0.25, 0.5)


def test_versions_are_noted_where_they_round_differently(header):
    python = header.versions.model_copy(update={"python": "9.9"})
    assert HeaderChange(later=python).apply(header) == header
    torch = header.versions.model_copy(update={"torch": "9.9"})
    once = HeaderChange(later=torch).apply(header)
    assert once.later == (torch,)
    assert HeaderChange(later=torch).apply(once) == once


# Telling records apart


def test_mismatch_names_every_difference(header):
    assert header.mismatch(header) == ""
    terms = header.terms.model_copy(update={"seed": 3, "threads": 7})
    asked = header.model_copy(update={"terms": terms})
    text = "another seed: 42, not 3. Choose another folder, or remove this one; to resume it, add "
    assert header.mismatch(asked) == text + "--seed 42 (in Python seed=42)"
    flat = header.data.model_copy(update={"shape": (9,)})
    solvers = {"fmn": {"class": "FMN", "alpha": "7"}}
    model = header.model.model_copy(update={"digest": "f" * 32, "name": "\x1b[31mred"})
    asked = header.model_copy(
        update={"terms": terms, "data": flat, "solvers": solvers, "model": model}
    )
    text = header.mismatch(asked)
    assert "another model: net (00000000), not " in text
    assert "another image shape: (1, 3, 3), not (9,)" in text
    assert "another solver of fmn: FMN(alpha=None), not FMN(alpha=7)" in text
    assert "to resume" not in text
