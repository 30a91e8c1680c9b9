from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
NEEDED = ("zensical", "mkdocstrings_handlers")


@pytest.fixture(scope="session")
def site(tmp_path_factory):
    """Return the folder of the site, built once for all workers; a warning is an error."""
    if not all(map(find_spec, NEEDED)):
        pytest.skip("the site needs Zensical: pip install 'advfrontier[docs]'")
    own = tmp_path_factory.getbasetemp()
    folder = (own.parent if "PYTEST_XDIST_WORKER" in os.environ else own) / "docs-project"
    with folder.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.exists():
            building = folder.with_name("docs-project-building")
            building.mkdir()
            shutil.copy(ROOT / "mkdocs.yml", building)
            shutil.copytree(ROOT / "docs", building / "docs")
            (building / "src").symlink_to(ROOT / "src")
            command = [sys.executable, "-m", "zensical", "build", "--strict", "--clean"]
            built = subprocess.run(  # noqa: S603
                command,
                cwd=building,
                env={**os.environ, "NO_COLOR": "1"},
                capture_output=True,
                text=True,
                check=False,
            )
            assert built.returncode == 0, built.stdout + built.stderr
            building.rename(folder)
    return folder / "build" / "site"
