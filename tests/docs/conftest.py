from __future__ import annotations

import fcntl
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
NEEDED = ("mkdocs", "material", "mkdocstrings_handlers")


@pytest.fixture(scope="session")
def site(tmp_path_factory):
    """The folder of the site, built once whatever the number of workers; a warning is an error."""
    if not all(map(find_spec, NEEDED)):
        pytest.skip("the site needs mkdocs: pip install 'advfrontier[docs]'")
    own = tmp_path_factory.getbasetemp()
    folder = (own.parent if "PYTEST_XDIST_WORKER" in os.environ else own) / "site"
    with (folder.parent / "site.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.exists():
            building = folder.with_name("site-building")
            built = subprocess.run(  # noqa: S603
                [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(building)],
                cwd=ROOT, capture_output=True, text=True, check=False,
            )  # fmt: skip
            assert built.returncode == 0, built.stdout + built.stderr
            building.rename(folder)
    return folder
