"""Models that reject: from a score beside the logits to a class that means "reject".

    model = RejectingModel(net)                      # net(images) returns logits and scores
    model = ConfidenceThreshold(net, least=0.9)      # rejects where the largest probability is less

Both answer with one more logit than the net. It is the largest exactly where the model rejects, and
by as much as the score says, so an attack can follow its gradient. Evaluate them with
`criterion=Rejecting()`.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn

from advfrontier.errors import FrontierError


class RejectingModel(nn.Module):
    """A model that answers with logits and a score, as a model with one more class.

    Args:
        net: From images to a pair: logits (n, classes) and scores (n,). Images with a score above
            the threshold are rejected.
        threshold: The largest score that is accepted.
        scale: How much of a logit one unit of the score is worth. It moves no decision, only how
            steep the rejecting logit is beside the others.
    """

    def __init__(self, net: nn.Module, threshold: float = 0.0, scale: float = 1.0) -> None:
        super().__init__()
        self.net, self.threshold, self.scale = net, float(threshold), float(scale)
        if not 0 < self.scale < math.inf:
            raise FrontierError(f"the scale is {scale}: expected a finite number greater than 0")
        self.train(net.training)

    def forward(self, images: Tensor) -> Tensor:
        """Return (n, classes + 1) logits, the rejecting one last."""
        answer: Any = self.net(images)
        if not isinstance(answer, tuple | list) or len(answer) != 2:
            raise FrontierError(
                f"the model answers with {type(answer).__name__}: expected a pair of logits and "
                "scores, as in RejectingModel(net), or ConfidenceThreshold(net) for logits alone"
            )
        logits, scores = answer
        above = (scores.reshape(len(logits)) - self.threshold) * self.scale
        return torch.cat([logits, (logits.amax(1) + above)[:, None]], dim=1)


class ConfidenceThreshold(nn.Module):
    """A classifier that rejects where its largest probability is below a threshold.

    Stutz, Hein and Schiele: Confidence-Calibrated Adversarial Training: Generalizing to Unseen
    Attacks, ICML 2020, arXiv:1910.06259, evaluate detectors in this way.

    Args:
        net: From images to logits (n, classes).
        least: The least probability that is accepted, between 1/classes and 1.
    """

    def __init__(self, net: nn.Module, least: float) -> None:
        super().__init__()
        if not 0 < least < 1:
            raise FrontierError(
                f"the least probability is {least}: expected a number between 0 and 1, such as 0.9"
            )
        self.net, self.least = net, float(least)
        self.train(net.training)

    def forward(self, images: Tensor) -> Tensor:
        """Return (n, classes + 1) logits: the last is the largest where the probability is low.

        The log-odds of the largest probability take the place of the probability, which saturates.
        """
        logits: Tensor = self.net(images)
        best, place = logits.max(1)
        others = logits.scatter(1, place[:, None], -torch.inf).logsumexp(1)
        short = math.log(self.least / (1 - self.least)) - (best - others)
        return torch.cat([logits, (best + short)[:, None]], dim=1)


def least_confidence(net: nn.Module, images: Tensor, labels: Tensor, accepted: float) -> float:
    """Return the threshold that accepts a share of the correctly classified images.

    Args:
        net: From images to logits.
        images: (n, …), images that are not used to measure robustness.
        labels: (n,), their classes.
        accepted: Share of the correctly classified images to accept, such as 0.99.
    """
    with torch.no_grad():
        probabilities = net(images).softmax(1)
    best, place = probabilities.max(1)
    correct = best[place == labels]
    if not len(correct) or not 0 < accepted <= 1:
        raise FrontierError(
            f"{len(correct)} correctly classified images and a share of {accepted}: expected some "
            "images and a share between 0 and 1"
        )
    kept = math.ceil(accepted * len(correct))
    return float(correct.sort(descending=True).values[kept - 1])
