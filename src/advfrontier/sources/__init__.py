"""Where models and images come from: `load_model`, `load_samples`, `as_samples`. Nothing is downloaded unless asked."""

from advfrontier.sources.data import load_samples
from advfrontier.sources.models import load_model
from advfrontier.sources.samples import Samples, as_samples

__all__ = ["Samples", "as_samples", "load_model", "load_samples"]
