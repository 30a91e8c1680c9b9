"""`timm:NAME`: timm's models with their own normalisation. `?checkpoint=FILE` loads weights from a file."""

from __future__ import annotations

from typing import TYPE_CHECKING

from advfrontier.errors import FrontierError
from advfrontier.sources.extras import need
from advfrontier.sources.guards import connections, weights_only
from advfrontier.sources.normalise import Normalised
from advfrontier.sources.spec import existing_file

if TYPE_CHECKING:
    from torch import nn

    from advfrontier.sources.spec import Spec


def load(spec: Spec, *, download: bool) -> nn.Module:
    """Build the model, load its weights, normalise as its data configuration says."""
    timm = need("timm", extra="timm", source=spec.text)
    need("timm.data", extra="timm", source=spec.text)
    if not spec.place.startswith(("hf-hub:", "hf_hub:")) and not timm.is_model(spec.place):
        near = timm.list_models(f"*{spec.place.partition('.')[0]}*")[:5]
        hint = f"near it: {', '.join(near)}" if near else "timm.list_models() has them all"
        raise FrontierError(f"{spec.text}: timm {timm.__version__} has no model {spec.place!r}; {hint}")
    arguments: dict[str, int | str] = {}
    if classes := spec.options.get("classes"):
        if not classes.isdecimal():
            raise FrontierError(f"{spec.text}: classes={classes}: expected a number of classes")
        arguments["num_classes"] = int(classes)
    checkpoint = spec.options.get("checkpoint")
    if checkpoint:
        arguments["checkpoint_path"] = str(existing_file(checkpoint, spec.text))
    try:
        with connections(allowed=download), weights_only(spec.text):
            net = timm.create_model(spec.place, pretrained=not checkpoint, **arguments)
    except FrontierError:
        raise
    except Exception as error:
        if checkpoint or download:
            raise FrontierError(f"{spec.text}: timm could not load it ({type(error).__name__}: {error})") from error
        raise FrontierError(
            f"{spec.text}: its weights are not on this machine ({type(error).__name__}); allow the download with "
            f"--download (download=True), or name a file: timm:{spec.place}?checkpoint=FILE"
        ) from error
    config = timm.data.resolve_model_data_config(net)
    return Normalised(net, config["mean"], config["std"])
