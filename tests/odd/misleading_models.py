"""Wrappers of an honest network that mislead attacks, and honest ones that look odd.

Every wrapper is a function of (network, clean images) that returns a model. Where it keeps the
network's answers, the distances of the model are those of the network. Where it changes them, by
steps or waves, `nearest_on_rays` bounds the distances from above.
"""

from __future__ import annotations

from itertools import count

import torch
from torch import nn
from torch.nn import functional


class Backward(torch.autograd.Function):
    """The identity, with a backward pass of its own."""

    @staticmethod
    def forward(ctx, x, change):
        ctx.save_for_backward(x)
        ctx.change = change
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        (x,) = ctx.saved_tensors
        return ctx.change(gradient, x), None


class Wrapped(nn.Module):
    """A network whose answers are made by a function of (network, images)."""

    def __init__(self, net, function):
        super().__init__()
        self.net, self.function = net, function
        self.eval()

    def forward(self, x):
        return self.function(self.net, x)


def gradient(change):
    """Change the gradient with respect to the images, a function of (gradient, images)."""
    return lambda net, _clean: Wrapped(net, lambda net, x: net(Backward.apply(x, change)))


def answer(function):
    """Make another model of (network, images)."""
    return lambda net, _clean: Wrapped(net, function)


def images(function):
    """Change the images before the network sees them."""
    return answer(lambda net, x: net(function(x)))


def near_clean(radius, change):
    """Keep the gradient within so much of a clean image in ℓ∞, and change it farther away."""

    def make(net, clean):
        def changed(g, x):
            apart = torch.cdist(x.flatten(1), clean.to(x).flatten(1), p=float("inf"))
            near = apart.amin(1).view(-1, *[1] * (x.ndim - 1)) <= radius
            return torch.where(near, g, change(g, x))

        return Wrapped(net, lambda net, x: net(Backward.apply(x, changed)))

    return make


def first_calls(calls, change):
    """Keep the gradient for so many calls, and change it later."""

    def make(net, _clean):
        number = count()

        def function(net, x):
            return net(x if next(number) < calls else Backward.apply(x, change))

        return Wrapped(net, function)

    return make


def some_images(change):
    """Change the gradient of the brighter half of the images."""

    def make(net, clean):
        middle = clean.flatten(1).mean(1).median()

        def changed(g, x):
            bright = (x.flatten(1).mean(1) > middle).view(-1, *[1] * (x.ndim - 1))
            return torch.where(bright, change(g, x), g)

        return Wrapped(net, lambda net, x: net(Backward.apply(x, changed)))

    return make


def negated(g, _x):
    return -g


def zero(g, _x):
    return torch.zeros_like(g)


def drawn(shape, seed=0):
    return torch.rand(shape, generator=torch.Generator().manual_seed(seed))


def random_fixed(g, _x):
    return g.flatten(1).norm(dim=1).view(-1, *[1] * (g.ndim - 1)) * (drawn(g.shape[1:]) - 0.5)


def random_fresh(g, _x):
    return g.abs() * torch.randn_like(g)


def noisy(g, _x):
    scale = g.flatten(1).std(1).view(-1, *[1] * (g.ndim - 1))
    return g + 3 * scale * torch.randn_like(g)


def off_levels(change):
    """Keep the gradient at 8-bit images, and change it elsewhere."""

    def changed(g, x):
        levels = ((x * 255 - (x * 255).round()).abs().flatten(1) < 1e-3).all(1)
        return torch.where(levels.view(-1, *[1] * (x.ndim - 1)), g, change(g, x))

    return changed


def left_half(g, _x):
    kept = g.clone()
    kept[..., g.shape[-1] // 2 :] = 0
    return kept


def without_border(g, _x):
    kept = torch.zeros_like(g)
    kept[..., 2:-2, 2:-2] = g[..., 2:-2, 2:-2]
    return kept


def checkerboard(g, _x):
    place = torch.arange(g.shape[-1])
    return torch.where((place[:, None] + place) % 2 == 0, g, -g)


def scattered(share, factor):
    def changed(g, _x):
        return torch.where(drawn(g.shape[1:], seed=3) < share, factor * g, g)

    return changed


def shattered(frequency):
    def function(x):
        wave = 0.3 * torch.sin(frequency * x)
        return x + wave - wave.detach()

    return images(function)


def steps(levels, slope):
    """Rise in steps, between which the images move with another slope."""

    def function(x):
        level = ((x * levels).round() / levels).detach()
        return level + slope * (x - level)

    return images(function)


def waves(frequency):
    """Add waves, on which every pixel falls and rises again."""
    return images(lambda x: x + 3 / frequency * torch.sin(frequency * x))


def dithered(levels):
    """Round to levels after a fixed pattern is added; the backward pass is that of the identity."""

    def function(x):
        level = (x * levels + drawn(x.shape[1:], seed=5)).floor() / levels
        return x + (level - x).detach()

    return images(function)


def hidden_dither(levels):
    """Round to levels after a pattern that the image itself decides."""

    def function(x):
        pattern = (torch.sin(x.detach() * 12345.678) * 43758.5453).frac().abs()
        level = (x * levels + pattern).floor() / levels
        return x + (level - x).detach()

    return images(function)


def straight_through(levels):
    """Round to levels; the backward pass is that of the identity."""
    return images(lambda x: x + ((x * levels).round() / levels - x).detach())


def blurred_backward(net, x):
    smooth = net(functional.avg_pool2d(x, 3, 1, 1))
    return smooth + (net(x) - smooth).detach()


def other_classes(net, x):
    z = net(x)
    return z.detach() + (z - z.detach()).roll(1, 1)


def saturated(net, x):
    return 10 * (100 * net(x)).softmax(1)


def decaying(net, x):
    z = net(x)
    return 10 * (3 * (z - z.detach().amax(1, keepdim=True))).exp()


MISLEADING = {
    "negated": gradient(negated),
    "a thousandth": gradient(lambda g, _x: 1e-3 * g),
    "zero": gradient(zero),
    "absolute values": gradient(lambda g, _x: g.abs()),
    "shifted by a pixel": gradient(lambda g, _x: g.roll(1, -1)),
    "mirrored": gradient(lambda g, _x: g.flip(-1)),
    "random, always the same": gradient(random_fixed),
    "random, always another": gradient(random_fresh),
    "noisy": gradient(noisy),
    "shattered": shattered(1e4),
    "shattered slowly": shattered(50.0),
    "negated off the levels": gradient(off_levels(negated)),
    "zero off the levels": gradient(off_levels(zero)),
    "negated beyond half a level": near_clean(0.5 / 255, negated),
    "negated beyond 0.02": near_clean(0.02, negated),
    "zero beyond 0.02": near_clean(0.02, zero),
    "random beyond 0.02": near_clean(0.02, random_fresh),
    "left half alone": gradient(left_half),
    "without the border": gradient(without_border),
    "a checkerboard negated": gradient(checkerboard),
    "zero in a quarter of the pixels": gradient(scattered(0.25, 0.0)),
    "negated in a fifth of the pixels": gradient(scattered(0.2, -1.0)),
    "negated after 20 calls": first_calls(20, negated),
    "negated after 100 calls": first_calls(100, negated),
    "zero after 100 calls": first_calls(100, zero),
    "of a blurred image": answer(blurred_backward),
    "of other classes": answer(other_classes),
    "saturated": answer(saturated),
    "decaying": answer(decaying),
    "of bright images negated": some_images(negated),
    "fine steps that fall between": steps(1000, -0.5),
    "steps of a level that fall between": steps(255, -0.5),
    "coarse steps that fall between": steps(32, -0.5),
    "fine steps that are nearly flat": steps(1000, 0.05),
    "coarse steps that are nearly flat": steps(32, 0.05),
    "fine waves": waves(2e3),
    "coarse waves": waves(300.0),
    "quantised to 16 levels": images(lambda x: (16 * x).round() / 16),
    "quantised to 64 levels, straight through": straight_through(64),
    "dithered to 16 levels": dithered(16),
    "dithered to 64 levels by the image": hidden_dither(64),
    "detached": answer(lambda net, x: net(x.detach())),
}

HONEST = {
    "plain": answer(lambda net, x: net(x)),
    "8 bits, straight through": straight_through(255),
    "steep": answer(lambda net, x: 1e3 * net(x)),
    "flat": answer(lambda net, x: 1e-3 * net(x)),
    "log-probabilities": answer(lambda net, x: net(x).log_softmax(1)),
    "smooth input": images(lambda x: x + 0.02 * torch.sin(6 * x)),
}


@torch.no_grad()
def nearest_on_rays(model, clean, labels, points):
    """Return how far along the rays from the images through these points a model is wrong.

    1 is the point itself; inf where the model is right on the whole ray.
    """
    best = torch.full((len(clean),), torch.inf, dtype=torch.float64)
    for stretch in (1.0, 1.002, 1.005, 1.01, 1.02, 1.04, 1.08, 1.15, 1.3, 1.6, 2.0):
        tried = (clean + stretch * (points - clean)).clamp(0, 1)
        wrong = model(tried).argmax(1) != labels
        best = torch.where(wrong & best.isinf(), stretch, best)
    return best.numpy()
