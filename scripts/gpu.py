"""Run the engine's tests and the overheads on the GPU of this machine, if it has one."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from advfrontier.engine import find_device

HERE = Path(__file__).resolve().parents[1]


def main() -> int:
    """Run both; exit with the code of the first that fails."""
    device = find_device("auto").type
    if device == "cpu":
        print("make gpu: no GPU is present, nothing was run")
        return 0
    commands = (
        ["-m", "pytest", "tests/engine", "--device", device, "-m", "not slow"],
        ["scripts/bench_overhead.py", "--device", device],
    )
    for command in commands:
        code = subprocess.run([sys.executable, *command], cwd=HERE, check=False).returncode
        if code:
            return code
    return 0


if __name__ == "__main__":
    sys.exit(main())
