"""A folder with models and data, and a way to run commands in it."""

from pathlib import Path

import numpy as np
import pytest
from support.models import conv_net, samples

from advfrontier.cli import main

TESTS = str(Path(__file__).parent.parent)
NETS = f"""
import sys
sys.path.insert(0, {TESTS!r})
import torch
from torch import nn
from support.models import conv_net

def net():
    return conv_net((1, 6, 6), classes=10, seed=5)

def weaker():
    model = conv_net((1, 6, 6), classes=10, seed=5)
    with torch.no_grad():
        seeded = torch.Generator().manual_seed(0)
        model[-1].weight += 0.02 * torch.randn(model[-1].weight.shape, generator=seeded)
    return model

def flat():
    return nn.Flatten(0)

def rows():
    with torch.random.fork_rng():
        torch.manual_seed(0)
        layer = nn.Linear(4, 2)
    with torch.no_grad():
        layer.bias.copy_(torch.tensor([4.0, -4.0]))
    return layer

def single():
    return nn.Sequential(nn.Flatten(), nn.Linear(36, 1))

def broken():
    raise ValueError("no weights today")

number = 3
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "nets.py").write_text(NETS)
    images, labels = samples(conv_net((1, 6, 6), classes=10, seed=5), 8, (1, 6, 6), seed=5)
    np.savez(tmp_path / "data.npz", images=images.numpy(), labels=labels.numpy())
    np.savez(tmp_path / "bytes.npz", images=(images * 255).numpy(), labels=labels.numpy())
    np.savez(tmp_path / "many.npz", images=images.numpy(), labels=(labels + 90).numpy())
    return tmp_path


@pytest.fixture
def run():
    """Run a command in this process; return its exit code."""

    def command(*words):
        try:
            main([*words])
        except SystemExit as end:
            return end.code or 0
        return 0

    return command


@pytest.fixture
def evaluate(run):
    """Evaluate with a few queries in this process."""

    def command(model, *words):
        data = [] if "--data" in words or "-d" in words else ["--data", "npz:data.npz"]
        budget = [] if {"--tier", "--queries", "--ensemble"} & set(words) else ["--queries", "100"]
        return run("evaluate", model, *data, *budget, *words, "--workers", "0")

    return command
