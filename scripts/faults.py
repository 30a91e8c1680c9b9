"""Put 30 small faults into a copy of the package, one at a time, and count those the tests notice.

    python scripts/faults.py                # all; about ten minutes
    python scripts/faults.py report cli     # the faults of these rooms

A fault is noticed if the named tests of its room fail. The exit code is 1 if fewer than 27 of 30
(nine tenths) are noticed, or if a fault no longer fits the code.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
SHARE = 0.9


@dataclass(frozen=True)
class Fault:
    """A small change that makes the package wrong.

    Args:
        file: File of the package.
        right: Text of the file, which occurs in it once.
        wrong: Text in its place.
        tests: Test files of the room, without their folder.
        about: Kind of the fault.
    """

    file: str
    right: str
    wrong: str
    tests: tuple[str, ...]
    about: str

    @property
    def room(self) -> str:
        """Return the folder of the file."""
        return self.file.split("/")[0]


FAULTS = (
    Fault(
        "report/numbers.py",
        'f"{100 * share:.1f}" if known(share)',
        'f"{share:.1f}" if known(share)',
        ("test_numbers.py",),
        "unit: shares instead of percent",
    ),
    Fault(
        "report/numbers.py",
        "seconds < 7200 else",
        "seconds < 720 else",
        ("test_numbers.py",),
        "unit: hours from 12 minutes on",
    ),
    Fault(
        "report/numbers.py",
        '" to " if interval.low < 0',
        '" to " if interval.low > 0',
        ("test_numbers.py",),
        "inverted condition: a dash before a minus",
    ),
    Fault(
        "report/words.py",
        "return summary.robust[-1]",
        "return summary.robust[0]",
        ("test_words.py",),
        "order: the first radius instead of the last",
    ),
    Fault(
        "report/words.py",
        '{percent(averaged.median)} % "',
        '{percent(averaged.lowest)} % "',
        ("test_words.py",),
        "sentence: the median image gets the least share",
    ),
    Fault(
        "report/benchmark.py",
        'float((spans["max"] - spans["min"]).max())',
        'float((spans["max"] - spans["min"]).min())',
        ("test_benchmark.py",),
        'sentence: "at most" takes the least',
    ),
    Fault(
        "report/plots.py",
        "return sorted({*range(0, count, math.ceil(count / limit)), count - 1})",
        "return sorted({*range(0, count, math.ceil(count / limit))})",
        ("test_plots.py",),
        "a thinned curve loses its last step",
    ),
    Fault(
        "bench/tables.py",
        "first, last = min(budgets), max(budgets)",
        "last, first = min(budgets), max(budgets)",
        ("test_tables.py",),
        "order: the largest budget decides early",
    ),
    Fault(
        "bench/tables.py",
        "rising = [True, True, True, False, False]",
        "rising = [True, True, True, False, True]",
        ("test_tables.py",),
        "order: the worst DOI first",
    ),
    Fault(
        "bench/tables.py",
        'read["autoattack"] - read["accuracy"]',
        'read["accuracy"] - read["autoattack"]',
        ("test_tables.py",),
        "sign: the gain over AutoAttack",
    ),
    Fault(
        "bench/tables.py",
        "ordered.iloc[[-1, 0][: len(ordered)]]",
        "ordered.iloc[[0, -1][: len(ordered)]]",
        ("test_tables.py",),
        "order: best and worst case swapped",
    ),
    Fault(
        "bench/tables.py",
        'rows["distance"] > rows["radius"]',
        'rows["distance"] >= rows["radius"]',
        ("test_tables.py",),
        "boundary: a point at the radius counts as robust",
    ),
    Fault(
        "bench/tables.py",
        "np.isfinite(d).all()}",
        "np.isfinite(d).any()}",
        ("test_tables.py",),
        "a model with unbroken samples is trusted",
    ),
    Fault(
        "cli/options.py",
        "return time.time() + 60 * self.max_minutes",
        "return time.time() + 6 * self.max_minutes",
        ("test_options.py", "test_minutes.py"),
        "unit: 6 seconds a minute",
    ),
    Fault(
        "cli/options.py",
        "return room if room > 1 else 0",
        "return room",
        ("test_options.py",),
        "one worker process where none is needed",
    ),
    Fault(
        "cli/options.py",
        "if self.workers < 0:",
        "if self.workers <= 0:",
        ("test_options.py",),
        "boundary: --workers 0 is refused",
    ),
    Fault(
        "cli/options.py",
        "if len(given) > 1:",
        "if len(given) > 2:",
        ("test_options.py",),
        "conflict: --tier and --queries together pass",
    ),
    Fault(
        "cli/options.py",
        "if demand.norm not in evaluated:",
        "if demand.norm in evaluated:",
        ("test_gates.py", "test_options.py"),
        "inverted condition: requirements of other norms pass",
    ),
    Fault(
        "cli/output.py",
        "if key not in LONG}",
        "if key in LONG}",
        ("test_output.py",),
        "order: ids before figures, and figures lost",
    ),
    Fault(
        "sources/npz.py",
        "pixels = pixels.permute(0, 3, 1, 2)",
        "pixels = pixels.permute(0, 3, 2, 1)",
        ("test_npz.py",),
        "order: height and width swapped",
    ),
    Fault(
        "sources/npz.py",
        'numbers.dtype.kind not in "iu"',
        'numbers.dtype.kind not in "iuf"',
        ("test_npz.py",),
        "labels as floats are accepted",
    ),
    Fault(
        "sources/samples.py",
        "images.to(torch.float32) / 255",
        "images.to(torch.float32) / 256",
        ("test_samples.py",),
        "unit: 8-bit images divided by 256",
    ),
    Fault(
        "sources/cifar.py",
        "range(1, 6))",
        "range(1, 5))",
        ("test_cifar.py",),
        "the last training batch is left out",
    ),
    Fault(
        "sources/cifar.py",
        "if found != md5:",
        "if found == md5:",
        ("test_cifar.py",),
        "inverted condition: only other files are unpickled",
    ),
    Fault(
        "sources/pictures.py",
        "classes = tuple(sorted(set(texts)))",
        "classes = tuple(sorted(set(texts), reverse=True))",
        ("test_pictures.py",),
        "order: class numbers reversed",
    ),
    Fault(
        "evaluation/gate.py",
        "if found.high < self.least:",
        "if found.low < self.least:",
        ("test_gate.py",),
        "a gate fails although the interval holds the requirement",
    ),
    Fault(
        "evaluation/gate.py",
        'float(parts["least"]) / (100 if',
        'float(parts["least"]) / (10 if',
        ("test_gate.py",),
        "unit: percent divided by 10",
    ),
    Fault(
        "evaluation/gate.py",
        "tier = min(reached(each) for each in both)",
        "tier = max(reached(each) for each in both)",
        ("test_gate.py",),
        "order: models are compared at unequal queries",
    ),
    Fault(
        "evaluation/radii.py",
        "if norm is None or named in {None, norm}:",
        "if norm is None or named in {norm}:",
        ("test_radii.py", "test_settings.py"),
        "radii before any norm is named are dropped",
    ),
    Fault(
        "evaluation/baseline.py",
        'written = parse_radii(text or "", norm) or reference_radii(data, norm)',
        'written = reference_radii(data, norm) or parse_radii(text or "", norm)',
        ("test_baseline.py",),
        "order: customary radii override those of the user",
    ),
)


def run_tests(copy: Path, room: str, names: tuple[str, ...]) -> bool:
    """Return whether the tests pass, with the package of a copy."""
    files = [copy / "tests" / room / name for name in names]
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-x",
        "-q",
        "-p",
        "no:cacheprovider",
        "-m",
        "not slow",
    ]
    environment = {**os.environ, "PYTHONPATH": str(copy / "src"), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [*command, *(str(file) for file in files if file.exists())],
        cwd=copy,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode not in (0, 1):
        sys.exit(f"tests cannot be run: {done.stdout}{done.stderr}")
    return done.returncode == 0


def noticed(copy: Path, fault: Fault) -> bool | None:
    """Return whether tests fail with a fault; None if the fault does not fit the code."""
    path = copy / "src" / "advfrontier" / fault.file
    code = path.read_text(encoding="utf-8")
    if code.count(fault.right) != 1:
        return None
    path.write_text(code.replace(fault.right, fault.wrong), encoding="utf-8")
    try:
        return not run_tests(copy, fault.room, fault.tests)
    finally:
        path.write_text(code, encoding="utf-8")


def main() -> int:
    """Try every fault, and print which ones the tests noticed."""
    rooms = sys.argv[1:]
    chosen = [fault for fault in FAULTS if not rooms or fault.room in rooms]
    results = {True: "noticed", False: "NOT NOTICED", None: "DOES NOT FIT"}
    count = 0
    started = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder)
        for name in ("src", "tests", "docs", "examples", "scripts"):
            left_out = shutil.ignore_patterns("__pycache__")
            shutil.copytree(ROOT / name, copy / name, ignore=left_out)
        for name in ("pyproject.toml", "README.md", "CONTRIBUTING.md"):
            shutil.copy(ROOT / name, copy)
        for fault in chosen:
            result = noticed(copy, fault)
            count += result is True
            print(f"{results[result]:12}  {fault.file}: {fault.about}", flush=True)
    minutes = (time.monotonic() - started) / 60
    print(f"{count} of {len(chosen)} noticed in {minutes:.1f} minutes")
    return 0 if count >= SHARE * len(chosen) else 1


if __name__ == "__main__":
    sys.exit(main())
