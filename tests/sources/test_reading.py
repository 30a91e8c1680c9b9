"""Sources taken apart, and the guards around libraries."""

import os
import sys
from types import ModuleType

import pytest
import torch

from advfrontier.errors import FrontierError
from advfrontier.sources.reading import existing, explaining, need, offline, read_spec, weights_only

OPTIONS = {"npz": ("layout",), "zoo": (), "hf": ("split", "image")}


def test_read_spec_with_options():
    spec = read_spec("hf:org/name?split=test&image=a=b", OPTIONS, download=True)
    assert (spec.kind, spec.place) == ("hf", "org/name")
    assert spec.options == {"split": "test", "image": "a=b"}
    assert spec.download
    assert spec.hint == ""


def test_read_spec_question_mark_in_a_file_name():
    assert read_spec("npz:which?.npz", OPTIONS).place == "which?.npz"
    spec = read_spec("npz:which?.npz?layout=NHWC", OPTIONS)
    assert (spec.place, spec.options) == ("which?.npz", {"layout": "NHWC"})


def test_read_spec_unknown_kind():
    assert read_spec("mine.py:factory", OPTIONS) is None


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("npz:a.npz?size=3", "'size=3' is not an option of npz: expected layout=…"),
        ("npz:a.npz?layout=", "'layout=' is not an option of npz"),
        ("zoo:F3?dir=x", "'dir=x' is not an option of zoo: expected none"),
        ("hf:a?split=b&c", "'c' is not an option of hf: expected split=… or image=…"),
    ],
)
def test_read_spec_wrong_option(text, message):
    with pytest.raises(FrontierError, match=message):
        read_spec(text, OPTIONS)


def test_option_with_choices():
    spec = read_spec("npz:a.npz?layout=HW", OPTIONS)
    with pytest.raises(FrontierError, match=r"npz:a.npz.*: layout=HW: expected one of NHWC, NCHW"):
        spec.option("layout", choices=("NHWC", "NCHW"))
    assert read_spec("npz:a.npz", OPTIONS).option("layout", choices=("NHWC",)) == ""
    assert "--download" in spec.hint


def test_existing_says_what_is_there(tmp_path):
    (tmp_path / "file").touch()
    assert existing(tmp_path / "file", "source") == tmp_path / "file"
    assert existing(tmp_path, "source", folder=True) == tmp_path
    with pytest.raises(FrontierError, match=r"^source: found a folder at .*: expected a file"):
        existing(tmp_path, "source")
    with pytest.raises(FrontierError, match=r"found a file at .*: expected a folder; check"):
        existing(tmp_path / "file", "source", folder=True)
    with pytest.raises(FrontierError, match="found nothing at"):
        existing(tmp_path / "absent", "source")


def test_need_missing_package():
    with pytest.raises(
        FrontierError,
        match=r"^timm:x: needs the package no_such_package, which is not installed; "
        r"pip install 'advfrontier\[timm\]'$",
    ):
        need("no_such_package", extra="timm", source="timm:x")


def test_need_package_that_fails(tmp_path, monkeypatch):
    (tmp_path / "broken_package.py").write_text("raise ValueError('too old')")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(
        FrontierError, match=r"ValueError: too old\).*pip install --upgrade broken_package$"
    ):
        need("broken_package", extra="timm", source="timm:x")


def test_explaining_keeps_the_first_line():
    with (
        pytest.raises(FrontierError, match=r"^a: wrong \(ValueError: first\); type b$"),
        explaining("a: wrong", "; type b"),
    ):
        raise ValueError("first\nsecond")
    with pytest.raises(FrontierError, match=r"^mine$"), explaining("a"):
        raise FrontierError("mine")


@pytest.fixture
def hub(monkeypatch):
    """Stands for the module that holds the switch of the Hugging Face libraries."""
    module = ModuleType("huggingface_hub.constants")
    module.HF_HUB_OFFLINE = False
    monkeypatch.setitem(sys.modules, "huggingface_hub.constants", module)
    return module


def test_offline_switches_and_restores(hub):
    with offline():
        assert hub.HF_HUB_OFFLINE is True
        with offline():
            assert hub.HF_HUB_OFFLINE is True
        assert hub.HF_HUB_OFFLINE is True
    assert hub.HF_HUB_OFFLINE is False
    with pytest.raises(ValueError, match="inside"), offline():
        raise ValueError("inside")
    assert hub.HF_HUB_OFFLINE is False


def test_offline_not_wanted(hub):
    with offline(wanted=False):
        assert hub.HF_HUB_OFFLINE is False


@pytest.mark.parametrize("before", [None, "0"])
def test_weights_only_holds_whatever_the_caller_asks_for(tmp_path, payload, monkeypatch, before):
    switch = "TORCH_FORCE_WEIGHTS_ONLY_LOAD"
    monkeypatch.delenv(switch, raising=False)
    if before is not None:
        monkeypatch.setenv(switch, before)
    torch.save({"weight": payload}, tmp_path / "evil.pt")
    with (
        pytest.raises(FrontierError, match=r"^mine: the checkpoint is not one of plain tensors"),
        weights_only("mine"),
    ):
        torch.load(tmp_path / "evil.pt", weights_only=False)
    assert os.environ.get(switch) == before


def test_weights_only_reads_tensors(tmp_path):
    torch.save({"weight": torch.ones(2)}, tmp_path / "good.pt")
    with weights_only("mine"):
        assert torch.load(tmp_path / "good.pt", weights_only=False)["weight"].sum() == 2
    with pytest.raises(KeyError, match="other"), weights_only("mine"):
        raise KeyError("other")
