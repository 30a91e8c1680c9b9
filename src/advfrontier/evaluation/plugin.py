"""Any attack that is a callable `attack(model, images, labels)`, measured as the solvers of the pool are.

The attack gets a stand-in for the model, which counts its passes, decides what is misclassified, keeps the nearest such
point of every sample, and ends the attack when its queries are spent. What the attack returns is evaluated like any
other point: nothing it claims is believed.

Rows belong to samples by their position. An attack that drops rows, or evaluates several points of a sample at once,
is noticed by the number of rows and run again one sample at a time, where every row is that sample's. One that changes
the order but keeps the number cannot be noticed: run it with `alone=True`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor, nn

from advfrontier.engine import CHECKPOINT, Oracle, clean_pass
from advfrontier.engine.margins import robustly_misclassified
from advfrontier.errors import FrontierError
from advfrontier.evaluation.trace import Traces, sample_names
from advfrontier.evaluation.units import plain_data
from advfrontier.pool import MAX_QUERIES, Run
from advfrontier.progress import Progress, Silent
from advfrontier.threat.losses import margin
from advfrontier.threat.norms import get_norm
from advfrontier.threat.random import sample_ids

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from advfrontier.threat.norms import Norm

    Attack = Callable[[nn.Module, Tensor, Tensor], object]


@dataclass(frozen=True, eq=False)
class Found:
    """What a callable found: a trajectory that joins others, and the points it belongs to."""

    traces: Traces
    points: Tensor  # like the images; the image itself where there is no adversarial


def run_callable(
    attack: Attack,
    model: Callable[[Tensor], Tensor],
    images: Tensor,
    labels: Tensor,
    *,
    name: str,
    norm: str,
    queries: int = MAX_QUERIES,
    batch_size: int = 100,
    alone: bool = False,
    seed: int = 42,
    device: str | torch.device = "cpu",
    progress: bool = False,
) -> Found:
    """Run `attack(model, images, labels)` against a model, and record the best distance per sample every 10 queries.

    The attack sees the samples that are classified correctly, `batch_size` at a time. `name` is what its run is called.
    PyTorch's random state is `seed` at the start of every batch.
    """
    images, labels = plain_data(images, labels)
    images, seed = images.float(), int(seed)
    Run.parse(name)
    if queries % CHECKPOINT or queries < CHECKPOINT:
        raise FrontierError(f"cannot stop after {queries} queries: expected a multiple of {CHECKPOINT}")
    threat, ids = get_norm(norm), sample_ids(images.numpy())
    distances = np.zeros((queries // CHECKPOINT, len(images)))
    points, outside, flipped = images.clone(), 0, 0
    with Oracle(model, device=device) as oracle:
        clean = clean_pass(oracle, images, labels, threat, batch_size=batch_size, gradients=False)
        attacked = clean.correct.nonzero().squeeze(1)
        waiting = list(torch.split(attacked, 1 if alone else batch_size))
        with Progress(len(attacked), unit="samples") if progress else Silent() as bar:
            bar.show(name)
            while waiting:
                rows = waiting.pop(0)
                watch = _Watched(oracle, images[rows], labels[rows], threat, queries)
                if not watch.survived(attack, seed):
                    waiting = list(torch.split(torch.cat((rows, *waiting)), 1))
                    continue
                distances[:, rows.numpy()] = watch.trajectory()
                points[rows] = watch.points.cpu()
                outside += watch.outside
                flipped += watch.flipped()
                bar.advance(len(rows))
    doubts = {
        "misclassified points lay outside [0, 1] and were not counted": outside,
        "kept points were classified correctly in another batch": flipped,
    }
    traces = Traces(
        norm=threat.name,
        runs=(name,),
        queries=np.arange(CHECKPOINT, queries + 1, CHECKPOINT),
        distances=distances[None],
        samples=sample_names(ids),
        flags=tuple(f"{name}: {count} {what}" for what, count in doubts.items() if count),
        counts=oracle.counts.as_dict(),
    )
    return Found(traces, points)


class _Spent(BaseException):
    """The queries are spent. Not an Exception, so that no attack catches it by the way."""


class _OtherRows(BaseException):
    """A batch has another number of rows than there are samples."""


class _Watched(nn.Module):
    """The stand-in for the model. With one sample every row is that sample's; with more, row k is sample k's."""

    def __init__(self, oracle: Oracle, images: Tensor, labels: Tensor, norm: Norm, queries: int) -> None:
        super().__init__()
        self.oracle, self.norm, self.queries = oracle, norm, queries
        self.images, self.labels = images.to(oracle.device, oracle.dtype), labels.to(oracle.device)
        self.device = nn.Parameter(self.images.new_empty(0), requires_grad=False)  # where attacks look for the device
        self.points = self.images.clone()
        self.spent, self.outside = 0, 0  # queries per sample; points that would have counted inside the box
        self._best = np.full(len(images), np.inf)
        self._found = np.full((queries // CHECKPOINT, len(images)), np.inf)
        self.eval()

    def survived(self, attack: Attack, seed: int) -> bool:
        """Run the attack to its end or the end of its queries; False if its rows cannot be told apart."""
        before = self.oracle.counts.attack
        cuda = [self.images.device] if self.images.device.type == "cuda" else []
        with torch.random.fork_rng(cuda):
            torch.manual_seed(seed)
            try:
                returned = attack(self, self.images.clone(), self.labels.clone())
                if not isinstance(returned, Tensor) or returned.shape != self.images.shape:
                    shape = getattr(returned, "shape", type(returned).__name__)
                    raise FrontierError(f"the attack returned {shape}: expected images {tuple(self.images.shape)}")
                with torch.no_grad():
                    self(returned.detach())  # it may never have looked at what it returns
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
        logits: Tensor = self.oracle.model(images)
        self._keep(images.detach(), logits.detach())
        self._charge(len(images))
        if each > left:
            raise _Spent
        if logits.requires_grad:
            logits.register_hook(self._on_gradient)  # type: ignore[no-untyped-call]
        return logits

    def _on_gradient(self, gradient: Tensor) -> None:
        if self.spent + len(gradient) // len(self.images) > self.queries:
            raise _Spent
        self._charge(len(gradient))

    def _charge(self, rows: int) -> None:
        self.spent += rows // len(self.images)
        self.oracle.counts.attack += rows

    def _keep(self, images: Tensor, logits: Tensor) -> None:
        """Note the distance of misclassified points, and keep the nearest."""
        who = torch.arange(len(images), device=images.device) % len(self.images)
        wrong = robustly_misclassified(logits, margin(logits, self.labels[who]))
        flat = images.flatten(1)
        inside = ((flat >= 0) & (flat <= 1)).all(1)
        self.outside += int((wrong & ~inside).sum())
        rows = (wrong & inside).nonzero().squeeze(1)
        if not len(rows):
            return
        host = "cpu" if images.device.type == "mps" else images.device  # MPS has no float64
        inputs = self.images[who[rows]].flatten(1).to(host, torch.float64)
        distances = self.norm.distance(flat[rows].to(host, torch.float64), inputs).cpu().numpy()
        samples, query = who[rows].cpu().numpy(), self.spent + 1 + rows.cpu().numpy() // len(self.images)
        np.minimum.at(self._found, ((query - 1) // CHECKPOINT, samples), distances)
        for row, sample, distance in zip(rows.tolist(), samples, distances, strict=True):
            if distance < self._best[sample]:
                self._best[sample] = distance
                self.points[sample] = images[row]

    def trajectory(self) -> NDArray[np.float64]:
        """(checkpoint, sample): the best distance so far."""
        return np.minimum.accumulate(self._found, axis=0)

    def flipped(self) -> int:
        """Classify the kept points again in smaller batches, and count those that are correct there."""
        self.oracle.purpose = "verification"
        kept = torch.from_numpy(np.flatnonzero(self._best < np.inf)).to(self.images.device)
        parts = torch.split(kept, max(1, 2 * len(self.images) // 3))
        return sum(int((self.oracle.logits(self.points[rows]).argmax(1) == self.labels[rows]).sum()) for rows in parts)
