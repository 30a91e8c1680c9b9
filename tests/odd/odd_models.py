"""Odd classifiers around one small honest net, each with what must become of it."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import torch
from support.models import samples, tanh_mlp
from torch import nn
from torch.nn import functional
from torch.nn.utils import parametrizations
from torch.utils.checkpoint import checkpoint

if TYPE_CHECKING:
    from collections.abc import Callable

SHAPE, SEED = (1, 4, 4), 1
NET = tanh_mlp(SHAPE, hidden=8, classes=4, seed=SEED).requires_grad_(requires_grad=False)
with torch.no_grad():  # so that its logits, and not its biases alone, decide
    NET[1].weight.mul_(4)
    NET[3].weight.mul_(4)
IMAGES, LABELS = samples(NET, 6, SHAPE, seed=1)


class Made(nn.Module):
    """A module made of a function of (net, images)."""

    def __init__(self, function: Callable, net: nn.Module | None = None) -> None:
        super().__init__()
        self.net, self.function = copy.deepcopy(NET if net is None else net), function
        self.eval()

    def forward(self, images):
        return self.function(self.net, images)


@dataclass(frozen=True)
class Odd:
    """A model, and words that a flag or a refusal must have; without any, its distances are those
    of the net.
    """

    make: Callable[[], Callable]
    flagged: str | None = None
    refused: str | None = None
    run: str = "fmn"


def inplace_scale(net, x):
    x.mul_(2)
    return net(x / 2)


def inplace_normalise(net, x):
    x.sub_(0.5).div_(0.25)
    return net(x.mul_(0.25).add_(0.5))


def inplace_data(net, x):
    z = net(x)
    x.data.fill_(0.5)
    return z


def inplace_quietly(net, x):
    z = net(x.clone())
    with torch.no_grad():
        x.add_(0.3).clamp_(0, 1)
    return z


class Buffered(nn.Module):
    """Answers in the same memory each time."""

    def __init__(self):
        super().__init__()
        self.net, self.memory = copy.deepcopy(NET), {}
        self.eval()

    def forward(self, x):
        out = self.memory.setdefault(len(x), torch.empty(len(x), 4))
        return out.copy_(self.net(x).detach())


class ExtraState(nn.Module):
    """Keeps more than tensors."""

    def __init__(self):
        super().__init__()
        self.net, self.names = copy.deepcopy(NET), {"classes": ["a", "b"]}
        self.eval()

    def get_extra_state(self):
        return self.names

    def set_extra_state(self, state):
        self.names = state

    def forward(self, x):
        return self.net(x)


class Square(torch.autograd.Function):
    """x² with the right derivative, or one of its own."""

    @staticmethod
    def forward(ctx, x, backward):
        ctx.save_for_backward(x)
        ctx.own = backward
        return x * x

    @staticmethod
    def backward(ctx, gradient):
        (x,) = ctx.saved_tensors
        return ctx.own(2 * x * gradient), None


def with_backward(backward, net, x):
    return net(Square.apply(x.clamp(min=1e-6).sqrt(), backward))


def fails(error, _net=None, _x=None):
    raise error


class Counting(nn.Module):
    """Answers differently each time."""

    def __init__(self):
        super().__init__()
        self.net, self.calls = copy.deepcopy(NET), 0

    def forward(self, x):
        self.calls += 1
        return self.net(x) + 0.01 * self.calls * torch.eye(4)[self.calls % 4]


class Subclass(torch.Tensor):
    """A tensor with another name."""


def where_wrong(value, net, x):
    """The net's logits where it is right, nothing where it is not."""
    z = net(x)
    home = NET(IMAGES).argmax(1)[
        [int((image - IMAGES).flatten(1).abs().sum(1).argmin()) for image in x.detach()]
    ]
    return torch.where((z.argmax(1) == home)[:, None], z, value)


def shattered(net, x):
    s = 0.3 * torch.sin(1e4 * x)
    return net(x + s - s.detach())


def random_gradient(net, x):
    noise = torch.randn(SHAPE, generator=torch.Generator().manual_seed(0))
    fake = ((x - x.detach()) * noise).flatten(1).sum(1, keepdim=True)
    return net(x.detach()) + fake * torch.linspace(-1, 1, 4)


def rounded(levels, net, x):
    return net(x + ((x * levels).round() / levels - x).detach())


def autocast_inside(net, x):
    with torch.autocast("cpu", dtype=torch.float16):
        return net(x)


def inference_inside(net, x):
    with torch.inference_mode():
        return net(x)


def made_in_inference_mode():
    with torch.inference_mode():
        return tanh_mlp(SHAPE, hidden=8, classes=4, seed=1)


def lazy():
    return nn.Sequential(nn.Flatten(), nn.LazyLinear(4))


def int8():
    return torch.ao.quantization.quantize_dynamic(
        copy.deepcopy(NET), {nn.Linear}, dtype=torch.qint8
    )


def trainable():
    return copy.deepcopy(NET).requires_grad_(requires_grad=True)


def scripted(*, train=False):
    return torch.jit.script(nn.Sequential(copy.deepcopy(NET), nn.Dropout(0.5)).train(train))


def parametrised():
    net = copy.deepcopy(NET)
    parametrizations.weight_norm(net[1])
    return net


def answering(function):
    return partial(Made, function)


RIGHT = {
    "scales its input in place": Odd(answering(inplace_scale)),
    "normalises its input in place": Odd(answering(inplace_normalise)),
    "writes to the data of its input": Odd(answering(inplace_data)),
    "moves its input where nobody looks": Odd(answering(inplace_quietly)),
    "rectifies its input in place": Odd(
        lambda: nn.Sequential(nn.ReLU(inplace=True), copy.deepcopy(NET)).eval()
    ),
    "float64 logits": Odd(answering(lambda net, x: net(x).double())),
    "computes in float64": Odd(
        lambda: Made(lambda net, x: net(x.double()), copy.deepcopy(NET).double())
    ),
    "float64 weights": Odd(lambda: copy.deepcopy(NET).double()),
    "a dictionary with logits": Odd(answering(lambda net, x: {"logits": net(x), "features": x})),
    "a tuple of one": Odd(answering(lambda net, x: (net(x),))),
    "answers in its own memory": Odd(Buffered, run="square_min"),
    "keeps extra state": Odd(ExtraState),
    "scripted": Odd(scripted),
    "traced": Odd(lambda: torch.jit.trace(copy.deepcopy(NET), IMAGES)),
    "frozen": Odd(lambda: torch.jit.freeze(scripted())),
    "scripted inside a module": Odd(lambda: nn.Sequential(nn.Identity(), scripted()).eval()),
    "a function": Odd(lambda: NET.forward),
    "a partial": Odd(lambda: partial(lambda scale, x: scale * NET(x), 1.0)),
    "a function with trainable parameters": Odd(lambda: trainable().forward),
    "asks for the gradient of its input": Odd(answering(lambda net, x: net(x.requires_grad_()))),
    "checkpointed": Odd(answering(lambda net, x: checkpoint(net, x, use_reentrant=False))),
    "parametrised weights": Odd(parametrised),
    "data parallel": Odd(lambda: nn.DataParallel(copy.deepcopy(NET)).eval()),
    "logits that are not contiguous": Odd(answering(lambda net, x: net(x).t().contiguous().t())),
    "logits of another class": Odd(answering(lambda net, x: net(x).as_subclass(Subclass))),
    "a right backward pass of its own": Odd(answering(partial(with_backward, lambda g: g))),
    "huge logits": Odd(answering(lambda net, x: 1e6 * net(x))),
    "small logits": Odd(answering(lambda net, x: 1e-4 * net(x))),
    "dead classes": Odd(answering(lambda net, x: functional.pad(net(x), (0, 2), value=-9.0))),
    "an offset of 10": Odd(answering(lambda net, x: net(x) + 10)),
    "log-probabilities": Odd(answering(lambda net, x: net(x).log_softmax(1))),
}

FLAGGED = {
    "bfloat16 logits": Odd(
        answering(lambda net, x: net(x).bfloat16()), flagged="torch.bfloat16 logits"
    ),
    "float16 logits": Odd(answering(lambda net, x: net(x).half()), flagged="torch.float16 logits"),
    "computes in float16": Odd(
        lambda: Made(lambda net, x: net(x.half()), copy.deepcopy(NET).half()),
        flagged="torch.float16 logits",
    ),
    "float16 weights": Odd(lambda: copy.deepcopy(NET).half(), flagged="torch.float16 logits"),
    "autocast of its own": Odd(answering(autocast_inside), flagged="torch.float16 logits"),
    "an offset of 1e5": Odd(answering(lambda net, x: net(x) + 1e5), flagged="share a large offset"),
    "probabilities": Odd(
        answering(lambda net, x: net(x).softmax(1)), flagged="probabilities, not logits"
    ),
    "random": Odd(
        answering(lambda net, x: net(x) + 0.1 * torch.randn(len(x), 4)), flagged="is random"
    ),
    "answers differently each time": Odd(Counting, flagged="is random"),
    "statistics of the batch": Odd(
        answering(lambda net, x: net((x - x.mean(0)) / (x.std(0, correction=0) + 0.1))),
        flagged="other images of the batch",
    ),
    "rounds its input": Odd(
        answering(lambda net, x: net((x * 8).round() / 8)), flagged="used surrogate ones"
    ),
    "detaches its input": Odd(
        answering(lambda net, x: net(x.detach())), flagged="used surrogate ones"
    ),
    "detaches its input, trainable": Odd(
        lambda: Made(lambda net, x: net(x.detach()), trainable()).forward,
        flagged="used surrogate ones",
    ),
    "vanishing logits": Odd(
        answering(lambda net, x: 1e-16 * net(x)), flagged="no gradient on 100%"
    ),
    "gradients that are not finite": Odd(
        answering(lambda net, x: net(x) + (0 * x).sqrt().flatten(1)[:, :1]),
        flagged="gradient is not finite on 100%",
    ),
    "negated gradients": Odd(
        answering(lambda net, x: net(2 * x.detach() - x)), flagged="as its gradient says"
    ),
    "shattered gradients": Odd(answering(shattered), flagged="as its gradient says"),
    "random gradients": Odd(answering(random_gradient), flagged="as its gradient says"),
    "faint gradients": Odd(
        answering(lambda net, x: net(1e-3 * x + (0.999 * x).detach())),
        flagged="as its gradient says",
    ),
    "a negated backward pass": Odd(
        answering(partial(with_backward, torch.neg)), flagged="as its gradient says"
    ),
    "NaN where it would be wrong": Odd(
        answering(partial(where_wrong, torch.nan)), flagged="logits or gradients"
    ),
    "inf where it would be wrong": Odd(
        answering(partial(where_wrong, torch.inf)), flagged="logits or gradients"
    ),
    "NaN where it would be wrong, black box": Odd(
        answering(partial(where_wrong, torch.nan)), flagged="logits or gradients", run="square_min"
    ),
    "in train mode": Odd(
        lambda: nn.Sequential(copy.deepcopy(NET), nn.Dropout(0.5)).train(), flagged="train mode"
    ),
    "scripted in train mode": Odd(partial(scripted, train=True), flagged="train mode"),
}

REFUSED = {
    "without gradients": Odd(
        answering(torch.no_grad()(lambda net, x: net(x))), refused="no gradient with respect"
    ),
    "inference mode inside": Odd(answering(inference_inside), refused="no gradient with respect"),
    "int8 layers": Odd(int8, refused="no gradient with respect"),
    "made in inference mode": Odd(
        made_in_inference_mode, refused=r"inference_mode.*copy.deepcopy\(model\)"
    ),
    "a tuple": Odd(answering(lambda net, x: (net(x), x)), refused="returned tuple of 2"),
    "a dictionary": Odd(
        answering(lambda net, x: {"a": net(x), "b": x}), refused="returned dict of a, b"
    ),
    "nothing": Odd(answering(lambda _net, _x: None), refused="returned NoneType"),
    "an array": Odd(answering(lambda net, x: net(x).detach().numpy()), refused="returned ndarray"),
    "one number": Odd(
        answering(lambda net, x: net(x).sum()), refused=r"returned \(\) for 6 images"
    ),
    "one number per image": Odd(answering(lambda net, x: net(x)[:, 0]), refused=r"returned \(6,\)"),
    "one column": Odd(answering(lambda net, x: net(x)[:, :1]), refused=r"returned \(6, 1\)"),
    "a map of classes": Odd(
        answering(lambda net, x: net(x)[:, :, None, None]), refused=r"returned \(6, 4, 1, 1\)"
    ),
    "fewer rows": Odd(answering(lambda net, x: net(x)[1:]), refused=r"returned \(5, 4\)"),
    "fewer classes": Odd(
        answering(lambda net, x: net(x)[:, :2]), refused="the model has 2 classes"
    ),
    "integers": Odd(answering(lambda net, x: (10 * net(x)).long()), refused="returned torch.int64"),
    "complex numbers": Odd(
        answering(lambda net, x: torch.complex(net(x), net(x))), refused="returned torch.complex64"
    ),
    "a sparse tensor": Odd(
        answering(lambda net, x: net(x).to_sparse()), refused="expected a dense one"
    ),
    "a tensor without numbers": Odd(
        answering(lambda net, x: net(x).to("meta")), refused="expected a dense one"
    ),
    "NaN": Odd(answering(lambda net, x: net(x) * torch.nan), refused="not finite on clean images"),
    "one inf": Odd(
        answering(lambda net, x: net(x).index_fill(1, torch.tensor([3]), torch.inf)),
        refused="not finite",
    ),
    "a KeyError": Odd(
        answering(partial(fails, KeyError("x"))), refused=r"cannot take images .*KeyError: 'x'"
    ),
    "an OSError": Odd(answering(partial(fails, OSError("no file"))), refused="OSError: no file"),
    "a MemoryError": Odd(answering(partial(fails, MemoryError())), refused=r"\(MemoryError\)"),
    "an AssertionError": Odd(
        answering(partial(fails, AssertionError())), refused=r"\(AssertionError\)"
    ),
    "an end of the program": Odd(answering(partial(fails, SystemExit(3))), refused="SystemExit: 3"),
    "other arguments": Odd(lambda: lambda: NET(IMAGES), refused="TypeError"),
    "other images": Odd(
        lambda: tanh_mlp((3, 4, 4)), refused=r"cannot take images of shape \(6, 1, 4, 4\)"
    ),
    "fails backwards": Odd(
        answering(partial(with_backward, partial(fails, KeyError("slope")))),
        refused="backward pass failed.*'slope'",
    ),
    "lazy": Odd(lazy, refused="1.weight is not initialised"),
    "without weights": Odd(
        lambda: copy.deepcopy(NET).to("meta"), refused="1.weight is on the device meta"
    ),
    "changes what asks for gradients": Odd(
        answering(lambda net, x: net(x.requires_grad_(requires_grad=False))),
        refused="cannot take images",
    ),
}
