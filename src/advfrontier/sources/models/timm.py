"""`timm:NAME`: timm's models with their own normalisation. `?checkpoint=FILE` loads weights from a file."""

from __future__ import annotations

from torch import nn

from advfrontier.sources.extras import need
from advfrontier.sources.guards import connections, download_hint, explaining, weights_only
from advfrontier.sources.pixels import Normalised
from advfrontier.sources.spec import Spec, existing


def load(spec: Spec, *, download: bool) -> nn.Module:
    """Build the model, load its weights, normalise as its data configuration says."""
    timm = need("timm", extra="timm", source=spec.text)
    need("timm.data", extra="timm", source=spec.text)
    if not spec.place.startswith(("hf-hub:", "hf_hub:")) and not timm.is_model(spec.place):
        near = timm.list_models(f"*{spec.place.partition('.')[0]}*")[:5]
        hint = f"near it: {', '.join(near)}" if near else "timm.list_models() has them all"
        raise spec.error(f"timm {timm.__version__} has no model {spec.place!r}; {hint}")
    arguments: dict[str, int | str] = {}
    if classes := spec.options.get("classes"):
        if not classes.isdecimal() or len(classes) > 6:
            raise spec.error(f"classes={classes}: expected a number of classes")
        if "checkpoint" not in spec.options:
            raise spec.error(
                f"published weights have their own number of classes: name a file with "
                f"?checkpoint=FILE&classes={classes}"
            )
        arguments["num_classes"] = int(classes)
    checkpoint = spec.options.get("checkpoint")
    if checkpoint:
        arguments["checkpoint_path"] = str(existing(checkpoint, spec.text))
    hint = (
        "" if checkpoint else f"{download_hint(download=download)}, or name a file: timm:{spec.place}?checkpoint=FILE"
    )
    what = f"{spec.text}: timm could not load it"
    with explaining(what, hint), connections(allowed=download), weights_only(spec.text):
        net = timm.create_model(spec.place, pretrained=not checkpoint, **arguments)
    config = timm.data.resolve_model_data_config(net)
    return Normalised(net, config["mean"], config["std"])
