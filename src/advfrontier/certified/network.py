"""Model as a list of steps, each affine or a ReLU, through which linear bounds are carried.

The model is followed once, operation by operation, on one image. Whatever Python wraps around them,
only operations of the lists below are accepted, so a network of convolutions, linear layers, ReLUs,
averages, shortcuts and normalisations of known statistics passes, and anything else is refused by
its name. A model that looks at its input to decide what to do cannot be followed, and one that
draws random numbers is refused too. What it computes outside torch would pass for a constant, so
the steps must give the model's own answers on all images and on random ones.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from copy import deepcopy
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.fx.experimental.proxy_tensor import make_fx
from torch.fx.node import Node, map_arg
from torch.nn.functional import pad

from advfrontier.engine.oracle import logits_of
from advfrontier.errors import FrontierError

Relu = Callable[[int, Tensor], tuple[Tensor, Tensor]]

# Affine in all of their tensors together.
_JOINT = {
    "add",
    "sub",
    "rsub",
    "neg",
    "cat",
    "stack",
    "alias",
    "clone",
    "t",
    "transpose",
    "permute",
    "view",
    "reshape",
    "_unsafe_view",
    "flatten",
    "unsqueeze",
    "squeeze",
    "expand",
    "slice",
    "select",
    "constant_pad_nd",
    "mean",
    "sum",
    "pixel_shuffle",
    "pixel_unshuffle",
    "avg_pool1d",
    "avg_pool2d",
    "avg_pool3d",
    "_adaptive_avg_pool2d",
}
# Affine in the argument of this number, if all others are constant.
_SINGLE = {
    "convolution": 0,
    "addmm": 1,
    "mm": 0,
    "linear": 0,
    "div": 0,
    "native_batch_norm": 0,
    "_native_batch_norm_legit_no_training": 0,
}
_AT_ONCE = 20  # images in one pass
NUMBERS_AT_ONCE = 8_000_000  # in the largest tensor of coefficients
_SUPPORTED = (
    "convolutions, linear layers, ReLU, average pooling, sums of branches, and fixed normalisation"
)


@dataclass(frozen=True, eq=False)
class Step:
    """One operation on the values of earlier steps, of one sample each; step 0 is the image.

    Args:
        inputs: Places of the steps that it reads, each before its own.
        shape: Shape of its value, for one sample.
        apply: An affine function of the inputs' values; None for the image and for a ReLU.
        steepest: The same function with the absolute values of all constants; bounds how much a
            value can move.
        zeros: Zeros of the shapes of its inputs.
        constant: Value of the affine function at these zeros.
    """

    inputs: tuple[int, ...]
    shape: torch.Size
    apply: Callable[..., Tensor] | None = None
    steepest: Callable[..., Tensor] | None = None
    zeros: tuple[Tensor, ...] = ()
    constant: Tensor = torch.zeros(())  # noqa: RUF009  # the value of an affine function there

    @property
    def relu(self) -> bool:
        """Return whether the step is a ReLU."""
        return self.apply is None and bool(self.inputs)

    def forward(self, *values: Tensor) -> Tensor:
        """Return the affine function of many samples."""
        out: Tensor = torch.vmap(self.apply)(*values)  # type: ignore[arg-type]
        return out

    def spread(self, *radii: Tensor) -> Tensor:
        """Bound the distance of the value from its centre if inputs are within their radii.

        Args:
            radii: Bound of each input's distance from its centre, of the input's shape.
        """
        assert self.steepest is not None  # noqa: S101
        steepest, base, total = self.steepest, self.steepest(*self.zeros), torch.zeros(())
        for k, radius in enumerate(radii):
            before, after = self.zeros[:k], self.zeros[k + 1 :]
            alone = torch.vmap(lambda r, b=before, a=after: steepest(*b, r, *a))(radius)
            total = total + (alone - base).abs_()
        return total

    def transpose(self, coefficients: Tensor) -> tuple[Tensor, ...]:
        """Carry coefficients of the step's value to coefficients of each of its inputs.

        Args:
            coefficients: (rows, …), one coefficient per number of the step's value.
        """
        pull = torch.func.vjp(self.apply, *self.zeros)[1]  # type: ignore[arg-type]
        out: tuple[Tensor, ...] = torch.vmap(pull)(coefficients)
        return out


class Network:
    """All steps from the image to the logits, each after those it needs.

    Args:
        steps: Steps in order; the first is the image, the last the logits.
    """

    def __init__(self, steps: list[Step]) -> None:
        self.steps = steps
        self.at_once = max(
            1, NUMBERS_AT_ONCE // max(step.shape.numel() for step in steps)
        )  # rows of coefficients
        self._direct: dict[int, tuple[Tensor, Tensor, Tensor]] = {}

    def answer(self, images: Tensor) -> Tensor:
        """Return the logits of images (n, features), step by step.

        Args:
            images: (n, features).
        """
        values = {0: images.view(len(images), *self.steps[0].shape)}
        for place, step in enumerate(self.steps[1:], start=1):
            inputs = [values[k] for k in step.inputs]
            values[place] = (
                inputs[0].clamp(min=0).view(-1, *step.shape) if step.relu else step.forward(*inputs)
            )
        return values[len(self.steps) - 1].flatten(1)

    def carry(
        self, place: int, wanted: Tensor, through_relu: Relu | None = None
    ) -> tuple[Tensor, Tensor]:
        """Carry coefficients of a step's value to the image, and return the constant beside them.

        Args:
            place: Place of the step among all steps; 0 is the image.
            wanted: (rows, numbers in the step's value), coefficients of that value.
            through_relu: Function from the place of a ReLU and the coefficients of its output to
                the coefficients of its input and a constant; None where no ReLU comes before the
                step.
        """
        carried = {place: wanted.view(len(wanted), *self.steps[place].shape)}
        constant = torch.zeros(len(wanted), dtype=torch.float64)
        for k in range(place, 0, -1):
            if (coefficients := carried.pop(k, None)) is None:
                continue
            step = self.steps[k]
            if step.relu:
                assert through_relu is not None  # noqa: S101  # the caller says that there is no ReLU
                part, more = through_relu(k, coefficients)
                parts: tuple[Tensor, ...] = (part,)
            else:
                parts, more = (
                    step.transpose(coefficients),
                    (coefficients * step.constant).flatten(1).sum(1),
                )
            constant += more
            for source, part in zip(step.inputs, parts, strict=True):
                carried[source] = carried[source] + part if source in carried else part
        return carried[0].flatten(1), constant

    def direct(self, place: int) -> tuple[Tensor, Tensor, Tensor]:
        """Return a step's value before any ReLU as slopes, their features, and constants.

        A convolution sees few features, so only as many are kept as the widest row needs.

        Args:
            place: Place of the step among all steps.
        """
        if place not in self._direct:
            size, parts = self.steps[place].shape.numel(), []
            for units in torch.split(torch.arange(size), self.at_once):
                wanted = torch.zeros(len(units), size, dtype=torch.float64).scatter_(
                    1, units[:, None], 1.0
                )
                slopes, constants = self.carry(place, wanted)
                columns = (
                    slopes.abs().topk(int((slopes != 0).sum(1).max().clamp(min=1)), dim=1).indices
                )
                parts.append((slopes.gather(1, columns), columns, constants))
            widest = max(slopes.shape[1] for slopes, _, _ in parts)
            padded = [
                (
                    pad(slopes, (0, widest - slopes.shape[1])),
                    pad(columns, (0, widest - columns.shape[1])),
                    constants,
                )
                for slopes, columns, constants in parts
            ]
            slopes, columns, constants = map(torch.cat, zip(*padded, strict=True))
            self._direct[place] = slopes, columns, constants
        return self._direct[place]


def read_network(model: nn.Module, images: Tensor) -> Network:
    """Read the steps of a model from an image to logits, and check them on these images.

    Args:
        model: Feed-forward network from images to logits, in eval mode or not.
        images: (n, …) in [0, 1], on which the steps must repeat the model's logits.
    """
    images = images.to("cpu", torch.float64)
    shape = (
        max(2, len(images)),
        *images.shape[1:],
    )  # one alone would not show whether images depend on each other
    noise = torch.rand(shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    parts = *torch.split(images, _AT_ONCE), *torch.split(noise, _AT_ONCE)
    try:
        copied = deepcopy(model).to("cpu", torch.float64).eval().requires_grad_(requires_grad=False)
        answers = [
            logits_of(copied(part.clone())) for part in parts
        ]  # it may change its input in place
        traced = make_fx(torch.func.functionalize(lambda x: logits_of(copied(x.clone()))))(
            images[:1]
        )
    except FrontierError:
        raise
    except Exception as error:  # whatever the user's code may raise
        words = next(iter(str(error).splitlines()), type(error).__name__)[:200]
        raise FrontierError(
            f"the model cannot be followed operation by operation ({words}): expected a "
            f"feed-forward network of {_SUPPORTED}"
        ) from error
    traced.graph.eliminate_dead_code()
    network = Network(_Reader(traced).steps)
    for part, said in zip(parts, answers, strict=True):
        if not torch.allclose(
            network.answer(part.flatten(1)), said, rtol=1e-6, atol=1e-6 * float(said.abs().max())
        ):
            raise FrontierError(
                "the model answers otherwise than its operations say: it computes something "
                "outside torch, or images of one batch are not independent of each other; "
                f"expected a feed-forward network of {_SUPPORTED}"
            )
    return network


class _Reader:
    """Reader of a graph: keeps what depends on the image as steps, and all else as constants."""

    def __init__(self, traced: torch.fx.GraphModule) -> None:
        self.traced = traced
        self.steps: list[Step] = []
        self.places: dict[Node, int] = {}
        self.constants: dict[Node, Any] = {}
        for node in traced.graph.nodes:
            self._read(node)

    def _read(self, node: Node) -> None:
        step = None
        if node.op == "placeholder":
            step = Step((), node.meta["val"].shape)
        elif node.op == "get_attr":
            self.constants[node] = operator.attrgetter(str(node.target))(self.traced).detach()
        elif node.op == "output":
            (answer,) = node.all_input_nodes
            if self.places.get(answer) != len(self.steps) - 1 or len(self.steps[-1].shape) != 2:
                raise FrontierError(
                    "the model does not end with its logits, or computes them outside torch: "
                    "expected one row per image"
                )
        elif not (inputs := [n for n in node.all_input_nodes if n in self.places]):
            if torch.Tag.nondeterministic_seeded in getattr(node.target, "tags", ()):
                raise FrontierError(
                    f"the model draws random numbers ({node.target}): nothing of it can be "
                    "certified"
                )
            self.constants[node] = self._call(node, self.constants)
        elif node.target is operator.getitem and node.args[1] == 0:
            self.places[node] = self.places[
                inputs[0]
            ]  # the values of a normalisation, beside its statistics
        else:
            step = self._step(node, inputs)
        if step is not None:
            self.places[node] = len(self.steps)
            self.steps.append(step)

    def _step(self, node: Node, inputs: list[Node]) -> Step:
        known = (
            getattr(node.target, "namespace", "") == "aten"
        )  # others may call anything by these names
        name = node.target.overloadpacket.__name__ if known else str(node.target)  # type: ignore[union-attr]
        places = tuple(self.places[n] for n in inputs)
        if name == "relu" or (name == "clamp_min" and node.args[1] == 0):
            return Step(places, self.steps[places[0]].shape)
        moving = [k for k, argument in enumerate(node.args) if argument in inputs]
        affine = (
            name in _JOINT
            or moving == [_SINGLE.get(name)]
            or (name == "mul" and moving in ([0], [1]))
        )
        own = name == "native_batch_norm" and bool(
            node.args[5]
        )  # by the statistics of the image itself: not affine
        if own or not affine or node.kwargs.get("rounding_mode") is not None:
            raise FrontierError(
                f"the model contains {node.target}, for which no linear bounds are known here: "
                f"expected {_SUPPORTED}"
            )
        fixed = {n: self.constants[n] for n in node.all_input_nodes if n in self.constants}
        numbers = {
            n: value
            for n, value in fixed.items()
            if isinstance(value, Tensor) and value.dtype != torch.bool
        }
        absolute = fixed | {n: value.abs() for n, value in numbers.items()}

        def function(constants: Mapping[Node, Any], *values: Tensor) -> Tensor:
            found = self._call(node, {**constants, **dict(zip(inputs, values, strict=True))})
            first: Tensor = (
                found[0] if isinstance(found, tuple) else found
            )  # a normalisation's values come first
            return first

        apply, steepest = partial(function, fixed), partial(function, absolute)
        zeros = tuple(torch.zeros(self.steps[place].shape, dtype=torch.float64) for place in places)
        constant = apply(*zeros)
        return Step(places, constant.shape, apply, steepest, zeros, constant)

    def _call(self, node: Node, values: Mapping[Node, Any]) -> Any:
        return node.target(
            *map_arg(node.args, values.__getitem__), **map_arg(node.kwargs, values.__getitem__)
        )  # type: ignore[operator]
