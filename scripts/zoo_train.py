"""Train models of the zoo into a folder: all that are not there yet, or the named ones.

Interrupt it when you like: it goes on from the last checkpoint. `minutes.toml` in the folder adds
up the time spent.
"""

from __future__ import annotations

import argparse
import time
import tomllib
from pathlib import Path

from advfrontier import zoo


def main() -> None:
    """Train, and note the core-minutes."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("names", nargs="*", default=list(zoo.MODELS))
    parser.add_argument("--data", default=None, help="folder of the four files of Fashion-MNIST")
    asked = parser.parse_args()
    for name in asked.names:
        out = asked.folder / f"{name}.safetensors"
        if out.exists():
            continue
        started = time.process_time()
        try:
            zoo.train(name, asked.data, out)
        finally:
            note(asked.folder / "minutes.toml", name, (time.process_time() - started) / 60)
        print(f"{name}: {out}")


def note(path: Path, name: str, minutes: float) -> None:
    """Add the minutes to those that earlier, interrupted trainings of the model took."""
    spent = tomllib.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    spent[name] = spent.get(name, 0.0) + minutes
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(
        "".join(f"{key} = {value:.3f}\n" for key, value in spent.items()), encoding="utf-8"
    )


if __name__ == "__main__":
    main()
