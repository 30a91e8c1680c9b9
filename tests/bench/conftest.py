import pytest
from bench_nets import FILE

from advfrontier.bench.benchmark import load_benchmark
from advfrontier.evaluation.bench import Bench

TINY = """
name = "tiny"
samples = {samples}
seed = 42
norms = {norms}
pool = {pool}
budgets = [40, 80]

[data.fashion-mnist]
source = "fashion-mnist"
radii = {{ L2 = 1.1 }}
"""

MODEL = """
[[models]]
id = "{id}"
source = "{nets}:{id}"
data = "fashion-mnist"
split = "{split}"
batch = 6
"""


@pytest.fixture
def tiny(tmp_path):
    """Write a benchmark that takes a second, and open it in a folder."""

    def make(*, models=("plain", "noisy"), norms=("L2",), pool=("fmn", "ddn"), samples=8):
        text = TINY.format(samples=samples, norms=list(norms), pool=list(pool))
        for k, model in enumerate(models):
            text += MODEL.format(id=model, nets=FILE, split="held-out" if k == 1 else "train")
        (tmp_path / "tiny.toml").write_text(text)
        return Bench(load_benchmark(tmp_path / "tiny.toml"), str(tmp_path / "out"))

    return make
