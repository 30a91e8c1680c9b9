"""External runs: attacks of other libraries and of users, as steps of an ensemble.

Such an attack is done in one piece on a shard. It sees the stand-in of `watched`, which counts its
passes and ends it when its queries are spent, so the first queries of a longer run are those of a
shorter one. It is run one sample at a time where its rows cannot be attributed to samples.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import cached_property

import torch

from advfrontier.attacks.libraries import Loaded, load_attack
from advfrontier.attacks.radius import search_radius
from advfrontier.attacks.watched import Attack, OtherRows, Watched, seeded
from advfrontier.engine import Oracle, Shard
from advfrontier.engine.whole import Whole
from advfrontier.errors import FrontierError
from advfrontier.pool.runs import LIBRARIES, External, parse_external


@dataclass(frozen=True)
class ExternalAttack:
    """External run in a norm.

    Args:
        name: Name of the run, such as `foolbox:DDNAttack?steps=100`.
        norm: Name of the norm that is minimised, such as `L2`.
        function: The attack itself, where the name is one such as `callable:mine`.
    """

    name: str
    norm: str
    function: Attack | None = field(default=None, repr=False)

    @cached_property
    def external(self) -> External:
        """Return the parts of the name."""
        external = parse_external(self.name)
        if external is None:
            raise FrontierError(f"{self.name!r} does not name an external run")
        return external

    @cached_property
    def loaded(self) -> Loaded:
        """Return the attack, imported when it is asked for."""
        return load_attack(self.external, self.norm, self.function)

    def __getstate__(self) -> dict[str, object]:
        """Return it without what was imported: another process imports it again."""
        return {"name": self.name, "norm": self.norm, "function": self.function}

    def __setstate__(self, state: dict[str, object]) -> None:
        self.__dict__.update(state)

    def identity(self) -> dict[str, str]:
        """Return what decides its points: class, version or source, and parameters."""
        return {**self.loaded.origin, **dict(self.external.parameters)}

    def run(
        self,
        oracle: Oracle,
        shard: Shard,
        queries: int,
        *,
        tick: Callable[[int], object] | None = None,
    ) -> Whole:
        """Attack every sample of a shard; see `WholeAttack`."""
        if not self.external.alone:
            before = oracle.counts.attack
            try:
                whole = self._attack(oracle, shard, queries)
            except OtherRows:  # one sample at a time, every row is that sample's
                lost = oracle.counts.attack - before
                oracle.counts.attack -= lost
                oracle.counts.checks += lost
            else:
                if tick is not None:
                    tick(queries * len(shard))
                return whole
        parts: list[Whole] = []
        for row in range(len(shard)):
            only = shard.select(torch.tensor([row], device=shard.inputs.device))
            parts.append(self._attack(oracle, only, queries))
            if tick is not None:
                tick(queries)
        return Whole(
            best_point=torch.cat([part.best_point for part in parts]),
            measured=torch.cat([part.measured for part in parts], dim=1),
            spent=torch.cat([part.spent for part in parts]),
            zero_gradients=torch.cat([part.zero_gradients for part in parts]),
            bad_gradients=torch.cat([part.bad_gradients for part in parts]),
            rejected=torch.cat([part.rejected for part in parts]),
        )

    def _attack(self, oracle: Oracle, shard: Shard, queries: int) -> Whole:
        """Attack all samples of a shard together."""
        limit = self.external.queries or queries
        watch = Watched(oracle, shard, min(limit, queries))
        quiet = self.external.origin in LIBRARIES  # their warnings say nothing about the model
        seed = shard.seed + self.external.restart
        with warnings.catch_warnings() if quiet else nullcontext():
            if quiet:
                warnings.simplefilter("ignore")
            with seeded(seed, oracle.device):
                try:
                    self._search(watch, shard)
                except FrontierError as error:
                    raise FrontierError(f"{self.name}: {error}") from error
                except Exception as error:
                    raise FrontierError(
                        f"{self.name} failed ({type(error).__name__}: {error}); correct its "
                        "parameters, or leave it out"
                    ) from error
                watch.push()
        return watch.whole(queries)

    def _search(self, watch: Watched, shard: Shard) -> None:
        loaded = self.loaded
        if loaded.attack is not None:
            watch.attack(loaded.attack)
        elif loaded.at_radius is not None:
            search_radius(watch, loaded.at_radius, shard)
