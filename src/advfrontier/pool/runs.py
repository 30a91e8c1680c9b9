"""Names of runs, of the pool and of other libraries, and the rules C between runs.

A run of the pool is `fmn`, `apgd_min-dlr`, `sigma_zero:restart3` or `alma:target2`. An external run
names an attack of another library or of a user, with its parameters:

    foolbox:L2CarliniWagnerAttack?steps=200
    mine.py:attack?steps=50&restart=1

The rules C: (i) a target gets no more queries than the likelier target before it; (ii) a restart
gets queries only if its base run does. Both are closed under the component-wise maximum, so raising
runs never breaks an ensemble that was feasible.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from typing import Literal, cast

from advfrontier.errors import FrontierError

Variant = Literal["base", "restart", "target"]
Value = bool | int | float | str | None  # of a parameter of an external run

LIBRARIES = ("foolbox", "advlib", "torchattacks", "art", "secmlt")
CALLABLE = "callable"  # origin of attacks that are handed over as functions

_NAME = re.compile(
    r"(?P<solver>[a-z0-9_]+)(-(?P<loss>[a-z0-9]+))?"
    r"(:(?P<variant>restart|target)(?P<index>[1-9][0-9]{0,3}))?"
)
_ATTACK = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*", re.ASCII)
_MODULE = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)+", re.ASCII)
_FILE = re.compile(r"[^?,@\s][^?,@\n]*\.py")
_PARAMETER = re.compile(r"(?P<name>[A-Za-z_]\w*)=(?P<value>[^=&?,@\s]+)")
_FRACTION = re.compile(r"(?P<over>[0-9.]+)/(?P<under>[0-9.]+)")
_WORDS: dict[str, Value] = {"true": True, "false": False, "none": None}
_EXPECTED = "ORIGIN:ATTACK?NAME=VALUE&NAME=VALUE, such as foolbox:DDNAttack?steps=100"

# Parameters that advfrontier reads itself, and does not hand to the attack.
_RESTART, _QUERIES, _ALONE = "restart", "queries", "alone"


@dataclass(frozen=True)
class External:
    """Name of an external run: an attack of another library or of a user.

    Args:
        origin: One of `LIBRARIES`, a Python file, an importable module with a dot in its name, or
            `CALLABLE`.
        attack: Name of the class or function there.
        parameters: Name and text of each parameter, sorted by name.
    """

    origin: str
    attack: str
    parameters: tuple[tuple[str, str], ...] = ()

    def __str__(self) -> str:
        pairs = [f"{name}={text}" for name, text in self.parameters]
        return f"{self.origin}:{self.attack}" + (f"?{'&'.join(pairs)}" if pairs else "")

    @property
    def runs_code(self) -> bool:
        """Return whether loading the run executes code that its name chooses."""
        return self.origin not in LIBRARIES and self.origin != CALLABLE

    @property
    def restart(self) -> int:
        """Added to the seed, so that a random attack draws other numbers."""
        return self._number(_RESTART, 0)

    @property
    def queries(self) -> int | None:
        """Most queries per sample; None if only the ensemble limits them."""
        found = self._number(_QUERIES, 0)
        return found or None

    @property
    def alone(self) -> bool:
        """Return whether the run takes one sample at a time, as it changes the order of rows."""
        return self.values.get(_ALONE) is True

    @property
    def values(self) -> dict[str, Value]:
        """Return the value of each parameter, also of those that advfrontier reads itself."""
        return {name: parameter_value(text) for name, text in self.parameters}

    @property
    def arguments(self) -> dict[str, Value]:
        """Return the value of each parameter that the attack is given."""
        own = (_RESTART, _QUERIES, _ALONE)
        return {name: value for name, value in self.values.items() if name not in own}

    def _number(self, name: str, default: int) -> int:
        value = self.values.get(name, default)
        if isinstance(value, bool) or not isinstance(value, int) or value < 0:
            raise FrontierError(f"{self}: {name} is {value}: expected a whole number from 0 on")
        return value


def parameter_value(text: str) -> Value:
    """Read a parameter: a number, a fraction such as 8/255, true, false, none, or a text.

    Args:
        text: Text after the equals sign, as in `steps=100`.
    """
    if text.lower() in _WORDS:
        return _WORDS[text.lower()]
    fraction = _FRACTION.fullmatch(text)
    try:
        if fraction is not None:
            return float(fraction["over"]) / float(fraction["under"])
        return int(text) if text.lstrip("+-").isdecimal() else float(text)
    except (ValueError, ZeroDivisionError):
        return text


@cache
def parse_external(name: str) -> External | None:
    """Read the name of an external run; None if the name is of another kind.

    Raises FrontierError if only its parameters or the attack's name cannot be read.

    Args:
        name: Name of a run, such as `foolbox:DDNAttack?steps=100`.
    """
    head, mark, written = name.partition("?")
    origin, colon, attack = head.rpartition(":")
    known = origin in (*LIBRARIES, CALLABLE)
    if not colon or not (known or _FILE.fullmatch(origin) or _MODULE.fullmatch(origin)):
        return None
    parameters: dict[str, str] = {}
    for part in written.split("&") if mark else []:
        match = _PARAMETER.fullmatch(part)
        if match is None or match["name"] in parameters:
            raise FrontierError(
                f"{name!r}: cannot read the parameter {part!r}: expected {_EXPECTED}"
            )
        parameters[match["name"]] = match["value"]
    if _ATTACK.fullmatch(attack) is None:
        raise FrontierError(f"{name!r} does not name an attack: expected {_EXPECTED}")
    external = External(origin, attack, tuple(sorted(parameters.items())))
    if external.restart > 9999 or (external.queries or 10) % 10:
        raise FrontierError(
            f"{name!r}: expected restart up to 9999, and queries as a multiple of 10"
        )
    return external


@dataclass(frozen=True)
class Run:
    """Solver with a loss, where it has a choice, and a variant; or an external run.

    Args:
        solver: Name of the solver; of an external run its whole name.
        loss: Name of the loss; empty where the solver has its own.
        variant: The base run, a restart or a target.
        index: Number of the restart or target; 0 for base runs.
    """

    solver: str
    loss: str = ""
    variant: Variant = "base"
    index: int = 0

    @classmethod
    def parse(cls, name: str) -> Run:
        """Read a run's name; the parameters of an external run are sorted.

        Args:
            name: Name of a run, such as `fmn`, `apgd_min-ce:target1` or `mine.py:attack`.
        """
        match = _NAME.fullmatch(name)
        if match is not None:
            variant = cast("Variant", match["variant"] or "base")
            return cls(match["solver"], match["loss"] or "", variant, int(match["index"] or 0))
        external = parse_external(name)
        if external is None:
            raise FrontierError(
                f"{name!r} does not name a run: "
                "expected SOLVER[-LOSS][:restartN|:targetN], such as apgd_min-dlr:restart3, "
                f"or {_EXPECTED}"
            )
        return cls(str(external))

    @property
    def external(self) -> External | None:
        """Return the parts of an external run's name; None for a run of the pool."""
        return parse_external(self.solver)

    @property
    def attack(self) -> str:
        """Return the solver with its loss: what all variants of a run share."""
        return f"{self.solver}-{self.loss}" if self.loss else self.solver

    @property
    def base(self) -> Run:
        """Return the base run of the same attack."""
        return Run(self.solver, self.loss)

    def __str__(self) -> str:
        if self.variant == "base":
            return self.attack
        return f"{self.attack}:{self.variant}{self.index or ''}"


def is_external(run: str) -> bool:
    """Tell whether a name is one of an external run, which is done in one piece.

    Args:
        run: Name of a run.
    """
    return parse_external(run) is not None


def closure(run: Run, level: int, *, smallest: int) -> dict[Run, int]:
    """Return the least queries that other runs need before `run` may have `level`.

    Args:
        run: Run whose requirements are wanted.
        level: Queries that the run may be given.
        smallest: Queries that make a base run active.
    """
    if run.variant == "target":
        return {Run(run.solver, run.loss, "target", k): level for k in range(1, run.index)}
    return {run.base: smallest} if run.variant == "restart" else {}
