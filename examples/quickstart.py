"""Train a small classifier on noisy stripes, attack it in ℓ2, and read off its curve."""

import numpy as np
import torch
from torch import nn

from advfrontier import trace
from advfrontier.frontier import Curve, aoi, contributions

torch.manual_seed(0)
torch.set_num_threads(1)


def stripes(samples: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Grey 8×8 images of stripes in four directions, under noise."""
    labels = torch.arange(samples) % 4
    y, x = torch.meshgrid(torch.arange(8.0), torch.arange(8.0), indexing="ij")
    waves = torch.stack([torch.sin(direction) for direction in (x, y, x + y, x - y)])
    phase = torch.randint(0, 8, (samples,)).tolist()
    clean = torch.stack(
        [waves[label].roll(shift, 0) for label, shift in zip(labels, phase, strict=True)]
    )
    return (0.5 + 0.25 * clean[:, None] + 0.1 * torch.randn(samples, 1, 8, 8)).clamp(0, 1), labels


images, labels = stripes(2000)
model = nn.Sequential(
    nn.Conv2d(1, 16, 3), nn.ReLU(), nn.Conv2d(16, 16, 3), nn.ReLU(), nn.Flatten(), nn.Linear(256, 4)
)
optimiser = torch.optim.Adam(model.parameters(), lr=3e-3)
for _ in range(10):
    for batch in torch.randperm(len(images)).split(100):
        optimiser.zero_grad()
        nn.functional.cross_entropy(model(images[batch]), labels[batch]).backward()
        optimiser.step()

images, labels = stripes(100)
traces = trace(
    model, images, labels, norm="L2", runs=["fmn", "apgd_min-dlr", "alma", "fmn:restart1"]
)

print("median distance after", *traces.queries[[9, 29, 99]], "queries")
for run, distances in zip(traces.runs, traces.distances, strict=True):
    print(f"  {run:14s}", *(f"{np.median(d):8.4f}" for d in distances[[9, 29, 99]]))

frontier = traces.frontier()
curve = Curve.of(frontier)
print(
    "robust accuracy of the four together:",
    ", ".join(f"{curve.at(ε):.0%} at {ε}" for ε in (0, 0.25, 0.5, 1)),
)
print("AOI of fmn alone:", f"{aoi(traces.at(1000)[0], frontier).value:.3f}")
for share in contributions(dict(zip(traces.runs, traces.at(1000), strict=True))):
    print(f"  {share.run:14s} on the frontier for {share.wins:3d} samples, alone for {share.alone}")
print("passes through the model:", dict(traces.counts))
