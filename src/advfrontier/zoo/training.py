"""Training of the zoo: seeded, resumable to the bit, on one thread; and its PGD.

Random numbers are drawn afresh for every step from (seed, stream, step), so a checkpoint needs no
generator's state: weights, the optimiser's two averages and the number of the step are all there
is.

PGD climbs inside a ball of known radius, where the loss is to be as large as possible. It is no
attack of the pool: those look for the nearest adversarial example.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Generator
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, kl_div, one_hot

from advfrontier.errors import FrontierError
from advfrontier.execution.tasks import threads
from advfrontier.progress import Progress
from advfrontier.threat.losses import margin, plain_ce
from advfrontier.threat.names import norm_name
from advfrontier.threat.norms import TINY, euclidean, make_norm
from advfrontier.zoo.architectures import build
from advfrontier.zoo.cards import Recipe

CHECKPOINT_SECONDS = 30.0  # between two checkpoints
_RAMP = 0.25  # share of the steps over which rate and radius grow
# The first step of PGD in radii; steps shrink linearly, so that five of them cover 1.8 radii.
REACH = 0.6
_COORDINATES = (
    20  # that an ℓ1 step moves: one only would need as many steps as there are features to change
)
_MEMORY, _FIRST_SCORE = 0.9, 1e-3  # of the ℓ0 scores


def total_steps(recipe: Recipe, samples: int) -> int:
    """Count the batches of the whole training; incomplete last batches are left out.

    Args:
        recipe: Recipe, with epochs and images per batch.
        samples: Number of training images.
    """
    return recipe.epochs * (samples // recipe.batch)


@threads(1)  # the order of summation, hence the last bit, depends on it
def fit(
    recipe: Recipe, images: Tensor, labels: Tensor, checkpoint: Path, progress: Progress
) -> nn.Module:
    """Train from the checkpoint if there is one, else from the start; images (n, 28, 28) uint8.

    Args:
        recipe: Recipe to train by.
        images: (n, 28, 28) uint8.
        labels: Class of every image, (n,).
        checkpoint: File that training resumes from and is stored in.
        progress: Counts the batches.
    """
    labels = labels.long()
    model = build(recipe.architecture, seed=recipe.seed)
    optimiser = torch.optim.AdamW(model.parameters(), lr=recipe.rate, weight_decay=recipe.decay)
    first = _restore(recipe, model, optimiser, checkpoint) if checkpoint.exists() else 0
    total = total_steps(recipe, len(images))
    per_epoch = len(images) // recipe.batch
    if not total:
        raise FrontierError(
            f"{len(images)} training images: expected at least one batch of {recipe.batch}"
        )
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
        for group in (
            optimiser.param_groups
        ):  # up over the first quarter of the training, down to zero over the rest
            group["lr"] = recipe.rate * min(share / _RAMP, (1 - share) / (1 - _RAMP))
        strength = min(1.0, (step + 1) / (_RAMP * total))
        loss = _loss(recipe, model, (x, y), step, strength)
        optimiser.zero_grad()
        torch.autograd.backward(loss)
        optimiser.step()
        progress.advance(1)
        if time.monotonic() - saved >= CHECKPOINT_SECONDS:
            _save(recipe, model, optimiser, checkpoint, step + 1)
            saved = time.monotonic()
    return model


def _loss(
    recipe: Recipe, model: nn.Module, batch: tuple[Tensor, Tensor], step: int, strength: float
) -> Tensor:
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

        near = pgd(
            model, x, y, norm, radius, steps=recipe.steps, generator=generator, loss=agreement
        )
        apart = kl_div(
            model(near).log_softmax(1), clean.log_softmax(1), reduction="batchmean", log_target=True
        )
        return cross_entropy(clean, y) + recipe.beta * apart
    if recipe.method == "calibrated":
        return _calibrated(recipe, model, batch, strength, generator)
    steps, reach = (1, 1.25) if recipe.method == "fast" else (recipe.steps, REACH)
    return cross_entropy(
        model(pgd(model, x, y, norm, radius, steps=steps, generator=generator, reach=reach)), y
    )


def _calibrated(
    recipe: Recipe,
    model: nn.Module,
    batch: tuple[Tensor, Tensor],
    strength: float,
    generator: torch.Generator,
) -> Tensor:
    """Return the loss of confidence-calibrated adversarial training.

    Stutz, Hein and Schiele: Confidence-Calibrated Adversarial Training: Generalizing to Unseen
    Attacks, ICML 2020, arXiv:1910.06259. PGD keeps within a random share of the radius, so that
    every size of perturbation is seen.

    Args:
        recipe: Recipe with one radius, the steps of PGD and rho.
        model: Network in training.
        batch: Images and labels, of which the first half stays clean.
        strength: Share of the radius in the present step of the training.
        generator: Random numbers of this step.
    """
    x, y = batch
    ((norm, radius),) = recipe.radii.items()
    half = len(x) // 2
    share = float(torch.rand((), generator=generator)) * strength
    within = share * radius
    moved = pgd(
        model,
        x[half:],
        y[half:],
        norm,
        within,
        steps=recipe.steps,
        generator=generator,
        loss=other_confidence,
    )
    size = make_norm(norm, x.shape[1:]).size((moved - x[half:]).flatten(1))
    left = (1 - size / radius).clamp_(0, 1) ** recipe.rho
    logits = model(torch.cat([x[:half], moved]))
    classes = logits.shape[1]
    labels = one_hot(y, classes).to(logits.dtype)
    weights = torch.cat([left.new_ones(half), left])[:, None]
    return cross_entropy(logits, weights * labels + (1 - weights) / classes)


def other_confidence(logits: Tensor, labels: Tensor) -> Tensor:
    """Return a loss that falls as some wrong class becomes more confident: (n,).

    It is minus the log-probability of the likeliest wrong class, whose confidence a point needs in
    order to be accepted.

    Args:
        logits: (n, classes).
        labels: (n,), the true classes.
    """
    return -logits.log_softmax(1).scatter(1, labels[:, None], -torch.inf).amax(1)


def _generator(seed: int, stream: str, index: int) -> torch.Generator:
    tag = hashlib.blake2b(f"{seed}/{stream}/{index}".encode(), digest_size=8).digest()
    return torch.Generator().manual_seed(int.from_bytes(tag, "little") >> 1)


def _save(
    recipe: Recipe, model: nn.Module, optimiser: torch.optim.Optimizer, path: Path, step: int
) -> None:
    tensors: dict[str, Tensor] = {}
    for name, weight in model.named_parameters():
        state = optimiser.state[weight]
        tensors |= {f"weight/{name}": weight.detach(), f"mean/{name}": state["exp_avg"]}
        tensors[f"square/{name}"] = state["exp_avg_sq"]
    # Renamed when complete: a training killed in the middle of writing finds the previous
    # checkpoint.
    unfinished = path.with_suffix(".unfinished")
    save_file(tensors, unfinished, metadata={"step": str(step), "recipe": recipe.text()})
    unfinished.replace(path)


def _restore(recipe: Recipe, model: nn.Module, optimiser: torch.optim.Optimizer, path: Path) -> int:
    try:
        with safe_open(path, framework="pt") as stored:
            about = stored.metadata() or {}
            tensors = {name: stored.get_tensor(name) for name in stored.keys()}  # noqa: SIM118 (not a mapping)
    except SafetensorError as error:
        raise FrontierError(
            f"{path} is no checkpoint ({error}): delete it to train from the start"
        ) from error
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


def pgd(
    model: nn.Module,
    images: Tensor,
    labels: Tensor,
    norm: str,
    radius: float,
    *,
    steps: int,
    generator: torch.Generator,
    loss: Callable[[Tensor, Tensor], Tensor] = plain_ce,
    reach: float = REACH,
    visit: Callable[[Tensor], None] | None = None,
) -> Tensor:
    """Return the last of `steps` points in each ball; `visit` gets the logits at every point.

    Args:
        model: From images in [0, 1] to logits.
        images: (n, 1, 28, 28) in [0, 1].
        labels: True classes, int64 (n,).
        norm: Name of the norm.
        radius: Radius of the balls, in units of the norm.
        steps: Number of steps.
        generator: Random numbers of the starting points.
        loss: From logits and labels to the loss to descend, (n,).
        reach: Length of the first step over the radius; steps shrink linearly.
        visit: Called with the logits at every point.
    """
    climb = _CLIMBS[norm_name(norm)](images.flatten(1), radius, generator)
    point = next(climb)
    for i in range(steps):
        probe = point.detach().requires_grad_()
        with torch.enable_grad():
            logits = model(probe.view_as(images))
            (gradient,) = torch.autograd.grad(-loss(logits, labels).sum(), probe)
        if visit is not None:
            visit(logits.detach())
        point = climb.send((gradient, reach * (1 - i / steps)))
    if visit is not None:
        with torch.no_grad():
            visit(model(point.view_as(images)))
    return point.view_as(images)


def survivors(
    model: nn.Module,
    images: Tensor,
    labels: Tensor,
    norm: str,
    radius: float,
    *,
    steps: int = 50,
    seed: int = 0,
) -> Tensor:
    """Return which images are classified correctly at every point that PGD visits.

    Args:
        model: From images in [0, 1] to logits.
        images: (n, 1, 28, 28) in [0, 1].
        labels: True classes, int64 (n,).
        norm: Name of the norm.
        radius: Radius of the balls, in units of the norm.
        steps: Steps of PGD.
        seed: Random seed of the starting points.
    """
    with torch.no_grad():
        standing: Tensor = model(images).argmax(1) == labels

    def visit(logits: Tensor) -> None:
        standing.logical_and_(logits.argmax(1) == labels)

    generator = torch.Generator().manual_seed(seed)
    pgd(
        model,
        images,
        labels,
        norm,
        radius,
        steps=steps,
        generator=generator,
        loss=margin,
        visit=visit,
    )
    return standing


# A climb inside the ball around flat inputs, cut off by the box [0, 1]: it begins at a random point
# and, sent a gradient and a length in radii, yields the next point uphill.
Climb = Generator[Tensor, tuple[Tensor, float], None]


def _linf(inputs: Tensor, radius: float, generator: torch.Generator) -> Climb:
    noise = torch.rand(inputs.shape, generator=generator).mul_(2 * radius).sub_(radius)
    point = noise.add_(inputs).clamp_(0, 1)
    while True:
        gradient, size = yield point
        moved = point + size * radius * gradient.sign()
        point = (inputs + (moved - inputs).clamp_(-radius, radius)).clamp_(0, 1)


def _l2(inputs: Tensor, radius: float, generator: torch.Generator) -> Climb:
    noise = torch.randn(inputs.shape, generator=generator)
    length = radius * torch.rand(len(noise), 1, generator=generator)
    point = noise.mul_(length / euclidean(noise)[:, None]).add_(inputs).clamp_(0, 1)
    while True:
        gradient, size = yield point
        length = euclidean(gradient)[:, None].clamp_(min=TINY)
        change = point + size * radius * gradient / length - inputs
        point = (
            inputs + make_norm("L2", inputs.shape[1:]).project(change, _radii(inputs, radius))
        ).clamp_(0, 1)


def _l1(inputs: Tensor, radius: float, generator: torch.Generator) -> Climb:
    """Climb in ℓ1: begin with as many features as the radius allows, half of them random.

    A step moves the steepest features that have room, all by the same length; then it projects
    exactly onto ball and box.
    """
    noise = torch.rand(inputs.shape, generator=generator)
    chosen = noise >= noise.topk(max(int(radius), 1), dim=1).values[:, -1:]
    values = torch.rand(inputs.shape, generator=generator)
    point = torch.where(chosen & (values < 0.5), 2 * values, inputs)
    while True:
        gradient, size = yield point
        room = torch.where(gradient > 0, 1 - point, point)
        steepest = (gradient.abs() * (room > 0)).topk(_COORDINATES, dim=1).indices
        signs = gradient.sign().gather(1, steepest)
        moved = torch.zeros_like(point).scatter_(1, steepest, size * radius / _COORDINATES * signs)
        point = inputs + make_norm("L1", inputs.shape[1:]).project_in_box(
            point + moved - inputs, _radii(inputs, radius), inputs
        )


def _l0(inputs: Tensor, radius: float, generator: torch.Generator) -> Climb:
    """Climb in ℓ0: a value per feature, and a score; the highest positive scores change.

    Values climb the gradient from random ones. If features went straight to the ends of the box, a
    model could learn to resist those two values and no others.
    """
    values = torch.rand(inputs.shape, generator=generator)
    scores = _FIRST_SCORE * torch.rand(inputs.shape, generator=generator)
    while True:
        kept = make_norm("L0", inputs.shape[1:]).project(
            scores.clamp(min=0), _radii(inputs, radius)
        )
        gradient, size = yield torch.where(kept > 0, values, inputs)
        values.add_(gradient.sign(), alpha=size / 2).clamp_(0, 1)
        gain = gradient * (values - inputs)
        gain.div_(gain.abs().amax(1, keepdim=True).clamp_(min=TINY))
        scores.mul_(_MEMORY).add_(gain, alpha=1 - _MEMORY)


def _radii(inputs: Tensor, radius: float) -> Tensor:
    return torch.full((len(inputs),), radius, dtype=inputs.dtype)


_CLIMBS = {"Linf": _linf, "L2": _l2, "L1": _l1, "L0": _l0}
