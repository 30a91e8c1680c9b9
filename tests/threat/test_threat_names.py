import pytest

from advfrontier.errors import FrontierError
from advfrontier.threat.names import NORMS, norm_name
from advfrontier.threat.norms import L2, get_norm


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("L0", "L0"), ("l0", "L0"), ("0", "L0"), (0, "L0"), ("ℓ0", "L0"),
        ("L1", "L1"), ("l1", "L1"), (1, "L1"), (1.0, "L1"),
        ("L2", "L2"), (" l2 ", "L2"), ("2", "L2"), (2, "L2"), (2.0, "L2"), ("ℓ2", "L2"),
        ("Linf", "Linf"), ("linf", "Linf"), ("inf", "Linf"), ("INF", "Linf"), (float("inf"), "Linf"), ("ℓ∞", "Linf"),
    ],
)  # fmt: skip
def test_spellings(written, meant):
    assert norm_name(written) == meant
    assert get_norm(written).name == meant


@pytest.mark.parametrize("written", ["L3", "", "euclid", "-1", "L", None, "nan", 0.5])
def test_unknown_norms_are_refused_with_the_known_ones(written):
    with pytest.raises(FrontierError, match="L0, L1, L2, Linf"):
        norm_name(written)


def test_a_norm_stands_for_itself():
    own = L2()
    assert get_norm(own) is own
    assert [repr(get_norm(name)) for name in NORMS] == list(NORMS)
