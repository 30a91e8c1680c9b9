"""Write the distances of the golden test (tests/golden) anew.

Raise the version of the room that changed in src/advfrontier/numerics.py first: records that were
begun under another version cannot be extended.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from support.golden import FILE, write_golden

from advfrontier.numerics import NUMERICS


def main() -> int:
    """Write the file; refuse to replace distances of the same version by others."""
    torch.set_num_threads(1)  # as in the tests
    if FILE.exists():
        stored = json.loads(FILE.read_text(encoding="utf-8"))
        if stored["numerics"] == NUMERICS and "--force" not in sys.argv[1:]:
            print(
                f"{FILE} is of the same versions, {NUMERICS}: raise the one of the room that "
                "changed, or type --force where no record of them was ever made"
            )
            return 1
    write_golden(dict(NUMERICS))
    tables = json.loads(FILE.read_text(encoding="utf-8"))["distances"]
    runs = sum(len(table) for table in tables.values())
    print(f"{FILE}: {runs} runs, numerics {NUMERICS}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
