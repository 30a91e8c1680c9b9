"""Training: every method learns, and an interrupted training ends with the very same bits."""

import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from zoo_files import write_set

from advfrontier import zoo
from advfrontier.errors import FrontierError
from advfrontier.progress import Silent
from advfrontier.zoo import training
from advfrontier.zoo.architectures import ARCHITECTURES
from advfrontier.zoo.cards import Recipe

RECIPES = {
    "plain": Recipe("mlp", "plain", 1, 6, batch=50),
    "noise": Recipe("vit", "noise", 1, 10, sigma=0.1, batch=50),
    "linf": Recipe("cnn", "pgd", 1, 8, radii={"linf": 0.06}, steps=3, batch=50),
    "l2": Recipe("patch-cnn", "pgd", 1, 8, radii={"l2": 1.0}, steps=3, batch=50),
    "l1": Recipe("mlp", "pgd", 1, 6, radii={"l1": 6}, steps=3, batch=50),
    "l0": Recipe("mlp", "pgd", 1, 6, radii={"l0": 8}, steps=3, batch=50),
    "union": Recipe(
        "mlp", "union", 1, 6, radii={"l1": 6, "l2": 1, "linf": 0.06}, steps=3, batch=50
    ),
    "trades": Recipe("mlp", "trades", 1, 6, radii={"linf": 0.06}, steps=3, beta=2.0, batch=50),
    "fast": Recipe("resnet", "fast", 1, 8, radii={"linf": 0.06}, batch=50),
    "calibrated": Recipe(
        "mlp", "calibrated", 1, 8, radii={"linf": 0.1}, steps=3, rho=10.0, batch=50
    ),
    "masked": Recipe("masked-cnn", "plain", 1, 6, batch=50),
    "exact": Recipe("exact-mlp", "plain", 1, 40, batch=50),
}


class Killed(Silent):
    """Stops the training in the middle of a step, after it has been counted so many times."""

    def __init__(self, after):
        super().__init__()
        self.after = after

    def advance(self, count):
        super().advance(count)
        if self.done >= self.after:
            raise KeyboardInterrupt


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    folder = tmp_path_factory.mktemp("idx")
    return folder, *write_set(folder, 500)


LONGER = {
    "l1",
    "l0",
    "union",
}  # an architecture that others learn with too, and attacks that have tests of their own


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=pytest.mark.slow if name in LONGER else []) for name in RECIPES],
)
def test_every_method_and_architecture_learns(name, data, tmp_path):
    _, images, labels = data
    model = training.fit(RECIPES[name], images, labels, tmp_path / "c", Silent())
    with torch.no_grad():
        right = model(images.float()[:, None] / 255).argmax(1) == labels
    assert right.float().mean() > 0.9
    assert {recipe.architecture for recipe in RECIPES.values()} == set(ARCHITECTURES)


@pytest.mark.parametrize(
    "name",
    [
        "plain",
        "union",
        "trades",
        *(pytest.param(n, marks=pytest.mark.slow) for n in ("noise", "l0")),
    ],
)
def test_interrupted_training_ends_with_the_same_bits(name, data, tmp_path, monkeypatch):
    _, images, labels = data
    recipe = RECIPES[name]
    whole = training.fit(recipe, images, labels, tmp_path / "whole", Silent()).state_dict()
    monkeypatch.setattr(training, "CHECKPOINT_SECONDS", 0.0)
    checkpoint = tmp_path / "parts"
    for after in (7, 23):  # in the middle of the first and of the third epoch
        torch.manual_seed(after)  # the global generator plays no part
        with pytest.raises(KeyboardInterrupt, match=r"^$"):
            training.fit(recipe, images, labels, checkpoint, Killed(after))
    shown = Silent()
    rest = training.fit(recipe, images, labels, checkpoint, shown).state_dict()
    assert shown.done == training.total_steps(recipe, len(images))
    assert all(torch.equal(whole[key], rest[key]) for key in whole)


def test_training_leaves_the_global_state_alone(data, tmp_path):
    _, images, labels = data
    state, threads = torch.get_rng_state(), torch.get_num_threads()
    training.fit(replace(RECIPES["l1"], epochs=1), images, labels, tmp_path / "c", Silent())
    assert torch.equal(state, torch.get_rng_state())
    assert torch.get_num_threads() == threads


def test_seeds_matter(data, tmp_path):
    _, images, labels = data
    a, b = (
        training.fit(
            Recipe("mlp", "plain", seed, 1), images, labels, tmp_path / "c", Silent()
        ).state_dict()
        for seed in (1, 2)
    )
    assert not torch.equal(a["2.weight"], b["2.weight"])


def test_checkpoint_of_another_recipe_is_refused(data, tmp_path, monkeypatch):
    _, images, labels = data
    monkeypatch.setattr(training, "CHECKPOINT_SECONDS", 0.0)
    with pytest.raises(KeyboardInterrupt, match=r"^$"):
        training.fit(RECIPES["plain"], images, labels, tmp_path / "c", Killed(3))
    with pytest.raises(FrontierError, match="another recipe"):
        training.fit(RECIPES["fast"], images, labels, tmp_path / "c", Silent())
    (tmp_path / "c").write_bytes(b"torn")
    with pytest.raises(FrontierError, match="no checkpoint"):
        training.fit(RECIPES["plain"], images, labels, tmp_path / "c", Silent())


def test_too_few_images_are_refused(data, tmp_path):
    _, images, labels = data
    with pytest.raises(FrontierError, match="49 training images"):
        training.fit(RECIPES["plain"], images[:49], labels[:49], tmp_path / "c", Silent())


SCRIPT = """
import sys
from advfrontier import zoo
from advfrontier.zoo import training
training.CHECKPOINT_SECONDS = 0.0
zoo.train("F5", sys.argv[1], sys.argv[2], progress=False)
"""


@pytest.mark.slow  # the same as above, with a process of its own
def test_killed_training_resumes(data, tmp_path):
    """The public function, a real SIGKILL at any moment, and the same file of weights in the
    end.
    """
    folder, *_ = data
    out = tmp_path / "part" / "F5.safetensors"
    command = [sys.executable, "-c", SCRIPT, str(folder), str(out)]
    process = subprocess.Popen(command)  # noqa: S603
    checkpoint = out.with_suffix(".checkpoint")
    limit = time.monotonic() + 300
    while not checkpoint.exists() and process.poll() is None and time.monotonic() < limit:
        time.sleep(0.005)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    assert checkpoint.exists(), "killed too late: nothing was left to do"
    assert not out.exists()
    assert zoo.train("f5", folder, out, progress=False) == out
    assert not checkpoint.exists()
    (tmp_path / "whole").mkdir()
    whole = zoo.train("F5", folder, tmp_path / "whole", progress=False)
    assert whole.name == "F5.safetensors"
    assert whole.read_bytes() == out.read_bytes()


def test_progress_is_shown(data, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("advfrontier.progress.PATIENCE", 0.0)
    zoo.train("F5", data[0], tmp_path / "x.safetensors")
    assert "training F5: 1 of 60 batches" in capsys.readouterr().err


def test_weights_go_where_they_are_wanted(data, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(zoo.MODELS, "F1", replace(zoo.MODELS["F1"], recipe=RECIPES["plain"]))
    assert zoo.train("F1", data[0], progress=False) == Path("F1.safetensors")
    assert (tmp_path / "F1.safetensors").is_file()


@pytest.mark.parametrize(
    "bad", [{"method": "magic"}, {"method": "pgd"}, {"method": "plain", "radii": {"l2": 1.0}}]
)
def test_recipes_that_make_no_sense_are_refused(bad):
    with pytest.raises(FrontierError, match="recipe of method"):
        Recipe(**{"architecture": "mlp", "seed": 0, "epochs": 1} | bad)


def test_recipes_in_words_name_their_numbers():
    words = zoo.MODELS["F3"].recipe.words()
    recipe = zoo.MODELS["F3"].recipe
    for part in (
        "Linf radius 0.06",
        f"{recipe.epochs} epochs",
        f"{recipe.steps}-step PGD",
        "seed 3",
    ):
        assert part in words
