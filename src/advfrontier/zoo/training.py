"""Training the models of the zoo: seeded, resumable to the bit, on one thread.

Random numbers are drawn afresh for every step from (seed, stream, step), so a checkpoint needs no generator's state:
weights, the optimiser's two averages and the number of the step are all there is.
"""

from __future__ import annotations

import hashlib
import time
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, kl_div

from advfrontier.errors import FrontierError
from advfrontier.execution.tasks import threads
from advfrontier.progress import Progress
from advfrontier.zoo.architectures import build
from advfrontier.zoo.attacks import REACH, pgd
from advfrontier.zoo.cards import Recipe

_SECONDS = 30.0  # between two checkpoints
_RAMP = 0.25  # share of the steps over which rate and radius grow


def total_steps(recipe: Recipe, samples: int) -> int:
    """Batches of the whole training; an epoch's incomplete last batch is left out."""
    return recipe.epochs * (samples // recipe.batch)


@threads(1)  # the order of summation, hence the last bit, depends on it
def fit(recipe: Recipe, images: Tensor, labels: Tensor, checkpoint: Path, progress: Progress) -> nn.Module:
    """Train from the checkpoint on if there is one, else from the start; images (n, 28, 28) uint8."""
    labels = labels.long()
    model = build(recipe.architecture, seed=recipe.seed)
    optimiser = torch.optim.AdamW(model.parameters(), lr=recipe.rate, weight_decay=recipe.decay)
    first = _restore(recipe, model, optimiser, checkpoint) if checkpoint.exists() else 0
    total = total_steps(recipe, len(images))
    per_epoch = len(images) // recipe.batch
    if not total:
        raise FrontierError(f"{len(images)} training images: expected at least one batch of {recipe.batch}")
    if first:
        progress.advance(first)
    saved, epoch, order = time.monotonic(), -1, labels
    for step in range(first, total):
        if step // per_epoch != epoch:
            epoch = step // per_epoch
            order = torch.randperm(len(images), generator=_generator(recipe.seed, "epoch", epoch))
        place = step % per_epoch * recipe.batch
        rows = order[place : place + recipe.batch]
        x, y = images[rows].float().div_(255)[:, None], labels[rows]
        share = (step + 0.5) / total
        for group in optimiser.param_groups:  # up over the first quarter of the training, down to zero over the rest
            group["lr"] = recipe.rate * min(share / _RAMP, (1 - share) / (1 - _RAMP))
        strength = min(1.0, (step + 1) / (_RAMP * total))
        loss = _loss(recipe, model, (x, y), step, strength)
        optimiser.zero_grad()
        torch.autograd.backward(loss)
        optimiser.step()
        progress.advance(1)
        if time.monotonic() - saved >= _SECONDS:
            _save(recipe, model, optimiser, checkpoint, step + 1)
            saved = time.monotonic()
    return model


def _loss(recipe: Recipe, model: nn.Module, batch: tuple[Tensor, Tensor], step: int, strength: float) -> Tensor:
    x, y = batch
    generator = _generator(recipe.seed, "step", step)
    if recipe.method == "plain":
        return cross_entropy(model(x), y)
    if recipe.method == "noise":
        noise = torch.randn(x.shape, generator=generator)
        return cross_entropy(model((x + recipe.sigma * noise).clamp_(0, 1)), y)
    norm = tuple(recipe.radii)[step % len(recipe.radii)]
    radius = recipe.radii[norm] * strength
    if recipe.method == "trades":
        clean = model(x)
        wanted = clean.detach().log_softmax(1)

        def agreement(logits: Tensor, _labels: Tensor) -> Tensor:
            return -kl_div(logits.log_softmax(1), wanted, reduction="none", log_target=True).sum(1)

        near = pgd(model, x, y, norm, radius, steps=recipe.steps, generator=generator, loss=agreement)
        apart = kl_div(model(near).log_softmax(1), clean.log_softmax(1), reduction="batchmean", log_target=True)
        return cross_entropy(clean, y) + recipe.beta * apart
    steps, reach = (1, 1.25) if recipe.method == "fast" else (recipe.steps, REACH)
    return cross_entropy(model(pgd(model, x, y, norm, radius, steps=steps, generator=generator, reach=reach)), y)


def _generator(seed: int, stream: str, index: int) -> torch.Generator:
    tag = hashlib.blake2b(f"{seed}/{stream}/{index}".encode(), digest_size=8).digest()
    return torch.Generator().manual_seed(int.from_bytes(tag, "little") >> 1)


def _save(recipe: Recipe, model: nn.Module, optimiser: torch.optim.Optimizer, path: Path, step: int) -> None:
    tensors: dict[str, Tensor] = {}
    for name, weight in model.named_parameters():
        state = optimiser.state[weight]
        tensors |= {f"weight/{name}": weight.detach(), f"mean/{name}": state["exp_avg"]}
        tensors[f"square/{name}"] = state["exp_avg_sq"]
    # Renamed when complete: a training killed in the middle of writing finds the previous checkpoint.
    unfinished = path.with_suffix(".unfinished")
    save_file(tensors, unfinished, metadata={"step": str(step), "recipe": recipe.text()})
    unfinished.replace(path)


def _restore(recipe: Recipe, model: nn.Module, optimiser: torch.optim.Optimizer, path: Path) -> int:
    try:
        with safe_open(path, framework="pt") as stored:
            about = stored.metadata() or {}
            tensors = {name: stored.get_tensor(name) for name in stored.keys()}  # noqa: SIM118 (not a mapping)
    except SafetensorError as error:
        raise FrontierError(f"{path} is no checkpoint ({error}): delete it to train from the start") from error
    if about.get("recipe") != recipe.text():
        raise FrontierError(f"{path} belongs to another recipe: delete it to train from the start")
    step = int(about["step"])
    for name, weight in model.named_parameters():
        with torch.no_grad():
            weight.copy_(tensors[f"weight/{name}"])
        optimiser.state[weight] = {
            "step": torch.tensor(float(step)),
            "exp_avg": tensors[f"mean/{name}"],
            "exp_avg_sq": tensors[f"square/{name}"],
        }
    return step
