"""Attacks of another library and one of your own as runs: traced, allocated, evaluated."""

import torch
from torch import Tensor, nn

from advfrontier import allocate, evaluate, trace

DEEPFOOL = "foolbox:L2DeepFoolAttack?steps=50"
BOUNDARY = "foolbox:BoundaryAttack"  # it would take 25,000 steps if it were not stopped
MINE = "callable:signs"


def signs(model: nn.Module, images: Tensor, labels: Tensor, eps: float) -> Tensor:
    """Take one step of length eps along the gradient; advfrontier searches over eps."""
    points = images.clone().requires_grad_()
    loss = nn.functional.cross_entropy(model(points), labels, reduction="sum")
    (gradient,) = torch.autograd.grad(loss, points)
    sizes = gradient.flatten(1).norm(dim=1).view(-1, 1, 1, 1)
    return (images + eps * gradient / sizes).clamp(0, 1)


if __name__ == "__main__":
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Flatten(), nn.Linear(64, 100), nn.Tanh(), nn.Linear(100, 10)
    ).eval()  # yours, trained
    images = torch.rand(20, 1, 8, 8)
    labels = model(images).argmax(1)

    runs, given = ["ddn", "fmn", DEEPFOOL, BOUNDARY, MINE], {MINE: signs}
    traces = trace(model, images, labels, norm="L2", runs=runs, solvers=given)
    (ensemble,) = allocate([traces], budgets=(1000,))
    print(f"the best 1000 queries: {ensemble.queries}, AOI {ensemble.aoi:.3f}")

    evaluation = evaluate(model, images, labels, norm="L2", ensemble=ensemble, solvers=given)
    print(f"{evaluation.counts['attack'] / len(images):.0f} queries per sample")
