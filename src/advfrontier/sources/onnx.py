"""`onnx:FILE`: an ONNX graph turned into PyTorch by onnx2torch, so that it has gradients."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from torch import nn

from advfrontier.sources.guards import explaining, need, try_batches
from advfrontier.sources.spec import Spec, existing


def load(spec: Spec, *, download: bool) -> nn.Module:  # noqa: ARG001 (nothing to fetch)
    """Read the file and the weights beside it, and convert."""
    onnx = need("onnx", extra="onnx", source=spec.text)
    helper = need("onnx.external_data_helper", extra="onnx", source=spec.text)
    convert = need("onnx2torch", extra="onnx", source=spec.text).convert
    path = existing(spec.place, spec.text)
    with explaining(f"{spec.text}: not an ONNX file", ": expected what torch.onnx.export writes"):
        graph = onnx.load(str(path), load_external_data=False)
        for location in _external(graph):
            _check_inside(spec, path.parent, location)
        helper.load_external_data_for_model(graph, str(path.parent))
    if not graph.graph.node:
        raise spec.error("not an ONNX file: it holds no graph")
    weights = {tensor.name for tensor in graph.graph.initializer}
    inputs = [value for value in graph.graph.input if value.name not in weights]
    if len(inputs) != 1 or len(graph.graph.output) != 1:
        raise spec.error(f"has {len(inputs)} inputs and {len(graph.graph.output)} outputs: expected images and logits")
    hint = "; build the model in Python instead, as file.py:factory"
    with explaining(f"{spec.text}: onnx2torch cannot convert it", hint):
        model: nn.Module = convert(graph)
    shape = [dim.dim_value for dim in inputs[0].type.tensor_type.shape.dim]
    try_batches(spec.text, model, shape, "dynamic_shapes or dynamic_axes")
    return model


def _external(message: Any) -> Iterator[str]:
    """Where the tensors lie that are not in the file itself, wherever in the graph they are used."""
    if message.DESCRIPTOR.name == "TensorProto":
        yield from (entry.value for entry in message.external_data if entry.key == "location")
        return
    for field, value in message.ListFields():
        if field.message_type is not None:
            for part in [value] if hasattr(value, "DESCRIPTOR") else value:
                yield from _external(part)


def _check_inside(spec: Spec, folder: Path, location: str) -> None:
    inside = folder.resolve()
    if not (inside / location).resolve().is_relative_to(inside):
        raise spec.error(f"wants to read weights from {location!r}: expected a file in its own folder: refused")
    existing(folder / location, spec.text)
