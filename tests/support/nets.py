"""The publicly trained nets that lie beside the repository on some machines: `../shared/nets`."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

FOLDER = Path(__file__).resolve().parents[3] / "shared" / "nets"
NAMES = (
    "cifar_resnet2b",
    "cifar_cnn_a_adv",
    "cifar_cnn_a_mix4",
    "cifar_conv_small_pgd",
    "cifar_base_kw",
    "cifar_resnet20_plain",
    "mnist_smallcnn_trades",
    "mnist_small_kw_0_1",
    "mnist_cnn_a_adv",
    "mnist_small_fgsm",
)

needs_nets = pytest.mark.skipif(
    not (FOLDER / "nets.py").exists(), reason="the shared nets are not beside the repository"
)


def net(name, count):
    """A net with its first test images and their labels."""
    spec = importlib.util.spec_from_file_location("shared_nets", FOLDER / "nets.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.load(name), *module.images(module.NETS[name][0], count)
