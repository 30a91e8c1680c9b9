import pytest

from advfrontier.errors import FrontierError
from advfrontier.threat.names import (
    NORMS,
    NormFacts,
    norm_facts,
    norm_name,
    norm_order,
    norm_symbol,
    register_norm,
)
from advfrontier.threat.norms import L2, make_norm


@pytest.mark.parametrize(
    ("norm", "written"),
    [
        ("L0", ["L0", "l0", "0", 0, "ℓ0"]),
        ("L1", ["L1", "l1", 1, 1.0, "ℓ1"]),
        ("L2", ["L2", " l2 ", "2", 2, 2.0, "ℓ2"]),
        ("Linf", ["Linf", "linf", "inf", "INF", float("inf"), "ℓ∞"]),
    ],
)
def test_norm_name_spellings(norm, written):
    assert [norm_name(spelling) for spelling in written] == [norm] * len(written)


@pytest.mark.parametrize("written", ["L3", "", "euclid", "-1", "L", None, "nan", 0.5])
def test_norm_name_unknown(written):
    with pytest.raises(FrontierError, match="expected one of L0, L1, L2, Linf"):
        norm_name(written)


def test_norm_symbol_of_the_built_in_norms():
    assert [norm_symbol(name) for name in NORMS] == ["ℓ0", "ℓ1", "ℓ2", "ℓ∞"]


def test_register_norm_adds_a_name_and_its_aliases():
    facts = NormFacts("Tested", "ℓt", "advfrontier.threat.norms:L2", ("tst",))
    assert register_norm(facts) is norm_facts("tested")
    assert norm_name("TST") == "Tested"
    assert norm_symbol("Tested") == "ℓt"
    assert "Tested" not in NORMS
    assert isinstance(make_norm("Tested", (3,)), L2)
    register_norm(facts)  # again, as a notebook does that is run twice


def test_register_norm_refuses_the_name_of_another():
    with pytest.raises(FrontierError, match="a norm is called l2 already"):
        register_norm(NormFacts("Mine", "ℓ", "somewhere:Mine", ("l2",)))


def test_norm_order_is_that_of_the_catalogue():
    assert sorted(["L0pixel", "Linf", "L0", "L2"], key=norm_order) == [
        "L0",
        "L2",
        "Linf",
        "L0pixel",
    ]
