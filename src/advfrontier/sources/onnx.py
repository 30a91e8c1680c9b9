"""`onnx:FILE`: ONNX graphs, which onnx2torch turns into PyTorch so that they have gradients."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import nn

from advfrontier.errors import FrontierError
from advfrontier.sources.reading import Spec, existing, explaining, need

_TEST_BATCH = 3  # a batch size that nobody exports for
_LARGEST_IMAGE = 2**24  # numbers of an image; graphs for larger ones are not tried


def load(spec: Spec) -> nn.Module:
    """Load `onnx:FILE`: a graph that onnx2torch turns into PyTorch, so that it has gradients.

    Args:
        spec: `onnx:FILE`; files of weights beside it are read, too.
    """
    onnx = need("onnx", extra="onnx", source=spec.text)
    convert = need("onnx2torch", extra="onnx", source=spec.text).convert
    path = existing(spec.place, spec.text)
    with explaining(f"{spec.text}: not an ONNX file", ": expected what torch.onnx.export writes"):
        graph = onnx.load(str(path), load_external_data=False)
        for location in _external_files(graph):
            _check_inside(spec, path.parent, location)
        onnx.external_data_helper.load_external_data_for_model(graph, str(path.parent))
    if not graph.graph.node:
        raise spec.error("not an ONNX file: it holds no graph")
    weights = {tensor.name for tensor in graph.graph.initializer}
    inputs = [value for value in graph.graph.input if value.name not in weights]
    if len(inputs) != 1 or len(graph.graph.output) != 1:
        raise spec.error(
            f"has {len(inputs)} inputs and {len(graph.graph.output)} outputs: expected images and "
            "logits"
        )
    hint = "; build the model in Python instead, as file.py:factory"
    with explaining(f"{spec.text}: onnx2torch cannot convert it", hint):
        model: nn.Module = convert(graph)
    shape = [dimension.dim_value for dimension in inputs[0].type.tensor_type.shape.dim]
    _check_any_batch(spec, model, shape)
    return model


def _external_files(message: Any) -> Iterator[str]:
    """Yield the files of tensors that are not in the graph's own file, wherever they are used."""
    if message.DESCRIPTOR.name == "TensorProto":
        yield from (entry.value for entry in message.external_data if entry.key == "location")
        return
    for field, value in message.ListFields():
        if field.message_type is not None:
            parts = [value] if hasattr(value, "DESCRIPTOR") else value
            for part in parts:
                yield from _external_files(part)


def _check_inside(spec: Spec, folder: Path, location: str) -> None:
    inside = folder.resolve()
    if not (inside / location).resolve().is_relative_to(inside):
        raise spec.error(
            f"wants to read weights from {location!r}: expected a file in its own folder: refused"
        )
    existing(folder / location, spec.text)


def _check_any_batch(spec: Spec, model: nn.Module, shape: Sequence[int]) -> None:
    """Raise if a graph does not compute, or only with the batch size it was exported for.

    A size that may vary is 0 in the shape.
    """
    if len(shape) != 4 or not 0 < math.prod(shape[1:]) <= _LARGEST_IMAGE:
        return
    hint = ": expected any; export it with dynamic_shapes or dynamic_axes for the first dimension"
    what = f"{spec.text}: works only with batches of {shape[0] or 'one size'}, or not at all"
    with explaining(what, hint), torch.no_grad():
        logits = model.eval()(torch.zeros(_TEST_BATCH, *shape[1:]))
    if logits.ndim != 2 or len(logits) != _TEST_BATCH or not logits.is_floating_point():
        answer = f"{logits.dtype} of shape {tuple(logits.shape)}"
        raise FrontierError(
            f"{what}: {_TEST_BATCH} images give {answer}{hint}, and logits (n, classes)"
        )
