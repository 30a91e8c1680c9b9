"""The page on threat models runs from top to bottom."""

import re

import numpy as np
import pytest
import torch

from advfrontier.cli import main
from docs.test_docs import ROOT, commands, python_blocks

PAGE = ROOT / "docs/threats.md"


@pytest.fixture(scope="module")
def names(tmp_path_factory):
    """Return what the examples define, after they have run in an empty folder."""
    names = {}
    state = torch.get_rng_state()
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path_factory.mktemp("threats"))
        for number, block in enumerate(python_blocks(PAGE), 1):
            exec(compile(block, f"threats, block {number}", "exec"), names)  # noqa: S102  # our own page
    torch.set_rng_state(state)
    return names


def test_examples_find_pixels(names):
    distances = names["pixels"].distances
    assert names["pixels"].norm == "L0pixel"
    assert (distances[distances > 0] >= 1).all()
    assert (distances == distances.round()).all()


def test_examples_unite_norms(names):
    both = names["both"]
    assert both.radii == {"L1": 10.0, "Linf": 0.06}
    assert len(both.distances) == 8


def test_examples_reach_targets_and_accepted_mistakes(names):
    towards = names["towards"]
    broken = (towards.distances > 0) & (towards.distances < float("inf"))
    assert broken.any()
    assert (towards.predictions == names["targets"]).numpy()[broken].all()
    likeliest = names["model"](names["beyond"].points()).topk(3).indices
    assert (likeliest != names["labels"][:, None]).all()
    assert 0.1 < names["least"] < 1
    seen = names["detector"](names["accepted"].points()).argmax(1)
    broken = names["accepted"].distances < float("inf")
    assert broken.any()
    assert ((seen != 10) & (seen != names["labels"])).numpy()[broken].all()


def test_examples_stay_in_their_domains(names):
    moved = names["flipped"].adversarials - names["clients"]
    distances = torch.tensor(names["flipped"].distances)
    costs = (moved.double().abs() * torch.tensor(names["domain"].weights)).sum(1)
    torch.testing.assert_close(costs, distances, rtol=1e-4, atol=0)
    assert (moved[:, 0] == 0).all()
    exact = torch.tensor([0.1, 1.68, 1.26], dtype=torch.float64)
    torch.testing.assert_close(distances, exact, rtol=0.02, atol=0)
    changed = names["around"].points() != names["images"]
    assert changed.any()
    assert not changed[:, ~names["border"]].any()


def test_commands_run(names, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    np.savez("border.npz", changeable=names["border"])
    for words in commands(PAGE):
        main([*words, "--workers", "0"] if words[0] == "evaluate" else words)
    out = capsys.readouterr().out
    assert re.search(r"^L0pixel ", out, re.MULTILINE)
    assert "success: taken for class 7" in out
    assert "success: label not among the 3 likeliest classes" in out
    assert "points proved" in out
    assert "in a box from 0 to 1 with 528 of 784 features changeable" in out
    assert "zoo:F7 on fashion-mnist against L1=10,Linf=0.06 at once" in out
    assert (tmp_path / "runs/pixels/report.html").is_file()
    assert (tmp_path / "runs/union.html").is_file()
