"""Memory that a step frees is there for the next step."""

import platform
import resource

import pytest
import torch

from advfrontier.engine.memory import keep_freed_memory


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc hands freed memory back at once")
def test_freed_memory_is_not_asked_for_again():
    keep_freed_memory()

    def step():
        for _ in range(4):
            torch.zeros(2**21)  # 8 MB: 2048 pages

    step()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    step()
    assert resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before < 1000
