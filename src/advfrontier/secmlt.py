"""A bridge to secml-torch: its models and data loaders in, curves out.

    from advfrontier.secmlt import evaluate

    evaluation = evaluate(model, data_loader, norm="Linf")

Its attacks are runs: `secmlt:PGD?num_steps=50&backend=native`.
"""

from __future__ import annotations

from typing import Any, Protocol

from torch import Tensor, nn

from advfrontier.errors import FrontierError
from advfrontier.evaluation.evaluate import evaluate as _evaluate
from advfrontier.evaluation.evaluation import Evaluation
from advfrontier.evaluation.inputs import Images


class SecmltModel(Protocol):
    """A model of secml-torch, such as `BasePyTorchClassifier`."""

    def decision_function(self, x: Tensor) -> Tensor:
        """Return logits, with pre- and postprocessing.

        Args:
            x: Images, (n, …).
        """


class Logits(nn.Module):
    """A model of secml-torch as a module from images to logits.

    Args:
        model: Model, whose pre- and postprocessing are kept.
    """

    def __init__(self, model: SecmltModel) -> None:
        super().__init__()
        self.wrapped = model
        inner = getattr(model, "model", None)
        if isinstance(inner, nn.Module):
            self.inner = inner  # so that its device, precision and digest are seen
        self.eval()

    def forward(self, images: Tensor) -> Tensor:
        """Return the logits.

        Args:
            images: (n, …) in [0, 1].
        """
        return self.wrapped.decision_function(images)


def evaluate(
    model: SecmltModel, data: Images, *, norm: str | list[str] = "Linf", **options: Any
) -> Evaluation | dict[str, Evaluation]:
    """Evaluate a model of secml-torch.

    Args:
        model: Classifier of SecML-Torch.
        data: A DataLoader or Dataset of images in [0, 1] and labels.
        norm: Name of the norm, or a list of norms.
        options: The other arguments of `advfrontier.evaluate`.

    Returns:
        The evaluation; for a list of norms, norm to evaluation.
    """
    if not callable(getattr(model, "decision_function", None)):
        raise FrontierError(
            f"{type(model).__name__} is no model of secml-torch: expected one with "
            "decision_function, such as BasePyTorchClassifier(net)"
        )
    options.setdefault("name", type(getattr(model, "model", model)).__name__)
    found: Evaluation | dict[str, Evaluation] = _evaluate(Logits(model), data, norm=norm, **options)
    return found
