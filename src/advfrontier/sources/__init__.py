"""Where models and images come from: `load_model`, `load_data`, `as_samples`. Nothing is downloaded unless asked."""

from advfrontier.engine.data import Samples
from advfrontier.sources.data import load_data
from advfrontier.sources.models import load_model, runs_code
from advfrontier.sources.models.libraries import Normalised
from advfrontier.sources.samples import as_samples

__all__ = ["Normalised", "Samples", "as_samples", "load_data", "load_model", "runs_code"]
