"""Models by installed libraries: `robustbench:`, `timm:`, `hf:`.

Code that comes with a model is never run.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Sequence
from contextlib import redirect_stdout
from difflib import get_close_matches
from pathlib import Path, PurePosixPath
from types import ModuleType
from typing import Any
from urllib.parse import urlparse

import torch
from torch import Tensor, nn

from advfrontier.sources.reading import Spec, existing, loading, need


class Normalised(nn.Module):
    """(x - mean) / std per channel, then the network.

    Args:
        net: Takes normalised images (n, channels, height, width), returns logits (n, classes).
        mean: One number per channel.
        std: One number per channel.
    """

    mean: Tensor
    std: Tensor

    def __init__(self, net: nn.Module, mean: Sequence[float], std: Sequence[float]) -> None:
        super().__init__()
        self.net = net
        self.register_buffer("mean", torch.tensor(mean, dtype=torch.float32).view(1, -1, 1, 1))
        self.register_buffer("std", torch.tensor(std, dtype=torch.float32).view(1, -1, 1, 1))

    def forward(self, images: Tensor) -> Tensor:
        """Return the logits (n, classes).

        Args:
            images: Images in [0, 1], (n, channels, height, width).
        """
        logits: Tensor = self.net((images - self.mean) / self.std)
        return logits


class Logits(nn.Module):
    """Classifier that returns the logits of a model whose output has them as a field.

    Args:
        net: Classifier whose output has the logits as a field.
        flip: Whether the classifier wants its channels in reverse order.
    """

    def __init__(self, net: nn.Module, *, flip: bool) -> None:
        super().__init__()
        self.net, self.flip = net, flip

    def forward(self, images: Tensor) -> Tensor:
        """Return the logits (n, classes).

        Args:
            images: Images as the classifier takes them, (n, channels, height, width).
        """
        logits: Tensor = self.net(images.flip(1) if self.flip else images).logits
        return logits


def load_timm(spec: Spec) -> nn.Module:
    """Load `timm:NAME`, normalised as its data configuration says.

    Args:
        spec: `timm:NAME`; the option `checkpoint` names a file of weights, `classes` their number
            of classes.
    """
    timm = need("timm", extra="timm", source=spec.text)
    name = spec.place
    on_hub = name.startswith(("hf-hub:", "hf_hub:"))
    if not on_hub and not timm.is_model(name):
        near = timm.list_models(f"*{name.partition('.')[0]}*")[:5]
        hint = f"near it: {', '.join(near)}" if near else "timm.list_models() has them all"
        raise spec.error(f"timm {timm.__version__} has no model {name!r}; {hint}")
    checkpoint, classes = spec.options.get("checkpoint"), spec.options.get("classes")
    arguments: dict[str, int | str] = {}
    if classes:
        if not classes.isdecimal() or len(classes) > 6:
            raise spec.error(f"classes={classes}: expected a number of classes")
        if not checkpoint:
            raise spec.error(
                "published weights have their own number of classes: name a file with "
                f"?checkpoint=FILE&classes={classes}"
            )
        arguments["num_classes"] = int(classes)
    hint = f"{spec.hint}, or name a file: timm:{name}?checkpoint=FILE"
    if checkpoint:
        arguments["checkpoint_path"], hint = str(existing(checkpoint, spec.text)), ""
    elif not on_hub:
        _check_torch_cache(spec, timm.get_pretrained_cfg(name), hint)
    with loading(spec, "timm could not load it", hint):
        net = timm.create_model(name, pretrained=not checkpoint, **arguments)
    config = timm.data.resolve_model_data_config(net)
    return Normalised(net, config["mean"], config["std"])


def _check_torch_cache(spec: Spec, config: Any, hint: str = "") -> None:
    """Raise if weights that are not on Hugging Face are absent from torch's cache.

    torch.hub, which timm then loads them with, has no offline switch.
    """
    if spec.download or config is None or config.hf_hub_id or not config.url:
        return
    name = PurePosixPath(urlparse(config.url).path).name
    cached = Path(torch.hub.get_dir(), "checkpoints", name)
    if not cached.is_file():
        raise spec.error(f"no weights at {cached}{hint or spec.hint}")


def load_huggingface(spec: Spec) -> nn.Module:
    """Load `hf:org/name` or `hf:FOLDER`: an image classifier of transformers.

    It is normalised as its image processor says. Weights are read from safetensors only.

    Args:
        spec: `hf:NAME` of an image classifier.
    """
    transformers = need("transformers", extra="hf", source=spec.text)
    place = spec.place
    if (folder := Path(place).expanduser()).is_dir():
        place = str(folder)
        _check_folder(spec, folder)
    fetch: dict[str, Any] = {"local_files_only": not spec.download, "trust_remote_code": False}
    what = "could not be loaded as an image classifier with safetensors weights"
    with loading(spec, what, spec.hint):
        processor = transformers.AutoImageProcessor.from_pretrained(place, **fetch)
        net, report = transformers.AutoModelForImageClassification.from_pretrained(
            place, use_safetensors=True, dtype=torch.float32, output_loading_info=True, **fetch
        )
    # Weights that the file lacks, or has in another shape, would be random.
    lacking: list[str] = []
    for key in ("missing_keys", "mismatched_keys"):
        lacking += [str(name) for name in report.get(key) or ()]
    if lacking:
        few = ", ".join(sorted(lacking)[:3]) + (", …" if len(lacking) > 3 else "")
        raise spec.error(
            f"its files lack {len(lacking)} of the weights, or have them in another shape ({few}): "
            "expected all of an image classifier; write them with model.save_pretrained(FOLDER)"
        )
    mean, std = _processor_statistics(spec, processor)
    flip = bool(getattr(processor, "do_flip_channel_order", False))
    return Normalised(Logits(net, flip=flip), mean, std)


def _check_folder(spec: Spec, folder: Path) -> None:
    if not list(folder.glob("*.safetensors")):
        found = ", ".join(sorted(path.name for path in folder.glob("*.bin"))) or "no weights"
        raise spec.error(
            f"found {found} in {folder}: expected model.safetensors, since pickled weights could "
            "run any code; write them with model.save_pretrained(FOLDER)"
        )
    if not (folder / "preprocessor_config.json").is_file():
        raise spec.error(
            f"no preprocessor_config.json in {folder}, so its normalisation is unknown; write it "
            "with processor.save_pretrained(FOLDER), or wrap the model in file.py:factory"
        )


def _processor_statistics(spec: Spec, processor: Any) -> tuple[list[float], list[float]]:
    """Return mean and std of the map from [0, 1] to what an image processor computes.

    A processor computes (255 x · rescale - mean) / std, each part only if it is switched on.
    EfficientNet's may subtract 1 after it has rescaled, and divide by std once more.
    """

    def switch(name: str) -> bool:
        return bool(getattr(processor, name, False))

    rescales, normalises = switch("do_rescale"), switch("do_normalize")
    divides_again = switch("include_top")
    scale = 255.0
    if rescales:
        scale *= float(getattr(processor, "rescale_factor", 1 / 255))
    mean, std = [0.0], [1.0]
    if normalises or divides_again:
        listed_mean = list(getattr(processor, "image_mean", None) or [])
        listed_std = list(getattr(processor, "image_std", None) or [])
        if not listed_mean or not listed_std:
            raise spec.error(
                "its image processor normalises, but names no image_mean and image_std"
            )
        mean = listed_mean if normalises else mean
        std = [value ** (normalises + divides_again) for value in listed_std]
    if rescales and switch("rescale_offset"):
        mean = [value + 1 for value in mean]
    return [value / scale for value in mean], [value / scale for value in std]


def load_robustbench(spec: Spec) -> nn.Module:
    """Load `robustbench:cifar10/Linf/NAME`: RobustBench's models, which normalise themselves.

    Checkpoints are looked for where RobustBench keeps them, `models/DATASET/THREAT/NAME.pt`.

    Args:
        spec: `robustbench:DATA/THREAT/NAME`; the option `dir` names another folder than `models`.
    """
    utils = robustbench_utils(spec)
    dataset, threat, name = robustbench_entry(spec, utils)
    folder = Path(spec.options.get("dir", "models")).expanduser()
    _check_checkpoints(spec, utils, folder, (dataset, threat, name))
    # It prints what it downloads; stdout is for results.
    with loading(spec, "RobustBench could not load it", spec.hint), redirect_stdout(sys.stderr):
        model: nn.Module = utils.load_model(
            name, model_dir=folder, dataset=dataset, threat_model=threat
        )
    return model


def robustbench_utils(spec: Spec) -> Any:
    """Import RobustBench's loader without the rest of the package.

    The package imports its evaluation, which needs modules that its own requirements do not
    bring along. An empty package in its place gives access to the loader.

    Args:
        spec: The source, for the message.
    """
    found = importlib.util.find_spec("robustbench") if "robustbench" not in sys.modules else None
    if found is None:
        return need("robustbench.utils", extra="robustbench", source=spec.text)
    package = ModuleType("robustbench")
    package.__path__ = list(found.submodule_search_locations or ())
    sys.modules["robustbench"] = package
    try:
        return need("robustbench.utils", extra="robustbench", source=spec.text)
    finally:
        del sys.modules["robustbench"]  # a later import gets the whole package


def robustbench_entry(spec: Spec, utils: Any) -> tuple[str, str, str]:
    """Return data set, threat model and name of one of RobustBench's models.

    Args:
        spec: `robustbench:DATA/THREAT/NAME`.
        utils: RobustBench's loader.
    """
    parts = spec.place.split("/")
    if len(parts) != 3:
        raise spec.error(
            "expected robustbench:DATASET/THREAT/NAME such as cifar10/Linf/Wong2020Fast"
        )
    dataset, threat, name = parts
    known = {}
    for data, threats in utils.all_models.items():
        for norm, models in threats.items():
            known[data.value, norm.value] = models
    if (dataset, threat) not in known:
        expected = ", ".join("/".join(pair) for pair in known)
        raise spec.error(f"RobustBench has no {dataset}/{threat}: expected one of {expected}")
    names = known[dataset, threat]
    if name not in names:
        near = get_close_matches(name, names, n=4, cutoff=0.4)
        hint = f"near it: {', '.join(near)}" if near else f"it has {len(names)} others"
        raise spec.error(f"RobustBench has no {name} in {dataset}/{threat}; {hint}")
    return dataset, threat, name


def _check_checkpoints(spec: Spec, utils: Any, folder: Path, entry: tuple[str, str, str]) -> None:
    """Raise if a checkpoint is absent and may not be downloaded."""
    dataset, threat, name = entry
    if spec.download:
        return
    timm_name = f"{name.lower().replace('-', '_')}_{dataset}_{threat.lower()}"
    if utils.timm.is_model(timm_name):
        _check_torch_cache(spec, utils.timm.get_pretrained_cfg(timm_name))
        return
    models = utils.all_models[utils.BenchmarkDataset(dataset)][utils.ThreatModel(threat)]
    drive_ids = models[name].get("gdrive_id")
    path = folder / dataset / threat / f"{name}.pt"
    paths = [path]
    if isinstance(drive_ids, list):
        paths = [Path(f"{path}_m{i}.pt") for i in range(len(drive_ids))]
    for path in paths:
        if not path.is_file():
            raise spec.error(
                f"no checkpoint at {path}; allow the download with --download (download=True), or "
                "put the file there"
            )
