"""Write the tutorial as a notebook: text as cells of Markdown, Python blocks as cells of code."""

from __future__ import annotations

import json
import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
BLOCK = re.compile(r"^```python\n(.*?)^```\n", re.DOTALL | re.MULTILINE)
LINK = re.compile(r"\]\((\w+\.md)")


def cells(text: str) -> list[dict[str, object]]:
    """Return one cell for each Python block, and one for the text before it.

    Args:
        text: The tutorial.
    """
    found: list[dict[str, object]] = []
    for index, part in enumerate(BLOCK.split(text)):
        source = part.strip("\n").splitlines(keepends=True)
        if not source:
            continue
        cell: dict[str, object] = {"id": f"cell-{index}", "metadata": {}, "source": source}
        if index % 2:
            cell |= {"cell_type": "code", "execution_count": None, "outputs": []}
        else:
            cell["cell_type"] = "markdown"
        found.append(cell)
    return found


def notebook() -> dict[str, object]:
    """Return the notebook; its links to other pages lead from examples/ to docs/."""
    text = LINK.sub(r"](../docs/\1", (ROOT / "docs/tutorial.md").read_text(encoding="utf-8"))
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    return {
        "cells": cells(text),
        "metadata": {"kernelspec": kernel},
        "nbformat": 4,
        "nbformat_minor": 5,
    }


if __name__ == "__main__":
    content = json.dumps(notebook(), indent=1, ensure_ascii=False, sort_keys=True)
    (ROOT / "examples/tutorial.ipynb").write_text(content + "\n", encoding="utf-8")
