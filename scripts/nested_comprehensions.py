"""List comprehensions that hold another one or loop twice: write them as plain loops.

    python scripts/nested_comprehensions.py [FOLDER …]      # src by default

`make check` runs it; it exits with 1 if there are any.
"""

from __future__ import annotations

import ast
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)


def nested(code: str) -> list[int]:
    """Return the lines of comprehensions that hold another one or have several `for`."""
    lines = []
    for node in ast.walk(ast.parse(code)):
        if not isinstance(node, COMPREHENSIONS):
            continue
        inner = [each for each in ast.walk(node) if isinstance(each, COMPREHENSIONS)]
        if len(node.generators) > 1 or len(inner) > 1:
            lines.append(node.lineno)
    return sorted(lines)


def main() -> int:
    """Print file and line of each."""
    folders = [Path(name) for name in sys.argv[1:]] or [ROOT / "src"]
    count = 0
    for folder in folders:
        for file in sorted(folder.rglob("*.py")):
            for line in nested(file.read_text(encoding="utf-8")):
                print(
                    f"{file}:{line}: nested comprehension: write a loop with a named intermediate"
                )
                count += 1
    return 1 if count else 0


if __name__ == "__main__":
    sys.exit(main())
