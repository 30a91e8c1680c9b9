"""The recipes of CONTRIBUTING.md, followed to the letter in a copy of the package."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
# A block that is a whole file begins with its name, a line to add with file and place.
WHOLE = re.compile(r"# (\S+\.py)")
LINE = re.compile(r"# (\S+\.py): (\w+)")


def blocks_of(recipe):
    """Return the code blocks of a section as pairs of first line and rest."""
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    section = text.partition(f"## Recipe: {recipe}\n")[2].partition("\n## ")[0]
    blocks = re.findall(r"^```python\n(.*?)^```", section, re.DOTALL | re.MULTILINE)
    return [block.split("\n", 1) for block in blocks]


def add_line(file, place, line):
    """Add a line: an import in its order, an entry of a tuple or dict, or after the last call."""
    text = file.read_text(encoding="utf-8")
    if place == "import":
        earlier = [found for found in re.findall(r"^from .+$", text, re.MULTILINE) if found < line]
        changed = text.replace(f"{earlier[-1]}\n", f"{earlier[-1]}\n{line}\n", 1)
    elif found := re.search(rf"^{place}: dict.* = {{$", text, re.MULTILINE):
        changed = f"{text[: found.end()]}\n    {line}{text[found.end() :]}"
    elif f"{place} = (" in text:
        before, opening, after = text.partition(f"{place} = (\n")
        entries, closing, rest = after.partition("\n)\n")
        changed = f"{before}{opening}{entries}\n    {line}{closing}{rest}"
    else:
        before, call, after = text.rpartition(f"\n{place}(")
        end = "\n)\n" if after.startswith("\n") else "\n"
        end_of_call, newline, rest = after.partition(end)
        changed = f"{before}{call}{end_of_call}{newline}{line}\n{rest}"
    assert changed != text
    file.write_text(changed, encoding="utf-8")


def follow(recipe, folder):
    """Do what a recipe says in a copy of the package; return the files of both kinds."""
    shutil.copytree(
        ROOT / "src/advfrontier",
        folder / "src/advfrontier",
        ignore=shutil.ignore_patterns("__pycache__"),
    )
    new, changed = [], []
    for first, rest in blocks_of(recipe):
        whole, line = WHOLE.fullmatch(first), LINE.fullmatch(first)
        assert whole or line, first
        if line:
            add_line(folder / line[1], line[2], rest.strip())
            assert rest.count("\n") == 1  # one line
            changed.append(line[1])
        else:
            path = folder / whole[1]
            assert not path.exists()
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(rest, encoding="utf-8")
            new.append(whole[1])
    return new, changed


def run(folder, *command):
    """Run Python in the copy."""
    done = subprocess.run(  # noqa: S603
        [sys.executable, *command],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(folder / "src"), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize(
    ("recipe", "files", "line"),
    [
        (
            "a solver",
            ["src/advfrontier/solvers/newton.py", "tests/solvers/test_newton.py"],
            ["src/advfrontier/pool/catalogue.py"],
        ),
        (
            "a norm",
            ["src/advfrontier/threat/colours.py", "tests/threat/test_colours.py"],
            ["src/advfrontier/threat/names.py"],
        ),
        (
            "a source",
            ["src/advfrontier/sources/tensors.py", "tests/sources/test_tensors.py"],
            2 * ["src/advfrontier/sources/__init__.py"],
        ),
    ],
)
def test_recipe_works_as_written(recipe, files, line, tmp_path):
    assert follow(recipe, tmp_path) == (files, line)
    tests = run(tmp_path, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-W", "error", files[1])
    assert " passed" in tests
    where = run(tmp_path, "-c", "import advfrontier; print(advfrontier.__file__)")
    assert where.startswith(str(tmp_path))  # the copy was tested, not the package

    pytest.importorskip("ruff", reason="ruff is not installed: pip install ruff")
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    run(tmp_path, "-m", "ruff", "format", "--check", "--no-cache", *files, *line)
    run(tmp_path, "-m", "ruff", "check", "--no-cache", *files, *line)
