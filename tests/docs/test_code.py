"""Code that reads: no comprehension inside another one."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "scripts" / "nested_comprehensions.py"


def check(folder):
    command = [sys.executable, str(SCRIPT), str(folder)]
    return subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603


def test_source_has_no_nested_comprehensions():
    done = check(ROOT / "src")
    assert done.stdout == ""
    assert done.returncode == 0


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("a = [x for row in rows for x in row]", True),
        ("a = [[x for x in row] for row in rows]", True),
        ("a = max(f(x for x in row) for row in rows)", True),
        ("a = [x for x in rows] + [y for y in rows]", False),
    ],
)
def test_nested_comprehension_is_found(line, found, tmp_path):
    (tmp_path / "some.py").write_text(f"\n{line}\n")
    done = check(tmp_path)
    assert (f"{tmp_path}/some.py:2: nested comprehension" in done.stdout) == found
    assert done.returncode == found
