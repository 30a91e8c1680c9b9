"""Surrogate gradients, for models whose gradients vanish by rounding or saturation.

Such layers hide a model's gradient without making it more robust (Athalye et al., 2018). Inside
`surrogate_gradients` every value stays what it is, bit for bit; only on the way back a jump is
taken for a slope. To cross a jump that is u away, an input must move by u, so what is gained per
distance is the jump over u, and pixels near a jump are moved first. Saturated functions are jumps
that are rounded off. What was converted to bool or integer numbers and back, or detached, is
followed through.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional
from torch.overrides import TorchFunctionMode

_NEAR = 0.01  # added to the distance of a jump: below this, all are as near

Slope = Callable[[Tensor, Tensor], Tensor]  # of a function's argument and value


def _to_zero(u: Tensor, _: Tensor) -> Tensor:
    return 1 / (u.abs() + _NEAR)


def _saturating(u: Tensor, _: Tensor) -> Tensor:
    return 1 / (1 + u.abs())


def _clamped(u: Tensor, value: Tensor) -> Tensor:
    return 1 / (1 + (u - value).abs())


def _to_half(u: Tensor, _: Tensor) -> Tensor:
    return _STAIR / ((u - u.floor() - 0.5).abs() + _NEAR)


def _to_integer(u: Tensor, _: Tensor) -> Tensor:
    return _STAIR / ((u - u.round()).abs() + _NEAR)


def _even(u: Tensor, _: Tensor) -> Tensor:
    return torch.ones_like(u)


_STAIR = 0.127  # so that the mean slope of a staircase is 1, like the slope of the line through it

_BY_NAME: dict[str, Slope] = {
    "tanh": _saturating,
    "sigmoid": _saturating,
    "clamp": _clamped,
    "clip": _clamped,
    "sign": _to_zero,
    "sgn": _to_zero,
    "round": _to_half,
    "floor": _to_integer,
    "ceil": _to_integer,
    "trunc": _to_integer,
    "fix": _to_integer,
}


def _functions(*names: str) -> list[Any]:
    """Return the functions of `torch` and the methods of tensors that have one of these names."""
    functions = []
    for name in names:
        for owner in (torch, Tensor):
            if hasattr(owner, name):
                functions.append(getattr(owner, name))
    return functions


_SLOPES: dict[Any, Slope] = {
    torch.special.expit: _saturating,
    functional.hardsigmoid: _saturating,
    functional.hardtanh: _clamped,
    functional.relu6: _clamped,
    torch.heaviside: _to_zero,
    torch.floor_divide: _even,
    Tensor.__floordiv__: _even,
}
_IN_PLACE: dict[Any, str] = {}
for _name, _slope in _BY_NAME.items():
    _SLOPES |= dict.fromkeys(_functions(_name), _slope)
    if hasattr(Tensor, f"{_name}_"):
        _IN_PLACE[getattr(Tensor, f"{_name}_")] = _name
_COMPARED: dict[Any, int] = {
    **dict.fromkeys(_functions("gt", "ge", "greater", "greater_equal"), 1),
    **dict.fromkeys(_functions("lt", "le", "less", "less_equal"), -1),
}
_CONVERTED = {
    getattr(Tensor, name)
    for name in (
        "to",
        "type",
        "type_as",
        "float",
        "double",
        "half",
        "bfloat16",
        "int",
        "long",
        "short",
        "byte",
        "char",
    )
}
_WHERE = {torch.where, Tensor.where}
_TIMES = set(_functions("mul", "multiply", "div", "divide"))
_DETACHED = {torch.detach, Tensor.detach}
_CUTTING = {*_SLOPES, *_IN_PLACE, *_COMPARED, *_CONVERTED, *_DETACHED}
_LEADING_ON = _CONVERTED | _WHERE | _TIMES


class _Through(torch.autograd.Function):
    """Function with a given value, and with a given slope in the backward pass."""

    @staticmethod
    def forward(ctx: Any, _u: Tensor, value: Tensor, slope: Tensor) -> Tensor:
        ctx.save_for_backward(slope)
        return value.clone()

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        (slope,) = ctx.saved_tensors
        return gradients[0] * slope, None, None


def _through(u: Tensor, value: Tensor, slope: Slope) -> Tensor:
    with torch.no_grad():
        slopes = slope(u, value)
    passed: Tensor = _Through.apply(u, value.detach(), slopes)  # type: ignore[no-untyped-call]
    return passed


class surrogate_gradients(TorchFunctionMode):  # noqa: N801  # a context manager, like torch.no_grad
    """Give PyTorch's step functions a slope in backward passes; not in compiled models."""

    def __torch_function__(
        self,
        func: Any,
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        """Call the function as it is, and see to the way back where it cuts it off."""
        kwargs = kwargs or {}
        if func in _CUTTING and any(map(_tracked, args[:2] if func in _COMPARED else args[:1])):
            return _passed(func, args, kwargs)
        if func in _LEADING_ON and any(map(_carries, args)):
            return _led_on(func, args, kwargs)
        return func(*args, **kwargs)


def _passed(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Apply a function that cuts off gradients, and give it a slope."""
    u = args[0]
    if func in _DETACHED:
        return u.view_as(u)
    if func in _IN_PLACE:
        name = _IN_PLACE[func]
        return u.copy_(_through(u.clone(), getattr(u, name)(*args[1:], **kwargs), _BY_NAME[name]))
    out = func(*args, **kwargs)
    if func in _SLOPES:
        return _through(u, out, _SLOPES[func])
    if func in _COMPARED:
        return _carrying(out, _COMPARED[func] * (u - args[1]), _to_zero)
    return out if out.is_floating_point() else _carrying(out, u, _even)


def _led_on(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Apply a function to bool or integer numbers that keep their differentiable source."""
    out = func(*args, **kwargs)
    if func in _TIMES and out.is_floating_point():
        return func(*(_followed(a, a.to(out.dtype)) if _carries(a) else a for a in args), **kwargs)
    if func in _CONVERTED:
        return (
            _followed(args[0], out) if out.is_floating_point() else _carrying(out, *args[0].carried)
        )
    if len(args) < 3 or not out.is_floating_point():
        return out
    cond, yes, no = args if func is torch.where else (args[1], args[0], args[2])
    if not _carries(cond):
        return out
    with (
        torch.no_grad()
    ):  # crossing the condition's jump changes the answer by the difference of both
        difference = torch.zeros_like(out) + yes - no
    u, slope = cond.carried
    return out + _through(u, torch.zeros_like(u), slope) * difference


def _tracked(value: Any) -> bool:
    return isinstance(value, Tensor) and value.requires_grad


def _carries(value: Any) -> bool:
    return isinstance(value, Tensor) and hasattr(value, "carried")


def _carrying(out: Tensor, u: Tensor, slope: Slope) -> Tensor:
    """Bool and integer numbers that remember what they were made of."""
    out.carried = (u, slope)  # type: ignore[attr-defined]
    return out


def _followed(carrier: Tensor, out: Tensor) -> Tensor:
    u, slope = carrier.carried  # type: ignore[attr-defined]
    return _through(u, out, slope)
