"""Catalogue of norms, without torch: their names, their symbols, and the class of each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from advfrontier.errors import FrontierError


@dataclass(frozen=True)
class NormFacts:
    """Catalogue's entry of a norm.

    Args:
        name: Canonical name, such as `Linf`.
        symbol: How texts write it, such as `ℓ∞`.
        norm: Its class as `module:Class`; a norm of a notebook may be the class itself.
        aliases: Other names that users type, in lower case.
    """

    name: str
    symbol: str
    norm: str | type
    aliases: tuple[str, ...] = ()


# The names of criteria of success in records: see `criteria`.
UNTARGETED = "untargeted"
CRITERION = (
    r"^(untargeted|top-[1-9][0-9]{0,5}|reject-(last|[0-9]{1,6})"
    r"|targeted-([0-9]{1,6}|each-[0-9]{1,6}|per-sample-[0-9a-f]{16}))$"
)

# The names of domains in records: see `domain`.
UNIT_BOX = "unit-box"
DOMAIN = r"^(unit-box|domain-[0-9a-f]{16})$"

_NORMS = "advfrontier.threat.norms"
_CATALOGUE: dict[str, NormFacts] = {}


def register_norm(facts: NormFacts) -> NormFacts:
    """Add a norm to the catalogue of this process and of the workers it starts.

    Args:
        facts: Name, symbol and class of the norm.
    """
    taken: set[str] = set()
    for other in _CATALOGUE.values():
        if other.name != facts.name:
            taken.update(other.aliases)
    if clash := sorted({facts.name.lower(), *facts.aliases} & taken):
        raise FrontierError(f"a norm is called {clash[0]} already: expected another name")
    _CATALOGUE[facts.name] = facts
    return facts


register_norm(NormFacts("L0", "ℓ0", f"{_NORMS}:L0", ("0", "l0", "ℓ0")))
register_norm(NormFacts("L1", "ℓ1", f"{_NORMS}:L1", ("1", "l1", "ℓ1")))
register_norm(NormFacts("L2", "ℓ2", f"{_NORMS}:L2", ("2", "l2", "ℓ2")))
register_norm(NormFacts("Linf", "ℓ∞", f"{_NORMS}:Linf", ("inf", "linf", "∞", "l∞", "ℓ∞")))

NORMS = tuple(_CATALOGUE)  # the norms that `all` means, and that pages compare

register_norm(NormFacts("L0pixel", "ℓ0 pixels", "advfrontier.threat.pixels:L0Pixel", ("pixel",)))


_UNIONS: dict[str, NormFacts] = {}


def name_union(radii: Mapping[str, str]) -> str:
    """Return the name of the union of norms with these radii, which tables know from now on.

    Args:
        radii: Norm to its radius as it was written, such as `8/255`.
    """
    parts, symbols = [], []
    for norm, radius in radii.items():
        parts.append(f"{norm_name(norm)}={radius}")
        symbols.append(
            f"{norm_symbol(norm)}/({radius})" if "/" in radius else f"{norm_symbol(norm)}/{radius}"
        )
    name = ",".join(parts)
    _UNIONS[name] = NormFacts(name, f"min({', '.join(symbols)})", norm="")
    return name


def norm_facts(text: str | float) -> NormFacts:
    """Return the entry of a norm; `l2`, `2`, `inf` and `Linf` are all understood.

    Args:
        text: Name or alias of a norm, or a number such as 2.
    """
    typed = str(text).strip()
    if typed in _CATALOGUE:
        return _CATALOGUE[typed]
    if typed in _UNIONS:
        return _UNIONS[typed]
    key = typed.lower().removesuffix(".0")
    for facts in _CATALOGUE.values():
        if key in (facts.name.lower(), *facts.aliases):
            return facts
    raise FrontierError(f"unknown norm {text!r}: expected one of {', '.join(_CATALOGUE)}")


def is_norm(name: str) -> bool:
    """Tell whether this is the canonical name of a norm of the catalogue."""
    return name in _CATALOGUE


def norm_name(text: str | float) -> str:
    """Return the canonical name of a norm.

    Args:
        text: Name or alias of a norm, or a number such as 2.
    """
    return norm_facts(text).name


def norm_symbol(name: str) -> str:
    """Return how texts write a norm, such as ℓ∞.

    Args:
        name: Name of a norm, registered or not.
    """
    return norm_facts(name).symbol


def norm_order(name: str) -> int:
    """Return the place of a norm in the catalogue, which orders the pages that list several.

    Args:
        name: Name of a norm, registered or not.
    """
    return list(_CATALOGUE).index(norm_name(name))
