"""The wheel: everything the program needs at run time is in it, and it works from any folder."""

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

pytest.importorskip("hatchling", reason="wheels are built with hatchling")
ROOT = Path(__file__).parent.parent

TRY = """
import sys
sys.path.insert(0, sys.argv[1])
import advfrontier
from pathlib import Path
assert Path(advfrontier.__file__).is_relative_to(sys.argv[1]), advfrontier.__file__
import torch
torch.set_num_threads(1)
from advfrontier.sources import load_data
from advfrontier.bench.benchmark import benchmark_names
from advfrontier.evaluation.compare import reference_pool
from advfrontier.zoo import MODELS, load
assert len([load(name) for name in MODELS]) == 18
assert len(load_data("fashion-mnist")) == 1000
assert set(benchmark_names()) >= {"paper", "fashion-mnist"}
assert set(reference_pool("L2", 12000).distances) == set(MODELS) - {"F17", "F18"}
from advfrontier.cli import main
main(["evaluate", "zoo:F5", "-n", "5", "--norm", "L2", "--queries", "20", "--workers", "0"])
assert Path("runs/zoo+F5/report.html").read_text(encoding="utf-8").startswith("<!")
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", folder]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)  # noqa: S603
    return next(folder.glob("*.whl"))


def test_wheel_works_from_any_folder(wheel, tmp_path):
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path / "installed")
        assert not [
            name for name in archive.namelist() if name.startswith("tests") or "checkpoint" in name
        ]
    (tmp_path / "elsewhere").mkdir()
    command = [sys.executable, "-c", TRY, tmp_path / "installed"]
    subprocess.run(command, cwd=tmp_path / "elsewhere", check=True)  # noqa: S603


def test_embedded_files_stay_small(wheel):
    with zipfile.ZipFile(wheel) as archive:
        sizes = {entry.filename: entry.file_size for entry in archive.infolist()}
    assert (
        sum(size for name, size in sizes.items() if name.startswith("advfrontier/zoo/weights/"))
        <= 12 * 10**6
    )
    assert any("LICENCE" in name for name in sizes if name.startswith("advfrontier/zoo/data/"))
