"""Oracle: the only access to the model; it counts every forward and backward pass by rows."""

from __future__ import annotations

import copy
import ctypes
import sys
from collections.abc import Mapping
from contextlib import AbstractContextManager, ExitStack, nullcontext, suppress
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Self

import torch
from torch import Tensor, nn

from advfrontier.engine.digest import check_parameters
from advfrontier.engine.surrogate import surrogate_gradients
from advfrontier.errors import FrontierError, NoGradientError

if TYPE_CHECKING:
    from collections.abc import Callable

    from advfrontier.threat.domain import Space

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # names of glibc's settings
_KEPT = 256 * 2**20  # bytes that may be free before any go back to the system
_LARGEST = 32 * 2**20  # bytes of one allocation; glibc takes no more


@dataclass
class Counts:
    """Rows passed through the model, forward plus backward, by purpose.

    Args:
        checks: Passes that try the model before an evaluation.
        setup: Passes over the clean samples.
        attack: Passes of attacks: the queries.
        verification: Passes that classify the points found again.
    """

    checks: int = 0
    setup: int = 0
    attack: int = 0
    verification: int = 0


def find_device(name: str | torch.device) -> torch.device:
    """Return the device of this name, or raise; `auto` is CUDA, else MPS, else the CPU.

    Args:
        name: Name of the device, or `auto`.
    """
    if name == "auto":
        name = (
            "cuda"
            if torch.cuda.is_available()
            else "mps"
            if torch.backends.mps.is_available()
            else "cpu"
        )
    try:
        device = torch.device(name)
        torch.empty(0, device=device)
    except (
        RuntimeError,
        AssertionError,
    ) as error:  # the latter is how a torch without CUDA says so
        reason = str(error).split("\n", maxsplit=1)[0]
        raise FrontierError(
            f"the device {name} cannot be used here ({reason}): expected one such as cpu"
        ) from error
    if device.type == "meta":
        raise FrontierError("the device meta computes no numbers: expected one such as cpu")
    return device


def own_device(model: object) -> torch.device:
    """Return the device of a model's first number, or the CPU.

    Args:
        model: An nn.Module, or any function, which counts as on the CPU.
    """
    tensors = (*model.parameters(), *model.buffers()) if isinstance(model, nn.Module) else ()
    return tensors[0].device if tensors else torch.device("cpu")


def own_dtype(model: object) -> torch.dtype:
    """Return the default precision: float64 if the model's parameters are, else float32.

    Args:
        model: An nn.Module, or any function, which counts as float32.
    """
    numbers = (
        [p for p in model.parameters() if p.is_floating_point()]
        if isinstance(model, nn.Module)
        else []
    )
    return torch.float64 if numbers and numbers[0].dtype == torch.float64 else torch.float32


def half_precision(model: object) -> torch.dtype | None:
    """Return the half precision of a model's parameters; None if there is none.

    Args:
        model: An nn.Module, or any function, which counts as full precision.
    """
    if isinstance(model, nn.Module):
        for parameter in model.parameters():
            if parameter.is_floating_point():
                return parameter.dtype if parameter.dtype.itemsize < 4 else None
    return None


def logits_of(answer: object) -> Tensor:
    """Return the logits of an answer: a tensor, a field `logits`, or the only part of a tuple.

    Args:
        answer: Value that the model returned: a tensor, or an object that holds one.
    """
    found = answer.get("logits") if isinstance(answer, Mapping) else getattr(answer, "logits", None)
    if found is None and isinstance(answer, (tuple, list)) and len(answer) == 1:
        found = answer[0]
    found = answer if found is None else found
    if isinstance(found, Tensor):
        return found
    what, cure = type(answer).__name__, "a function of images that returns only these"
    if isinstance(answer, Mapping):
        what, cure = (
            f"{what} of {', '.join(map(str, answer))}",
            "lambda images: model(images)['KEY'] with its key",
        )
    elif isinstance(answer, (tuple, list)):
        what, cure = (
            f"{what} of {len(answer)}",
            "lambda images: model(images)[0], if its first part holds them",
        )
    raise FrontierError(
        f"the model returned {what}: expected a tensor of logits; in its place hand over {cure}"
    )


class Oracle(AbstractContextManager["Oracle"]):
    """Model on a device; inside its `with` block it is in eval mode with frozen parameters.

    Afterwards it is where and as it was. Device and precision are the model's own if none are
    named. Inference mode and autocast of the caller are switched off inside the block: attacks need
    gradients, and margins need the precision that autocast takes away. `purpose` names the counter
    that passes are charged to, `eot` is how many passes one query of an attack takes (see
    `expectation`), and with `surrogate` gradients are those that the module of this name makes.

    Args:
        model: From images in [0, 1] to logits.
        device: Device to run on; by default the model's own.
        dtype: Precision of images and gradients; by default the model's own.
        eot: Passes that the gradient of a query is the mean of.
        surrogate: Replace gradients that vanish by rounding or saturation; see `engine.surrogate`.
    """

    def __init__(
        self,
        model: Callable[[Tensor], Tensor],
        *,
        device: str | torch.device | None = None,
        dtype: torch.dtype | None = None,
        eot: int = 1,
        surrogate: bool = False,
    ) -> None:
        dtype = own_dtype(model) if dtype is None else dtype
        if dtype not in (torch.float32, torch.float64):
            raise FrontierError(
                f"cannot attack in {dtype}: expected torch.float32 or torch.float64"
            )
        self.model, self.dtype, self.eot, self.surrogate = model, dtype, eot, surrogate
        self.device = find_device(own_device(model) if device is None else device)
        self.half = half_precision(model)  # what images are cast to on their way into the model
        self.counts = Counts()
        self.purpose = "checks"
        self.was_training = False
        self.logits_dtype = dtype  # as the model returned them last
        self._undo = ExitStack()

    def __enter__(self) -> Self:
        keep_freed_memory()
        with ExitStack() as undo:  # if anything fails here, what was done is undone
            if torch.is_inference_mode_enabled():
                undo.enter_context(torch.inference_mode(mode=False))
            for kind in {"cpu", self.device.type}:
                if torch.is_autocast_enabled(kind):
                    undo.enter_context(torch.autocast(kind, enabled=False))
            if isinstance(self.model, nn.Module):
                self._prepare(self.model, undo)
            self._undo = undo.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._undo.close()

    def _prepare(self, model: nn.Module, undo: ExitStack) -> None:
        check_parameters(model)
        if (home := own_device(model)).type != self.device.type or self.device.index not in {
            None,
            home.index,
        }:
            undo.callback(model.to, home)
            model.to(self.device)
        training = [module for module in model.modules() if getattr(module, "training", False)]
        for module in training:
            undo.callback(setattr, module, "training", True)  # noqa: FBT003
        if training:
            with suppress(
                NotImplementedError
            ):  # which is what exported programs say: they have no modes
                model.eval()
                self.was_training = model in training or any(
                    isinstance(module, _BY_MODE) for module in training
                )
        for parameter in model.parameters():
            # Tensors made in inference mode never get gradients, and their requires_grad cannot be
            # set again.
            if parameter.requires_grad and not parameter.is_inference():
                undo.callback(setattr, parameter, "requires_grad", True)  # noqa: FBT003
                parameter.requires_grad = False

    def images(self, images: Tensor) -> Tensor:
        """Move images to the device, in the working precision and free of inference mode.

        Args:
            images: (n, …) in [0, 1], on any device.
        """
        return _usable(images.to(self.device, self.dtype))

    def labels(self, labels: Tensor) -> Tensor:
        """Move labels to the same device, as int64.

        Args:
            labels: (n,), integers on any device.
        """
        return _usable(labels.to(self.device).long())

    def logits(self, images: Tensor) -> Tensor:
        """Make one forward pass, with gradients if `images` requires them.

        Args:
            images: (n, …), on the device of the oracle.
        """
        self._charge(len(images))
        return self.answer(images)

    def answer(self, images: Tensor) -> Tensor:
        """Make a forward pass that the caller counts, on a copy that the model may overwrite.

        Without a copy, a model that normalises its input in place would move the point that is
        being attacked. Half precision is widened, so that margins and losses are not rounded once
        more.

        Args:
            images: (n, …), on the device of the oracle.
        """
        followed = self.surrogate and images.requires_grad
        with torch.set_grad_enabled(images.requires_grad):
            try:
                with surrogate_gradients() if followed else nullcontext():
                    answer = self.model(
                        images.clone() if self.half is None else images.to(self.half)
                    )
            except FrontierError:
                raise
            except (Exception, SystemExit) as error:
                raise FrontierError(
                    f"the model cannot take images of shape {tuple(images.shape)} "
                    f"({_named(error)}): expected one from such images, (samples, channels, "
                    f"height, width) in [0, 1] as {images.dtype}, to "
                    f"logits{_advice(self.model, images, error)}"
                ) from error
            logits = logits_of(answer)
            _check_answer(logits, len(images))
            self.logits_dtype = logits.dtype
            if logits.dtype.itemsize < torch.float32.itemsize:
                logits = logits.float()
            if logits.device != images.device:
                logits = logits.to(images.device)
            # A model may answer with a buffer that it overwrites next time.
            return logits if logits.requires_grad else logits.clone()

    def gradient(self, value: Tensor, images: Tensor) -> Tensor:
        """Make one backward pass: the gradient of the summed value, owned by the caller.

        Args:
            value: (n,), one number per image, computed from `images`.
            images: (n, …), which require gradients.
        """
        self._charge(len(images))
        if not value.requires_grad:
            raise NoGradientError(_NO_GRADIENT)
        try:
            (gradient,) = torch.autograd.grad(
                value, images, torch.ones_like(value), allow_unused=True
            )
        except FrontierError:
            raise
        except (Exception, SystemExit) as error:
            if "derivative for" in str(
                error
            ):  # PyTorch knows none of some function, such as floor_divide
                raise NoGradientError(f"{_named(error)}: {_NO_GRADIENT}") from error
            raise FrontierError(
                f"the model's backward pass failed ({_named(error)}): expected logits that can be "
                "differentiated with respect to the "
                f"images{_advice(self.model, images, error) or _INSTEAD}"
            ) from error
        if gradient is None:
            raise NoGradientError(_NO_GRADIENT)
        return gradient.contiguous()

    def _charge(self, rows: int) -> None:
        setattr(self.counts, self.purpose, getattr(self.counts, self.purpose) + rows)


def in_unit_box(oracle: Oracle, images: Tensor, space: Space | None) -> tuple[Oracle, Tensor]:
    """Return a model of images in [0, 1] that charges the same counts, and the images there.

    Args:
        oracle: The model, in its `with` block.
        images: (n, …), in the domain.
        space: The domain; None if it is [0, 1] already.
    """
    if space is None:
        return oracle, images
    inner, half = oracle.model, oracle.half

    def stretched(unit: Tensor) -> Tensor:
        samples = space.from_unit(unit)
        return inner(samples if half is None else samples.to(half))

    outer = copy.copy(oracle)
    outer.model, outer.half = stretched, None
    return outer, space.to_unit(images)


# Layers that compute something else in train mode.
_BY_MODE = (nn.modules.batchnorm._BatchNorm, nn.modules.dropout._DropoutNd)  # noqa: SLF001
_BLACK_BOX = '--pool black-box (ensemble="black-box")'
_INSTEAD = f"; or ask for runs without gradients: {_BLACK_BOX}"
_NO_GRADIENT = (
    "the model's logits have no gradient with respect to the images: gradient attacks cannot run; "
    "remove torch.no_grad() or .detach() from the model, or ask for runs without gradients: "
    f"{_BLACK_BOX}"
)


def _usable(tensor: Tensor) -> Tensor:
    return tensor.clone() if tensor.is_inference() else tensor


def _named(error: BaseException) -> str:
    """Return the kind of an error and the first line of its message."""
    said = str(error).strip().split("\n", maxsplit=1)[0]
    return f"{type(error).__name__}: {said}" if said else type(error).__name__


def _advice(model: object, images: Tensor, error: BaseException) -> str:
    """Explain a known cause of a model's failure, and what to type."""
    parameters = list(model.parameters()) if isinstance(model, nn.Module) else []
    if any(words in str(error) for words in ("out of memory", "allocate memory")):
        return ". Give smaller batches: --batch-size (batch_size=)"
    if any(parameter.is_inference() for parameter in parameters):
        return (
            ". It was made in torch.inference_mode(): make it outside, or attack "
            "copy.deepcopy(model)"
        )
    kinds = sorted(
        {str(p.dtype) for p in parameters if p.is_floating_point()} - {str(images.dtype)}
    )
    if kinds:
        cure = "model.double()" if images.dtype == torch.float64 else "model.float()"
        return f". Its parameters are {', '.join(kinds)}: try {cure}"
    if not parameters and "device" in str(error):
        return '. A function does not show where it computes: name the device, as in machine="cuda"'
    return ". If it needs a channel axis, give images[:, None]" if images.ndim == 3 else ""


def _check_answer(logits: Tensor, rows: int) -> None:
    if logits.is_nested or logits.layout != torch.strided or logits.is_meta:
        raise FrontierError(
            f"the model returned a tensor without plain numbers ({logits.layout}, "
            f"{logits.device}): expected a dense one of logits"
        )
    if logits.ndim != 2 or len(logits) != rows or logits.shape[1] < 2:
        raise FrontierError(
            f"the model returned {tuple(logits.shape)} for {rows} images: expected logits of shape "
            f"({rows}, classes ≥ 2){_shape_advice(logits, rows)}"
        )
    if not logits.is_floating_point():
        raise FrontierError(
            f"the model returned {logits.dtype}: expected logits as floating-point numbers"
        )


@cache
def keep_freed_memory() -> None:
    """Let glibc keep the memory that a step frees for the next one.

    Every step of an attack allocates and frees the same few megabytes. By default glibc gives them
    back to the system each time, which clears them page by page when they are asked for again: up
    to a third of the time on small models.
    """
    if (
        sys.platform == "linux"
        and (mallopt := getattr(ctypes.CDLL(None), "mallopt", None)) is not None
    ):
        mallopt(_TRIM_THRESHOLD, _KEPT)
        mallopt(_MMAP_THRESHOLD, _LARGEST)


def _shape_advice(logits: Tensor, rows: int) -> str:
    """Return what to hand over in place of a model with one number per image."""
    if logits.shape not in {(rows,), (rows, 1)}:
        return ""
    if not logits.is_floating_point():
        return "; it seems to return classes: remove .argmax(1), attacks need the logits"
    answer = "model(images)" if logits.ndim == 2 else "model(images)[:, None]"
    return (
        "; if that is one logit, whose sign decides between classes 0 and 1, in its place hand "
        f"over lambda images: torch.nn.functional.pad({answer}, (1, 0))"
    )
