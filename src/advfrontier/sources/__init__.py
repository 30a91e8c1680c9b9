"""Temporary."""

from advfrontier.engine.data import Samples
from advfrontier.sources.data import load_samples
from advfrontier.sources.models import load_model
from advfrontier.sources.samples import as_samples as _as_samples


def _new(s):
    return Samples(s.name, s.labels, s.images, s.class_names)


def as_samples(*a, **k):
    return _new(_as_samples(*a, **k))


def load_data(*a, **k):
    return _new(load_samples(*a, **k))


def runs_code(spec):
    return ".py:" in spec or spec.split(":")[0] not in {"zoo", "timm", "robustbench", "hf", "onnx", "export"}
