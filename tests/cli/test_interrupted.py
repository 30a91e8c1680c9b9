"""Ctrl-C in the middle of a command: the same command resumes, with the same result."""

import signal
import subprocess
import sys
import time
from pathlib import Path

from advfrontier import Evaluation

# Where SIGINT is ignored, as for what a shell runs in the background, Python leaves it so.
PROGRAM = """
import signal
signal.signal(signal.SIGINT, signal.default_int_handler)
from advfrontier.cli import main
main()
"""


def units():
    return set(Path("a").rglob("units/*/*.safetensors"))  # not what is being written aside


def test_interrupted_extend_resumes(folder, run, evaluate, capsys):
    assert (
        evaluate("nets.py:net", "--norm", "L2", "--batch-size", "2", "-o", "a", "--no-report") == 0
    )
    before = units()
    words = [
        "extend",
        "a",
        "--model",
        "nets.py:net",
        "--queries",
        "400",
        "--workers",
        "0",
        "--no-report",
    ]
    command = [sys.executable, "-c", PROGRAM, *words]
    with subprocess.Popen(  # noqa: S603
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        while units() == before and process.poll() is None:
            time.sleep(0.01)
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=60)
    assert process.returncode == 130, errors
    assert "Interrupted. Progress is saved; run the same command to resume." in errors
    assert "Traceback" not in errors
    kept = {path: path.stat().st_mtime_ns for path in units() - before}
    assert kept

    assert run(*words) == 0
    assert {
        path: path.stat().st_mtime_ns for path in kept
    } == kept  # what was finished was not done again
    found = Evaluation.load("a/L2")
    assert found.ensemble.total == 400
    assert (
        evaluate(
            "nets.py:net",
            "--norm",
            "L2",
            "--batch-size",
            "2",
            "--queries",
            "400",
            "-o",
            "b",
            "--no-report",
        )
        == 0
    )
    assert (found.distances == Evaluation.load("b/L2").distances).all()
    assert run(*words) == 0  # and done is done
