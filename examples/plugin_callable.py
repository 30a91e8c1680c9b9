"""Measure two attacks of Foolbox, one of them black-box, like runs of the pool."""

import foolbox
import torch
from torch import Tensor, nn

from advfrontier import allocate, trace
from advfrontier.evaluation.callable import run_callable


def deepfool(model: nn.Module, images: Tensor, labels: Tensor) -> Tensor:
    """Run DeepFool; its model is a stand-in that counts."""
    bounded = foolbox.PyTorchModel(model, bounds=(0, 1), device=images.device)
    _, clipped, _ = foolbox.attacks.L2DeepFoolAttack(steps=50)(
        bounded, images, labels, epsilons=None
    )
    return clipped


def boundary(model: nn.Module, images: Tensor, labels: Tensor) -> Tensor:
    """Run the boundary attack, black-box, of 25 000 steps if it were not stopped."""
    bounded = foolbox.PyTorchModel(model, bounds=(0, 1), device=images.device)
    _, clipped, _ = foolbox.attacks.BoundaryAttack()(bounded, images, labels, epsilons=None)
    return clipped


if __name__ == "__main__":
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Flatten(), nn.Linear(64, 100), nn.Tanh(), nn.Linear(100, 10)
    ).eval()  # yours, trained
    images = torch.rand(20, 1, 8, 8)
    labels = model(images).argmax(1)

    traces = trace(model, images, labels, norm="L2", runs=["ddn", "fmn"])
    for name, attack in {"deepfool": deepfool, "boundary": boundary}.items():
        found = run_callable(attack, model, images, labels, name=name, norm="L2")
        print(f"{name}: {found.traces.counts['attack'] / len(images):.0f} queries per sample")
        traces = traces.join(found.traces)

    (ensemble,) = allocate([traces], budgets=(1000,))
    print(f"the best 1000 queries: {ensemble.queries}, AOI {ensemble.aoi:.3f}")
