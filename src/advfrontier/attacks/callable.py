"""The stand-in for a model that a callable `attack(model, images, labels)` is given.

It counts the attack's passes, decides what is misclassified, keeps the nearest such point of every sample, and ends the
attack when its queries are spent. What the attack returns is evaluated like any other point: nothing it claims is
believed. A point that is misclassified by no more than rounding does not count; the nearest of these is moved slightly
outward, once, and counts if it is then clearly misclassified.

Rows belong to samples by their position. An attack that drops rows, or evaluates several points of a sample at once,
is noticed by the number of rows, and can be run again one sample at a time, where every row is that sample's.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from advfrontier.engine import CleanPass, Oracle
from advfrontier.engine.margins import robustly_misclassified, spread
from advfrontier.errors import FrontierError
from advfrontier.flags import Kind
from advfrontier.pool import CHECKPOINT
from advfrontier.threat.losses import margin
from advfrontier.threat.norms import Norm

Attack = Callable[[nn.Module, Tensor, Tensor], object]

# How much farther from the image a point is moved that is misclassified by no more than rounding: a hundred times what
# a margin of the size of the logits needs.
_OUTWARD = 1e-3


def watched_batches(
    attack: Attack, attacked: Tensor, size: int, watched: Callable[[Tensor], Watched], seed: int
) -> Iterator[tuple[Tensor, Watched]]:
    """Run the attack on `size` samples at a time, or on each alone once their rows cannot be distinguished."""
    waiting = list(torch.split(attacked, size)) if len(attacked) else []
    while waiting:
        rows = waiting.pop(0)
        watch = watched(rows)
        if watch.survived(attack, seed):
            yield rows, watch
        else:
            waiting = list(torch.split(torch.cat((rows, *waiting)), 1))


class _Spent(BaseException):
    """The queries are spent. Not an Exception, so that no attack catches it by the way."""


class _OtherRows(BaseException):
    """A batch has another number of rows than there are samples."""


class Watched(nn.Module):
    """The stand-in for the model. With one sample every row is that sample's; with more, row k is sample k's."""

    def __init__(
        self,
        oracle: Oracle,
        images: Tensor,
        clean: CleanPass,
        rows: Tensor,
        *,
        norm: Norm,
        queries: int,
    ) -> None:
        super().__init__()
        self.oracle, self.norm, self.queries = oracle, norm, queries
        self.images, self.labels = oracle.images(images[rows]), oracle.labels(clean.labels[rows])
        self.clean_spread = spread(clean.logits[rows]).to(oracle.device)
        self.device = nn.Parameter(
            self.images.new_empty(0), requires_grad=False
        )  # where attacks look for the device
        self.points = self.images.clone()
        self.spent, self.outside = (
            0,
            0,
        )  # queries per sample; points that would have counted inside the box
        self._best = np.full(len(rows), np.inf)
        self._near, self._near_points = (
            self._best.copy(),
            self.images.clone(),
        )  # misclassified, but not clearly
        self._found = np.full((queries // CHECKPOINT, len(rows)), np.inf)
        self.eval()

    def survived(self, attack: Attack, seed: int) -> bool:
        """Run the attack to its end or the end of its queries; False if its rows cannot be distinguished."""
        before = self.oracle.counts.attack
        cuda = [self.images.device] if self.images.device.type == "cuda" else []
        with torch.random.fork_rng(cuda):
            torch.manual_seed(seed)
            try:
                returned = attack(self, self.images.clone(), self.labels.clone())
                if not isinstance(returned, Tensor) or returned.shape != self.images.shape:
                    shape = getattr(returned, "shape", type(returned).__name__)
                    raise FrontierError(
                        f"the attack returned {shape}: expected images {tuple(self.images.shape)}"
                    )
                with torch.no_grad():
                    self(returned.detach())  # it may never have looked at what it returns
                self._push()
            except _Spent:
                pass
            except _OtherRows:
                lost = self.oracle.counts.attack - before
                self.oracle.counts.attack -= lost
                self.oracle.counts.checks += lost
                return False
        return True

    def forward(self, images: Tensor) -> Tensor:
        """One query per row."""
        images = images.to(self.images)  # what is kept is what was evaluated
        rows, samples = len(images), len(self.images)
        if samples > 1 and rows != samples:
            raise _OtherRows
        each, left = rows // samples, self.queries - self.spent
        if left == 0:
            raise _Spent
        if each > left:
            images = images[:left]
        logits = self._evaluate(images, torch.arange(len(images), device=images.device) % samples)
        if each > left:
            raise _Spent
        if logits.requires_grad:
            logits.register_hook(self._on_gradient)  # type: ignore[no-untyped-call]
        return logits

    def _on_gradient(self, gradient: Tensor) -> None:
        if self.spent + len(gradient) // len(self.images) > self.queries:
            raise _Spent
        self.spent += len(gradient) // len(self.images)
        self.oracle.counts.attack += len(gradient)

    def _evaluate(self, images: Tensor, who: Tensor) -> Tensor:
        """One query for each of these rows, which are points of the samples `who`."""
        self.oracle.purpose = "attack"
        logits = self.oracle.logits(images if torch.is_grad_enabled() else images.detach())
        self._keep(images.detach(), logits.detach(), who)
        self.spent += max(1, len(images) // len(self.images))
        return logits

    def _keep(self, images: Tensor, logits: Tensor, who: Tensor) -> None:
        """Note the distance of misclassified points, and keep the nearest."""
        gap, flat = margin(logits, self.labels[who]), images.flatten(1)
        clearly = robustly_misclassified(logits, gap, self.clean_spread[who])
        inside = ((flat >= 0) & (flat <= 1)).all(1)
        self.outside += int((clearly & ~inside).sum())
        wrong = (logits.argmax(1) != self.labels[who]) & logits.isfinite().all(1)
        rows = (inside & wrong).nonzero().squeeze(1)
        if not len(rows):
            return
        host = "cpu" if images.device.type == "mps" else images.device  # MPS has no float64
        inputs = self.images[who[rows]].flatten(1).to(host, torch.float64)
        distances = self.norm.distance(flat[rows].to(host, torch.float64), inputs).cpu().numpy()
        samples, query = (
            who[rows].cpu().numpy(),
            self.spent + 1 + rows.cpu().numpy() // len(self.images),
        )
        counts = clearly[rows].cpu().numpy()
        np.minimum.at(
            self._found, ((query - 1)[counts] // CHECKPOINT, samples[counts]), distances[counts]
        )
        for row, sample, distance, counted in zip(
            rows.tolist(), samples, distances, counts, strict=True
        ):
            best, points = (self._best, self.points) if counted else (self._near, self._near_points)
            if distance < best[sample]:
                best[sample] = distance
                points[sample] = images[row]

    def _missed(self) -> NDArray[np.intp]:
        """Samples of which a point that does not count is clearly nearer than any that does."""
        return np.flatnonzero(self._near < (1 - 2 * _OUTWARD) * self._best)

    def _push(self) -> None:
        """Move such points outward, away from the image, and look at them once more: one query each."""
        who = torch.from_numpy(self._missed()).to(self.images.device)
        if not len(who):
            return
        if self.spent >= self.queries:
            raise _Spent
        images = self.images[who]
        with torch.no_grad():
            self._evaluate(
                torch.lerp(images, self._near_points[who], 1 + _OUTWARD).clamp_(0, 1), who
            )

    def trajectory(self) -> NDArray[np.float64]:
        """(checkpoint, sample): the best distance so far."""
        return np.minimum.accumulate(self._found, axis=0)

    def doubts(self) -> Counter[tuple[Kind, str]]:
        """Points that do not count, and kept ones that are correct when they are seen again, in smaller batches."""
        self.oracle.purpose = "verification"
        kept = torch.from_numpy(np.flatnonzero(self._best < np.inf)).to(self.images.device)
        parts = torch.split(kept, max(1, 2 * len(self.images) // 3))
        flipped = sum(
            int((self.oracle.logits(self.points[rows]).argmax(1) == self.labels[rows]).sum())
            for rows in parts
            if len(rows)  # not every model takes an empty batch
        )
        found = {
            (
                Kind.REJECTED,
                "misclassified points lay outside [0, 1] and were not counted",
            ): self.outside,
            (
                Kind.REJECTED,
                "samples have a point, nearer than any that counts, misclassified by rounding only",
            ): (len(self._missed())),
            (Kind.FLIPPED, "kept points were classified correctly in another batch"): flipped,
        }
        return Counter({what: count for what, count in found.items() if count})
