"""Full, failing and read-only file systems. Without the right to mount, a test is skipped."""

import os
import subprocess
import sys
from contextlib import contextmanager

import pytest


@contextmanager
def mounted(where, *options):
    """Mount something on a folder inside; skip the test where that is not permitted."""
    if sys.platform != "linux" or os.geteuid() != 0:
        pytest.skip("needs the right to mount")
    where.mkdir(exist_ok=True)
    words = ["mount", *options, str(where)]
    if subprocess.run(words, check=False, capture_output=True).returncode:  # noqa: S603
        pytest.skip("needs the right to mount")
    try:
        yield where
    finally:
        subprocess.run(["umount", str(where)], check=True)  # noqa: S603, S607


@contextmanager
def small_disk(where, size):
    """Mount a disk of this size, such as `64k`, on a folder."""
    with mounted(where, "-t", "tmpfs", "-o", f"size={size}", "tmpfs") as disk:
        yield disk


@contextmanager
def read_only(folder, where):
    """Show a folder in another place, where it cannot be written."""
    with mounted(where, "--bind", str(folder)) as view:
        words = ["mount", "-o", "remount,ro,bind", str(view)]
        subprocess.run(words, check=True)  # noqa: S603
        yield view


@contextmanager
def failing_device(file):
    """Put something in the place of a file whose reading is an input/output error."""
    words = ["mount", "--bind", f"/proc/{os.getpid()}/mem", str(file)]
    if sys.platform != "linux" or os.geteuid() != 0:
        pytest.skip("needs the right to mount")
    if subprocess.run(words, check=False, capture_output=True).returncode:  # noqa: S603
        pytest.skip("needs the right to mount")
    try:
        yield file
    finally:
        subprocess.run(["umount", str(file)], check=True)  # noqa: S603, S607
