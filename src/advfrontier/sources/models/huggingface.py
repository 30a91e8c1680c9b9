"""`hf:org/name` or `hf:FOLDER`: image classifiers of transformers, normalised as their image processor says.

Weights are read from safetensors only, and code that comes with a model is never run.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from advfrontier.sources.extras import need
from advfrontier.sources.guards import connections, download_hint, explaining, weights_only
from advfrontier.sources.pixels import Normalised
from advfrontier.sources.spec import Spec


class Logits(nn.Module):
    """The logits of a classifier that returns them with other things, with its channels in the order it wants."""

    def __init__(self, net: nn.Module, *, flip: bool) -> None:
        super().__init__()
        self.net, self.flip = net, flip

    def forward(self, images: Tensor) -> Tensor:
        """Return the logits alone."""
        logits: Tensor = self.net(images.flip(1) if self.flip else images).logits
        return logits


def load(spec: Spec, *, download: bool) -> nn.Module:
    """Load the classifier and the configuration of its image processor."""
    transformers = need("transformers", extra="hf", source=spec.text)
    place = spec.place
    if Path(place).expanduser().is_dir():
        place = str(Path(place).expanduser())
        _check_folder(spec, Path(place))
    fetch: dict[str, Any] = {"local_files_only": not download, "trust_remote_code": False}
    what = f"{spec.text}: could not be loaded as an image classifier with safetensors weights"
    with explaining(what, download_hint(download=download)), connections(allowed=download), weights_only(spec.text):
        processor = transformers.AutoImageProcessor.from_pretrained(place, **fetch)
        net, report = transformers.AutoModelForImageClassification.from_pretrained(
            place, use_safetensors=True, dtype=torch.float32, output_loading_info=True, **fetch
        )
    _check_complete(spec, report)
    return _normalised(spec, net, processor)


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


def _check_complete(spec: Spec, report: Mapping[str, Any]) -> None:
    """Weights that the file lacks, or has in another shape, would be random."""
    lacking = sorted(str(name) for key in ("missing_keys", "mismatched_keys") for name in report.get(key) or ())
    if lacking:
        few = ", ".join(lacking[:3]) + (", …" if len(lacking) > 3 else "")
        raise spec.error(
            f"its files lack {len(lacking)} of the weights, or have them in another shape ({few}): "
            "expected all of an image classifier; write them with model.save_pretrained(FOLDER)"
        )


def _normalised(spec: Spec, net: nn.Module, processor: Any) -> nn.Module:
    """A processor computes (255 x · rescale - mean) / std, each part only if it is switched on."""
    scale = 255 * float(getattr(processor, "rescale_factor", 1 / 255)) if _on(processor, "do_rescale") else 255.0
    mean, std = [0.0], [1.0]
    if _on(processor, "do_normalize"):
        mean, std = (list(getattr(processor, f"image_{name}", None) or []) for name in ("mean", "std"))
        if not mean or not std:
            raise spec.error("its image processor normalises, but names no image_mean and image_std")
    inner = Logits(net, flip=_on(processor, "do_flip_channel_order"))
    return Normalised(inner, [value / scale for value in mean], [value / scale for value in std])


def _on(processor: Any, switch: str) -> bool:
    return bool(getattr(processor, switch, False))
