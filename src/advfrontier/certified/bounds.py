"""Certified radii: the largest balls that linear bounds show to hold no misclassified point.

Intervals are carried through all steps. Where they leave open which side of zero goes into a ReLU,
a linear function of the image that lies below it (and one above) is found by carrying the value's
coefficients backwards: through affine steps by their transpose, through a ReLU by the straight
lines that lie below and above it between its bounds. This is what CROWN does. The answer's margins
are bounded in the same way.

All is computed in float64, and of the model in exact arithmetic. Rounding is allowed for by
`_ROUNDING` of the size of all that is summed up: a million units in the last place. The float32
answers that attacks see differ from the exact ones by about 1e-6 of their spread, a tenth of what a
point must be misclassified by to count.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial

import torch
from torch import Tensor, nn

from advfrontier.certified.network import Network, read_network
from advfrontier.engine.checks import check_data, check_labels
from advfrontier.errors import FrontierError
from advfrontier.threat.names import norm_name
from advfrontier.threat.norms import TINY, make_norm

SUPPORTED = ("L1", "L2", "Linf")
_AT_ONCE = 20  # samples
_NOTHING = (
    1e-6  # of the radius that was tried first: below it the search ends, and nothing is certified
)
_ROUNDING = 1e-10
_PASSES = 6  # towards the best multiplier in L2; every one on the way gives a bound that holds


def certified_radius(
    model: nn.Module,
    images: Tensor,
    labels: Tensor,
    norm: str,
    *,
    start: Tensor | None = None,
    precision: float = 0.01,
    done: Callable[[int], None] | None = None,
) -> Tensor:
    """Return radii (n,) in float64 within which no image of [0, 1] is misclassified.

    Certified is the network in exact arithmetic. The radius is 0 where the sample is misclassified
    anyway or nothing could be certified, and ∞ where the whole box is.

    Args:
        model: A feed-forward network of convolutions, linear layers, ReLU, average pooling, sums of
            branches and fixed normalisation; anything else is refused.
        images: (n, …) in [0, 1].
        labels: True classes, int64 (n,).
        norm: `L1`, `L2` or `Linf`.
        start: (n,), radius to try first, such as half of the distance that an attack found; saves
            time.
        precision: By what share a radius may be below the largest that these bounds certify.
        done: Called with the number of samples that were finished.
    """
    norm = norm_name(norm)
    if norm not in SUPPORTED:
        raise FrontierError(
            f"no certificate in {norm}: expected one of {', '.join(SUPPORTED)}, whose balls are "
            "convex"
        )
    if not isinstance(model, nn.Module):
        raise FrontierError(
            f"a {type(model).__name__} cannot be certified: expected an nn.Module of known layers"
        )
    if not 1e-9 <= precision < 1:
        raise FrontierError(f"precision is {precision}: expected a share such as 0.01")
    images, labels = (
        check_data(images, labels).detach().to("cpu", torch.float64),
        labels.detach().cpu().long(),
    )
    first = (
        torch.zeros(len(images), dtype=torch.float64)
        if start is None
        else start.detach().to("cpu", torch.float64)
    )
    if first.shape != labels.shape:
        raise FrontierError(
            f"start has the shape {tuple(first.shape)}: expected one radius for each of "
            f"{len(images)}"
        )
    with torch.no_grad():
        network = read_network(model, images)
        if (classes := network.steps[-1].shape[1]) < 2:
            raise FrontierError(
                f"the model returns {classes} logit per image: expected at least two classes"
            )
        check_labels(labels, classes)
        radii, flat = torch.zeros_like(first), images.flatten(1)
        for rows in torch.split(torch.arange(len(images)), _AT_ONCE):
            radii[rows] = _search(
                network, flat[rows], labels[rows], first[rows], norm=norm, precision=precision
            )
            if done is not None:
                done(len(rows))
    return radii


def _search(
    network: Network, images: Tensor, labels: Tensor, start: Tensor, *, norm: str, precision: float
) -> Tensor:
    """Bisect between the largest certified radius and the smallest other one, per sample.

    Larger radii may be certified where smaller ones are not, because the lines through a ReLU are
    chosen by a rule of thumb. That costs tightness at most: whatever radius is certified covers all
    smaller ones.
    """
    box = make_norm(norm, tuple(images.shape[1:])).largest(
        images
    )  # the ball of this radius holds the whole box
    low, high = torch.zeros_like(box), torch.full_like(box, torch.inf)
    first = torch.where(start > 0, torch.minimum(start, box), box / 64)
    high[Bounds(network, norm, images, low).least_margins(labels) <= 0] = 0
    while True:
        width = torch.where(high.isinf(), torch.inf, high - low - precision * high)
        rows = ((width > 0) & (high > _NOTHING * first) & (low < box)).nonzero().squeeze(1)
        if not len(rows):
            return torch.where(low >= box, torch.inf, low)
        inward = torch.where(low > 0, (low + high) / 2, high / 2)
        outward = torch.where(low > 0, 2 * low, first)
        trial = torch.where(high.isinf(), torch.minimum(outward, box), inward)[rows]
        certified = Bounds(network, norm, images[rows], trial).least_margins(labels[rows]) > 0
        low[rows] = torch.where(certified, trial, low[rows])
        high[rows] = torch.where(certified, high[rows], trial)


def _linf(steepness: Tensor, room: Tensor, radii: Tensor) -> Tensor:
    """Every feature as far as it can go."""
    return (steepness * torch.minimum(room, radii[:, None])).sum(1)


def _l1(steepness: Tensor, room: Tensor, radii: Tensor) -> Tensor:
    """Bound by moving the steepest features first, each as far as it can go."""
    ranked, order = steepness.sort(dim=1, descending=True)
    room = room.gather(1, order)
    left = radii[:, None] - (room.cumsum(1) - room)
    return (ranked * left.clamp_(min=0).minimum(room)).sum(1)


def _l2(steepness: Tensor, room: Tensor, radii: Tensor) -> Tensor:
    """Return the Lagrangian bound Σ(steepness·u − λu²/2) + λr²/2, u = min(steepness/λ, room).

    The first λ leaves the box out and gives radius·‖steepness‖; every next one lets the features
    that have met the box stay there and shares the rest of the radius among the others.
    """
    squares = radii.square()
    level = torch.linalg.vector_norm(steepness, dim=1) / radii.clamp(min=TINY)
    least: Tensor = radii * torch.linalg.vector_norm(steepness, dim=1)
    for _ in range(_PASSES):
        level = level.clamp(min=TINY)
        move = torch.minimum(steepness / level[:, None], room)
        value = (steepness * move).sum(1) + level / 2 * (squares - move.square().sum(1))
        least = torch.minimum(least, value)
        stopped = move >= room
        left = (squares - (room.square() * stopped).sum(1)).clamp(min=TINY)
        level = ((steepness.square() * ~stopped).sum(1) / left).sqrt()
    return least


@dataclass(eq=False)
class Bounds:
    """Bounds on the values of all steps inside balls around samples.

    Args:
        network: Steps of the model from the image to the logits.
        norm: `L1`, `L2` or `Linf`.
        images: (samples, features) in float64, the centres of the balls.
        radii: (samples,), radii of the balls.
        relus: Place of each ReLU to bounds of what goes in, (samples, features) each.
    """

    network: Network
    norm: str
    images: Tensor
    radii: Tensor
    relus: dict[int, tuple[Tensor, Tensor]] = field(default_factory=dict)

    def least_margins(self, labels: Tensor) -> Tensor:
        """Return a lower bound on logit of the label − largest other logit, one per sample.

        Args:
            labels: True classes, int64 (samples,).
        """
        self._bound_relus()
        last, samples = len(self.network.steps) - 1, len(labels)
        classes = self.network.steps[last].shape[1]
        owners, others = (torch.arange(classes) != labels[:, None]).nonzero(as_tuple=True)
        wanted = torch.zeros(len(owners), classes, dtype=torch.float64)
        wanted.scatter_(1, labels[owners][:, None], 1.0).scatter_(1, others[:, None], -1.0)
        return self._least(last, wanted, owners).view(samples, classes - 1).amin(1)

    def _bound_relus(self) -> None:
        """Bound the input of every ReLU, in order: each bound needs the earlier ones."""
        low, high = (
            (self.images - self.radii[:, None]).clamp_(min=0),
            (self.images + self.radii[:, None]).clamp_(max=1),
        )
        shape = (len(low), *self.network.steps[0].shape)
        middles = {0: ((low + high) / 2).view(shape)}
        radii = {0: ((high - low) / 2).view(shape)}
        for place, step in enumerate(self.network.steps):
            if step.relu:
                low, high = self._tightened(step.inputs[0], middles, radii)
                self.relus[place] = low, high
                low, high = (
                    low.clamp(min=0).view(shape[0], *step.shape),
                    high.clamp(min=0).view(shape[0], *step.shape),
                )
                middles[place], radii[place] = (low + high) / 2, (high - low) / 2
            elif place:
                middles[place] = step.forward(*(middles[k] for k in step.inputs))
                radii[place] = step.spread(*(radii[k] for k in step.inputs))

    def _tightened(
        self, place: int, middles: dict[int, Tensor], radii: dict[int, Tensor]
    ) -> tuple[Tensor, Tensor]:
        middle, radius = middles[place].flatten(1), radii[place].flatten(1)
        slack = radius + _ROUNDING * (1 + middle.abs() + radius)
        low, high = middle - slack, middle + slack
        if not any(k <= place for k in self.relus):
            # In Linf a linear function is at its least at a corner of the hull, and that is what
            # the interval says.
            return (low, high) if self.norm == "Linf" else self._direct(place)
        for bound, sign in ((low, 1.0), (high, -1.0)):
            for owners, units in self._open(low, high):
                wanted = torch.zeros(len(units), low.shape[1], dtype=torch.float64)
                wanted.scatter_(1, units[:, None], sign)
                found = sign * self._least(place, wanted, owners)
                known = bound[owners, units]
                bound[owners, units] = (
                    torch.maximum(known, found) if sign > 0 else torch.minimum(known, found)
                )
        return low, high

    def _direct(self, place: int) -> tuple[Tensor, Tensor]:
        """Exact bounds of a value that no ReLU comes before."""
        slopes, columns, constants = self.network.direct(place)
        samples = len(self.images)
        low, high = (torch.empty(samples, len(slopes), dtype=torch.float64) for _ in range(2))
        for sample in range(samples):
            owners = torch.full((len(slopes),), sample)
            for bound, sign in ((low, 1.0), (high, -1.0)):
                bound[sample] = sign * self._lowest(
                    sign * slopes, sign * constants, owners, columns
                )
        return low, high

    def _open(self, low: Tensor, high: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield the samples and units whose sign is open, as many at a time as memory allows."""
        owners, units = ((low < 0) & (high > 0)).nonzero(as_tuple=True)
        at_once = self.network.at_once
        if len(owners):  # an empty batch is more than vmap can take
            yield from zip(torch.split(owners, at_once), torch.split(units, at_once), strict=True)

    def _least(self, place: int, wanted: Tensor, owners: Tensor) -> Tensor:
        """Return a lower bound on each ⟨wanted, value of a step⟩ in its sample's ball."""
        through_relu = partial(self._through_relu, owners)
        return self._lowest(*self.network.carry(place, wanted, through_relu), owners)

    def _lowest(
        self, slopes: Tensor, constants: Tensor, owners: Tensor, columns: Tensor | None = None
    ) -> Tensor:
        """Return the least ⟨slopes, image⟩ + constant in each sample's ball, less rounding.

        Feature k lowers the product by |slope_k| for each unit it moves, and has room up to the end
        of the box. With `columns` the slopes are those of these features, and zero for all others.
        """
        images = self.images[owners] if columns is None else self.images[owners[:, None], columns]
        room = torch.where(slopes > 0, images, 1 - images)
        fall = {"L1": _l1, "L2": _l2, "Linf": _linf}[self.norm](
            slopes.abs(), room, self.radii[owners]
        )
        size = 1 + constants.abs() + slopes.abs().sum(1) + fall
        return constants + (slopes * images).sum(1) - fall - _ROUNDING * size

    def _through_relu(
        self, owners: Tensor, place: int, coefficients: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Carry coefficients of a ReLU's output to its input, with a constant: a lower bound.

        Where a coefficient is negative the ReLU is replaced by the chord above it; where it is
        positive, by the line below it that leaves less in between: the value itself if that reaches
        further up than down, else zero.
        """
        low, high = self.relus[place]
        chord = (high / (high - low).clamp(min=1e-300)).where(low < 0, 1.0).where(high > 0, 0.0)
        below = ((high > -low) | (low >= 0)).to(chord)
        offset = (-chord * low).where((low < 0) & (high > 0), 0.0)
        flat = coefficients.flatten(1)
        rising = flat > 0
        slopes = torch.where(rising, below[owners], chord[owners])
        constant = (flat.clamp(max=0) * offset[owners]).sum(1)
        return (flat * slopes).view_as(coefficients), constant
