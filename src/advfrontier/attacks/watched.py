"""Stand-in for the model that an external attack is given.

It counts the attack's passes, decides what is misclassified, keeps the nearest such point of every
sample, and ends the attack when its queries are spent. Points that the attack returns are evaluated
like any other. A point that is misclassified by no more than rounding does not count; the nearest
of these is moved slightly outward, once, and counts if it is then clearly misclassified.

Rows belong to samples by their position. An attack that drops rows, or evaluates several points of
a sample at once, is noticed by the number of rows, and is run again one sample at a time, where
every row is that sample's.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from advfrontier.engine import Oracle, Shard
from advfrontier.engine.margins import robustly_misclassified, spread
from advfrontier.engine.whole import Whole
from advfrontier.errors import FrontierError
from advfrontier.pool import CHECKPOINT
from advfrontier.solvers.protocol import length
from advfrontier.threat.losses import margin
from advfrontier.threat.norms import TINY

Attack = Callable[[nn.Module, Tensor, Tensor], object]

# How much farther from the image a point is moved that is misclassified by no more than rounding:
# a hundred times what a margin of the size of the logits needs.
_OUTWARD = 1e-3


class _Spent(BaseException):
    """Signal that the queries are spent. Not an Exception, so that no attack catches it."""


class OtherRows(BaseException):
    """Error: a batch has another number of rows than there are samples. Not an Exception either."""


class Watched(nn.Module):
    """Stand-in for the model, and what was found through it.

    With one sample under attack every row is that sample's; with more, row k is sample k's.

    Args:
        oracle: Model on its device, which evaluates and counts every query.
        shard: Samples that may be attacked, with their images and labels.
        queries: Most queries per sample.
    """

    def __init__(self, oracle: Oracle, shard: Shard, queries: int) -> None:
        super().__init__()
        self.oracle, self.norm, self.queries = oracle, shard.norm, queries
        self.images = shard.inputs.view(-1, *shard.shape)
        self.labels = shard.labels
        self.classes = shard.logits.shape[1]
        self.clean_spread = spread(shard.logits)
        # Attacks look for the device at a parameter.
        self.device = nn.Parameter(self.images.new_empty(0), requires_grad=False)
        count = len(shard)
        self.members = torch.arange(count, device=self.images.device)  # samples under attack
        self.spent = np.zeros(count, dtype=np.int32)
        self.best = np.full(count, np.inf)
        self._points = self.images.clone()
        self._near, self._near_points = self.best.copy(), self.images.clone()  # by rounding only
        self._outside = np.zeros(count, dtype=bool)
        self._found = np.full((queries // CHECKPOINT, count), np.inf)
        self._zero_gradients = torch.zeros(count, dtype=torch.int32, device=self.images.device)
        self._bad_gradients = self._zero_gradients.clone()
        self.eval()

    # For the caller that runs an attack

    def attack(self, attack: Attack, members: Tensor | None = None) -> bool:
        """Run an attack to its end or to the end of its queries.

        Args:
            attack: `attack(model, images, labels)`; returns points like the images, or None where
                only the points it evaluated count.
            members: Indices of the samples to attack, which have spent equal numbers of queries.
                None for all.

        Returns:
            Whether it ended by itself.

        Raises:
            OtherRows: If its rows cannot be attributed to samples.
        """
        self.members = self._all() if members is None else members
        try:
            returned = attack(self, self.images[self.members].clone(), self._labels().clone())
            if returned is not None:
                self._look_at(returned)
        except _Spent:
            return False
        return True

    def push(self) -> None:
        """Move points that are misclassified by rounding only outward, for one query each."""
        rows = self._missed()
        self.members = self._all()[torch.from_numpy(rows[self.spent[rows] < self.queries])]
        if not len(self.members):
            return
        inputs, near = self.images[self.members], self._near_points[self.members]
        points = torch.lerp(inputs, near, 1 + _OUTWARD).clamp_(0, 1)
        with torch.no_grad():
            self._evaluate(points, self.members, 1)

    def whole(self, queries: int) -> Whole:
        """Return what was found, for a run of `queries` queries.

        Args:
            queries: Queries of the step, at least as many as were allowed.
        """
        rejected = self._outside.copy()
        rejected[self._missed()] = True
        measured = np.minimum.accumulate(self._found, axis=0)
        rest = queries // CHECKPOINT - len(measured)
        measured = np.concatenate([measured, np.repeat(measured[-1:], rest, axis=0)])
        return Whole(
            best_point=self._points.flatten(1),
            measured=torch.from_numpy(measured),
            spent=torch.from_numpy(self.spent.copy()),
            zero_gradients=self._zero_gradients,
            bad_gradients=self._bad_gradients,
            rejected=torch.from_numpy(rejected.astype(np.int32)),
        )

    # Called by the attack

    def forward(self, images: Tensor) -> Tensor:
        """Return the model's logits, for one query per row."""
        if not isinstance(images, Tensor):
            images = torch.as_tensor(images)
        images = images.to(self.images)  # what is kept is what was evaluated
        rows, samples = len(images), len(self.members)
        if rows == 0 or (samples > 1 and rows != samples):
            raise OtherRows
        each = rows // samples
        left = self.queries - int(self.spent[self._rows()].max())
        if left <= 0:
            raise _Spent
        if each > left:  # one sample's points: the first of them are within the queries
            self._evaluate(images[:left].detach(), self.members.repeat(left), left)
            raise _Spent
        return self._evaluate(images, self.members.repeat(each), each)

    def _evaluate(self, images: Tensor, who: Tensor, each: int) -> Tensor:
        """Spend one query per row; row k is a point of sample `who[k]`, `each` of every sample."""
        self.oracle.purpose = "attack"
        follow = torch.is_grad_enabled() and images.requires_grad
        inner = images.view_as(images) if follow else images.detach()
        if follow:
            inner.register_hook(lambda gradient: self._on_gradient(gradient, who))  # type: ignore[no-untyped-call]
        logits = self.oracle.logits(inner)
        self._keep(images.detach(), logits.detach(), who)
        self.spent[self._rows()] += each
        if logits.requires_grad:
            logits.register_hook(self._on_backward)  # type: ignore[no-untyped-call]
        return logits

    def _on_backward(self, gradient: Tensor) -> None:
        """Count a backward pass; end the attack if it has no queries left for it."""
        each = len(gradient) // len(self.members)
        if int(self.spent[self._rows()].max()) + each > self.queries:
            raise _Spent
        self.spent[self._rows()] += each
        self.oracle.counts.attack += len(gradient)

    def _on_gradient(self, gradient: Tensor, who: Tensor) -> None:
        size = length(gradient.flatten(1))
        zero, bad = ~(size > TINY), ~size.isfinite()
        self._zero_gradients.index_add_(0, who, (zero & ~bad).int())
        self._bad_gradients.index_add_(0, who, bad.int())

    # What counts

    def _keep(self, images: Tensor, logits: Tensor, who: Tensor) -> None:
        """Note the distances of misclassified points, and keep the nearest of every sample."""
        labels, flat = self.labels[who], images.flatten(1)
        clearly = robustly_misclassified(logits, margin(logits, labels), self.clean_spread[who])
        inside = ((flat >= 0) & (flat <= 1)).all(1)
        self._outside[who[clearly & ~inside].cpu().numpy()] = True
        wrong = (logits.argmax(1) != labels) & logits.isfinite().all(1)
        rows = (inside & wrong).nonzero().squeeze(1)
        if not len(rows):
            return
        host = "cpu" if images.device.type == "mps" else images.device  # MPS has no float64
        inputs = self.images[who[rows]].flatten(1).to(host, torch.float64)
        distances = self.norm.distance(flat[rows].to(host, torch.float64), inputs).cpu().numpy()
        samples = who[rows].cpu().numpy()
        counts = clearly[rows].cpu().numpy()
        order = rows.cpu().numpy() // len(self.members)
        queries = self.spent[samples] + order  # spent before each of these points
        places = (queries[counts] // CHECKPOINT, samples[counts])
        np.minimum.at(self._found, places, distances[counts])
        near = images[rows]
        for best, points, kind in (
            (self.best, self._points, counts),
            (self._near, self._near_points, ~counts),
        ):
            chosen, nearest = _nearest(samples[kind], distances[kind])
            nearer = distances[kind][nearest] < best[chosen]
            chosen, nearest = chosen[nearer], nearest[nearer]
            best[chosen] = distances[kind][nearest]
            rows_kept = np.flatnonzero(kind)[nearest]
            points[torch.from_numpy(chosen)] = near[torch.from_numpy(rows_kept)]

    def _missed(self) -> NDArray[np.intp]:
        """Return samples with a point that does not count, clearly nearer than any that does."""
        return np.flatnonzero(self._near < (1 - 2 * _OUTWARD) * self.best)

    def _look_at(self, returned: object) -> None:
        """Evaluate what an attack returned: it may never have evaluated that itself."""
        expected = (len(self.members), *self.images.shape[1:])
        if not isinstance(returned, Tensor) or tuple(returned.shape) != expected:
            shape = tuple(returned.shape) if isinstance(returned, Tensor) else None
            shown = type(returned).__name__ if shape is None else shape
            raise FrontierError(f"the attack returned {shown}: expected images {expected}")
        with torch.no_grad():
            self(returned.detach())

    def _all(self) -> Tensor:
        return torch.arange(len(self.images), device=self.images.device)

    def _labels(self) -> Tensor:
        return self.labels[self.members]

    def _rows(self) -> NDArray[np.int64]:
        return np.asarray(self.members.cpu().numpy())


def _nearest(
    samples: NDArray[np.int64], distances: NDArray[np.float64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return every sample that occurs, once, and the index of its nearest point.

    Args:
        samples: (m,), whose points they are.
        distances: (m,), how far they are.
    """
    order = np.lexsort((distances, samples))
    chosen, first = np.unique(samples[order], return_index=True)
    return chosen, order[first]


@contextmanager
def seeded(seed: int, device: torch.device) -> Iterator[None]:
    """Seed torch, NumPy and Python, whose state an attack may use; restore them afterwards.

    Args:
        seed: Seed of Python's, NumPy's and PyTorch's random numbers inside the block.
        device: Device that the attack computes on.
    """
    numbers, python = np.random.get_state(), random.getstate()  # noqa: NPY002  # libraries use it
    cuda = [device] if device.type == "cuda" else []
    with torch.random.fork_rng(cuda), torch.enable_grad():
        torch.manual_seed(seed)
        np.random.seed(seed % 2**32)  # noqa: NPY002
        random.seed(seed)
        try:
            yield
        finally:
            np.random.set_state(numbers)  # noqa: NPY002
            random.setstate(python)
