"""Flags: warnings that a reader needs to judge a result, each with a kind for programs."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum


class Kind(StrEnum):
    """Subject of a flag."""

    TRAINING = "training"  # the model was in train mode
    VERSIONS = "versions"  # several versions of a library that rounds have worked on it
    UNBROKEN = "unbroken"  # samples that no run ever broke
    INTERRUPTED = (
        "interrupted"  # an extension is not finished: figures are those of the tier before
    )
    PROBABILITIES = "probabilities"  # the model returns probabilities, not logits
    RANDOM = "random"  # the model's answers vary
    EOT = "eot"  # … and were averaged
    BATCH = "batch"  # the answer for an image depends on the others of the batch
    NO_GRADIENTS = "no-gradients"  # on no sample at all
    ZERO_GRADIENTS = "zero-gradients"
    BAD_GRADIENTS = "bad-gradients"  # not finite
    MISLEADING_GRADIENTS = "misleading-gradients"  # the loss does not move as its gradient says
    BEATEN = "beaten"  # searches without gradients lowered what attacks with gradients had reached
    NOISE = "noise"  # random noise smaller than the distances breaks samples
    CLEAN_ACCURACY = (
        "clean-accuracy"  # near chance or below: the labels or images may not be the model's
    )
    FLIPPED = "flipped"  # kept points were classified correctly in another batch
    REJECTED = "rejected"  # points of a foreign attack that do not count as misclassified
    PRECISION = "precision"  # the logits are too coarse for their margin
    RESOLUTION = "resolution"  # distances so small that rounding makes them read too large


# These say how a result was made; all others say that its distances may be too large.
_HARMLESS = frozenset(
    {
        Kind.TRAINING,
        Kind.VERSIONS,
        Kind.UNBROKEN,
        Kind.INTERRUPTED,
        Kind.EOT,
        Kind.RESOLUTION,
    }
)


@dataclass(frozen=True)
class Flag:
    """One warning, as a sentence.

    Args:
        kind: Subject of the flag.
        text: One sentence for the user.
    """

    kind: Kind
    text: str

    def __str__(self) -> str:
        return self.text

    @property
    def doubtful(self) -> bool:
        """Return whether the flag says that distances may be too large."""
        return self.kind not in _HARMLESS


def doubts(flags: Iterable[Flag]) -> tuple[Flag, ...]:
    """Return the flags of distances that may be too large; such models rank in brackets.

    Args:
        flags: Flags of an evaluation, or of several.
    """
    return tuple(flag for flag in flags if flag.doubtful)
