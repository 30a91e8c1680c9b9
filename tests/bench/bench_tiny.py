"""Benchmarks that take seconds, and rows of their tables written by hand."""

import numpy as np
from bench_nets import FILE

from advfrontier.bench.frame import make_rows

TINY = """
samples = 3
budgets = [40, 80]
pool = {pool}
{more}baseline = "held-out"

[data.fashion-mnist]
source = "fashion-mnist"
radii = {{ L0 = 12, L2 = 1.1 }}
"""

MODEL = """
[[models]]
id = "{id}"
source = "{nets}:{id}"
data = "fashion-mnist"
split = "{split}"
batch = 4
"""

NORMS = ("L0", "L2")


def write_tiny(folder, *, models=("plain", "noisy"), pool=("fmn", "sigma_zero", "ddn"), more=""):
    """Write a benchmark that takes seconds; the second model is held out."""
    text = TINY.format(pool=str(list(pool)).replace("'", '"'), more=more)
    for place, model in enumerate(models):
        split = "held-out" if place == 1 else "train"
        text += MODEL.format(id=model, nets=FILE, split=split)
    path = folder / "tiny.toml"
    path.write_text(text, encoding="utf-8")
    return path


def rows_of(norm, model, split, found, *, data="d", samples=None):
    """Return rows of a table of distances: found is (ensemble, budget) to distances."""
    count = len(next(iter(found.values())))
    names = samples or [f"s{k}" for k in range(count)]
    arrays = {key: np.array(values, dtype=float) for key, values in found.items()}
    return make_rows(
        norm=norm, model=model, data=data, split=split, samples=names, distances=arrays
    )
