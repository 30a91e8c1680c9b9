"""One model in one norm, as far as comparing and ranking ask: its distances, and what they were found with."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from advfrontier.errors import FrontierError
from advfrontier.frontier.measure import as_distances
from advfrontier.threat.names import norm_name

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from advfrontier.flags import Flag


@dataclass(frozen=True, eq=False)
class Evaluated:
    """The distances of one model, sample by sample, after so many queries."""

    model: str
    norm: str
    samples: tuple[str, ...]
    distances: NDArray[np.float64]
    queries: int  # the tier they were found with
    flags: tuple[Flag, ...] = ()
    data: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "norm", norm_name(self.norm))
        object.__setattr__(self, "distances", as_distances(self.distances, what=f"distances of {self.model}"))
        if self.distances.size != len(self.samples):
            raise FrontierError(
                f"{self.distances.size} distances of {self.model} for {len(self.samples)} samples: expected one each"
            )
