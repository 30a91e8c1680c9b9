"""Models by installed libraries: `robustbench:`, `timm:`, `hf:`, `onnx:`. Code that comes with a model is never run."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator, Sequence
from contextlib import redirect_stdout
from difflib import get_close_matches
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch import Tensor, nn

from advfrontier.sources.reading import Spec, existing, explaining, loading, need, try_batches


class Normalised(nn.Module):
    """(x - mean) / std per channel, then the network."""

    mean: Tensor
    std: Tensor

    def __init__(self, net: nn.Module, mean: Sequence[float], std: Sequence[float]) -> None:
        super().__init__()
        self.net = net
        self.register_buffer("mean", torch.tensor(mean, dtype=torch.float32).view(1, -1, 1, 1))
        self.register_buffer("std", torch.tensor(std, dtype=torch.float32).view(1, -1, 1, 1))

    def forward(self, images: Tensor) -> Tensor:
        """Return the logits of images in [0, 1]."""
        logits: Tensor = self.net((images - self.mean) / self.std)
        return logits


class Logits(nn.Module):
    """The logits of a classifier that returns them with other things, with its channels in the order it wants."""

    def __init__(self, net: nn.Module, *, flip: bool) -> None:
        super().__init__()
        self.net, self.flip = net, flip

    def forward(self, images: Tensor) -> Tensor:
        """Return the logits alone."""
        logits: Tensor = self.net(images.flip(1) if self.flip else images).logits
        return logits


def load_timm(spec: Spec) -> nn.Module:
    """`timm:NAME`, normalised as its data configuration says. `?checkpoint=FILE` loads weights from a file."""
    timm = need("timm", extra="timm", source=spec.text)
    if not spec.place.startswith(("hf-hub:", "hf_hub:")) and not timm.is_model(spec.place):
        near = timm.list_models(f"*{spec.place.partition('.')[0]}*")[:5]
        hint = f"near it: {', '.join(near)}" if near else "timm.list_models() has them all"
        raise spec.error(f"timm {timm.__version__} has no model {spec.place!r}; {hint}")
    checkpoint, classes = spec.options.get("checkpoint"), spec.options.get("classes")
    arguments: dict[str, int | str] = {}
    if classes:
        if not classes.isdecimal() or len(classes) > 6:
            raise spec.error(f"classes={classes}: expected a number of classes")
        if not checkpoint:
            raise spec.error(
                f"published weights have their own number of classes: name a file with "
                f"?checkpoint=FILE&classes={classes}"
            )
        arguments["num_classes"] = int(classes)
    hint = f"{spec.hint}, or name a file: timm:{spec.place}?checkpoint=FILE"
    if checkpoint:
        arguments["checkpoint_path"], hint = str(existing(checkpoint, spec.text)), ""
    with loading(spec.text, "timm could not load it", hint, download=spec.download):
        net = timm.create_model(spec.place, pretrained=not checkpoint, **arguments)
    config = timm.data.resolve_model_data_config(net)
    return Normalised(net, config["mean"], config["std"])


def load_huggingface(spec: Spec) -> nn.Module:
    """`hf:org/name` or `hf:FOLDER`: an image classifier of transformers, normalised as its image processor says.

    Weights are read from safetensors only.
    """
    transformers = need("transformers", extra="hf", source=spec.text)
    place = spec.place
    if (folder := Path(place).expanduser()).is_dir():
        place = str(folder)
        _check_folder(spec, folder)
    fetch: dict[str, Any] = {"local_files_only": not spec.download, "trust_remote_code": False}
    what = "could not be loaded as an image classifier with safetensors weights"
    with loading(spec.text, what, spec.hint, download=spec.download):
        processor = transformers.AutoImageProcessor.from_pretrained(place, **fetch)
        net, report = transformers.AutoModelForImageClassification.from_pretrained(
            place, use_safetensors=True, dtype=torch.float32, output_loading_info=True, **fetch
        )
    # Weights that the file lacks, or has in another shape, would be random.
    lacking = sorted(
        str(name) for key in ("missing_keys", "mismatched_keys") for name in report.get(key) or ()
    )
    if lacking:
        few = ", ".join(lacking[:3]) + (", …" if len(lacking) > 3 else "")
        raise spec.error(
            f"its files lack {len(lacking)} of the weights, or have them in another shape ({few}): "
            "expected all of an image classifier; write them with model.save_pretrained(FOLDER)"
        )
    return _as_processed(spec, net, processor)


def _check_folder(spec: Spec, folder: Path) -> None:
    if not list(folder.glob("*.safetensors")):
        found = ", ".join(sorted(p.name for p in folder.glob("*.bin"))) or "no weights"
        raise spec.error(
            f"found {found} in {folder}: expected model.safetensors, since pickled weights could run any "
            "code; write them with model.save_pretrained(FOLDER)"
        )
    if not (folder / "preprocessor_config.json").is_file():
        raise spec.error(
            f"no preprocessor_config.json in {folder}, so its normalisation is unknown; write it with "
            "processor.save_pretrained(FOLDER), or wrap the model in file.py:factory"
        )


def _as_processed(spec: Spec, net: nn.Module, processor: Any) -> nn.Module:
    """A processor computes (255 x · rescale - mean) / std, each part only if it is switched on.

    EfficientNet's may subtract 1 after it has rescaled, and divide by std once more.
    """
    rescales, normalises, shifts, again, flips = (
        bool(getattr(processor, switch, False))
        for switch in (
            "do_rescale",
            "do_normalize",
            "rescale_offset",
            "include_top",
            "do_flip_channel_order",
        )
    )
    scale = 255 * float(getattr(processor, "rescale_factor", 1 / 255)) if rescales else 255.0
    mean, std = [0.0], [1.0]
    if normalises or again:
        mean, std = (
            list(getattr(processor, f"image_{name}", None) or []) for name in ("mean", "std")
        )
        if not mean or not std:
            raise spec.error(
                "its image processor normalises, but names no image_mean and image_std"
            )
        mean, std = mean if normalises else [0.0], [value ** (normalises + again) for value in std]
    mean = [value + (rescales and shifts) for value in mean]
    return Normalised(
        Logits(net, flip=flips), [value / scale for value in mean], [value / scale for value in std]
    )


def load_robustbench(spec: Spec) -> nn.Module:
    """`robustbench:cifar10/Linf/NAME`: RobustBench's models, which carry their own normalisation.

    Checkpoints are looked for where RobustBench keeps them, `models/DATASET/THREAT/NAME.pt`; `?dir=FOLDER` names
    another folder than `models`.
    """
    utils = robustbench_utils(spec)
    dataset, threat, name = robustbench_entry(spec, utils)
    folder = Path(spec.options.get("dir", "models")).expanduser()
    missing = [p for p in _checkpoints(utils, folder, dataset, threat, name) if not p.is_file()]
    if missing and not spec.download:
        raise spec.error(
            f"no checkpoint at {missing[0]}; allow the download with --download (download=True), or put the file there"
        )
    what = "RobustBench could not load it"
    # It prints what it downloads; results are what belongs on stdout.
    with loading(spec.text, what, spec.hint, download=spec.download), redirect_stdout(sys.stderr):
        model: nn.Module = utils.load_model(
            name, model_dir=folder, dataset=dataset, threat_model=threat
        )
    return model


def robustbench_utils(spec: Spec) -> Any:
    """RobustBench's loader, without the rest of it.

    The package itself imports its evaluation, which needs modules that its own requirements do not bring along
    (autoattack, pkg_resources). An empty package in its place gives access to the part that is wanted.
    """
    if (
        "robustbench" not in sys.modules
        and (found := importlib.util.find_spec("robustbench")) is not None
    ):
        package = ModuleType("robustbench")
        package.__path__ = list(found.submodule_search_locations or ())
        sys.modules["robustbench"] = package
        try:
            return need("robustbench.utils", extra="robustbench", source=spec.text)
        finally:
            del sys.modules["robustbench"]  # whoever imports it later gets the whole
    return need("robustbench.utils", extra="robustbench", source=spec.text)


def robustbench_entry(spec: Spec, utils: Any) -> tuple[str, str, str]:
    """Data set, threat model and name of one of RobustBench's models."""
    parts = spec.place.split("/")
    if len(parts) != 3:
        raise spec.error(
            "expected robustbench:DATASET/THREAT/NAME such as cifar10/Linf/Wong2020Fast"
        )
    dataset, threat, name = parts
    zoo = {
        d.value: {t.value: entries for t, entries in threats.items()}
        for d, threats in utils.all_models.items()
    }
    if threat not in zoo.get(dataset, {}):
        known = ", ".join(f"{d}/{t}" for d in zoo for t in zoo[d])
        raise spec.error(f"RobustBench has no {dataset}/{threat}: expected one of {known}")
    if name not in zoo[dataset][threat]:
        near = get_close_matches(name, zoo[dataset][threat], n=4, cutoff=0.4)
        hint = (
            f"near it: {', '.join(near)}" if near else f"it has {len(zoo[dataset][threat])} others"
        )
        raise spec.error(f"RobustBench has no {name} in {dataset}/{threat}; {hint}")
    return dataset, threat, name


def _checkpoints(utils: Any, folder: Path, dataset: str, threat: str, name: str) -> list[Path]:
    """The files its loader will read; none where timm holds the weights in its own cache."""
    benchmark = utils.BenchmarkDataset(dataset)
    ids = utils.all_models[benchmark][utils.ThreatModel(threat)][name].get("gdrive_id")
    timm_name = f"{name.lower().replace('-', '_')}_{dataset.lower()}_{threat.lower()}"
    if ids is None or utils.timm.is_model(timm_name):
        return []
    path = folder / dataset / threat / f"{name}.pt"
    return [Path(f"{path}_m{i}.pt") for i in range(len(ids))] if isinstance(ids, list) else [path]


def load_onnx(spec: Spec) -> nn.Module:
    """`onnx:FILE`: an ONNX graph and the weights beside it, turned into PyTorch by onnx2torch to have gradients."""
    onnx = need("onnx", extra="onnx", source=spec.text)
    convert = need("onnx2torch", extra="onnx", source=spec.text).convert
    path = existing(spec.place, spec.text)
    with explaining(f"{spec.text}: not an ONNX file", ": expected what torch.onnx.export writes"):
        graph = onnx.load(str(path), load_external_data=False)
        for location in _external(graph):
            _check_inside(spec, path.parent, location)
        onnx.external_data_helper.load_external_data_for_model(graph, str(path.parent))
    if not graph.graph.node:
        raise spec.error("not an ONNX file: it holds no graph")
    weights = {tensor.name for tensor in graph.graph.initializer}
    inputs = [value for value in graph.graph.input if value.name not in weights]
    if len(inputs) != 1 or len(graph.graph.output) != 1:
        raise spec.error(
            f"has {len(inputs)} inputs and {len(graph.graph.output)} outputs: expected images and logits"
        )
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
        raise spec.error(
            f"wants to read weights from {location!r}: expected a file in its own folder: refused"
        )
    existing(folder / location, spec.text)
