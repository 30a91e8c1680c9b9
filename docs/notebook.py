"""Write the tutorial as a notebook: its text as cells of Markdown, its Python blocks as cells of code."""

import json
import re
from pathlib import Path

ROOT = Path(__file__).parents[1]


def cells(text: str) -> list[dict[str, object]]:
    """One cell for each block, and one for the text before it."""
    made: list[dict[str, object]] = []
    for k, part in enumerate(
        re.split(r"^```python\n(.*?)^```\n", text, flags=re.DOTALL | re.MULTILINE)
    ):
        source = part.strip("\n").splitlines(keepends=True)
        if not source:
            continue
        cell: dict[str, object] = {"id": f"cell-{k}", "metadata": {}, "source": source}
        extra = (
            {"cell_type": "code", "execution_count": None, "outputs": []}
            if k % 2
            else {"cell_type": "markdown"}
        )
        made.append(cell | extra)
    return made


def notebook() -> dict[str, object]:
    """The tutorial. Links to other pages lead from examples/ to docs/."""
    text = re.sub(r"\]\((\w+\.md)", r"](../docs/\1", (ROOT / "docs/tutorial.md").read_text())
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    return {
        "cells": cells(text),
        "metadata": {"kernelspec": kernel},
        "nbformat": 4,
        "nbformat_minor": 5,
    }


if __name__ == "__main__":
    content = json.dumps(notebook(), indent=1, ensure_ascii=False, sort_keys=True)
    (ROOT / "examples/tutorial.ipynb").write_text(content + "\n")
