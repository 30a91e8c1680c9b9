"""Models of other libraries, through those libraries' own code, with weights made here."""

import importlib.util
import json
import pickle
import sys

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from advfrontier.errors import FrontierError
from advfrontier.sources import load_model
from sources.fake_hub import load_elsewhere, serve

pytestmark = pytest.mark.filterwarnings(
    "ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::UserWarning"
)


def finite_gradient(model, images, classes):
    x = images.clone().requires_grad_()
    logits = model(x)
    assert logits.shape == (len(x), classes)
    (gradient,) = torch.autograd.grad(logits.logsumexp(1).sum(), x)
    assert gradient.isfinite().all()
    assert (gradient.flatten(1).norm(dim=1) > 0).all()
    assert not model.training
    return logits.detach()


def check_downloads(source, folder, expected):
    """Check that a model is refused, downloaded when that is allowed, and then read offline."""
    shape = [1, 3, 32, 32]
    with serve(folder / "hub") as (address, requests):
        answers = load_elsewhere(
            source, address, folder / "cache", [False, True, False], shape=shape
        )
    assert "allow the download with --download" in answers[0]
    for logits in answers[1:]:
        torch.testing.assert_close(torch.tensor(logits), expected)
    before, download, after = requests[:3]
    assert before == after == []
    assert any(path.endswith("/model.safetensors") for path in download)


# RobustBench

NAME = "robustbench:cifar10/Linf/Addepalli2021Towards_RN18"


@pytest.fixture(scope="module")
def robustbench(library, tmp_path_factory):
    """A folder as RobustBench has it, with a checkpoint of one of its real architectures."""
    library("timm")
    library("gdown")
    if importlib.util.find_spec("robustbench") is None:
        pytest.skip("robustbench is not installed")
    folder = tmp_path_factory.mktemp("models")
    with pytest.raises(FrontierError, match="no checkpoint at"):
        load_model(f"{NAME}?dir={folder}")
    zoo = sys.modules["robustbench.utils"].all_models
    threats = next(threats for dataset, threats in zoo.items() if dataset.value == "cifar10")
    entries = next(entries for threat, entries in threats.items() if threat.value == "Linf")
    torch.manual_seed(0)
    net = entries["Addepalli2021Towards_RN18"]["model"]()
    path = folder / "cifar10" / "Linf" / "Addepalli2021Towards_RN18.pt"
    path.parent.mkdir(parents=True)
    torch.save(
        {"state_dict": {f"module.{key}": value for key, value in net.state_dict().items()}}, path
    )
    return folder, net.eval(), path


def test_robustbench_model_computes_what_its_architecture_does(robustbench):
    folder, net, _path = robustbench
    images = torch.rand(2, 3, 32, 32)
    logits = finite_gradient(load_model(f"{NAME}?dir={folder}"), images, 10)
    with torch.no_grad():
        torch.testing.assert_close(logits, net(images))


def test_robustbench_missing_checkpoint_and_unknown_names(robustbench, tmp_path, monkeypatch):
    with pytest.raises(
        FrontierError,
        match=r"no checkpoint at .*cifar10/Linf/Addepalli2021\w+\.pt; allow .*--download",
    ):
        load_model(f"{NAME}?dir={tmp_path}")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(FrontierError, match="no checkpoint at models/cifar10/L2"):
        load_model("robustbench:cifar10/L2/Sehwag2021Proxy_R18")
    with pytest.raises(
        FrontierError, match=r"has no Addepali2021_RN18 .*near it: Addepalli2021Towards_RN18"
    ):
        load_model("robustbench:cifar10/Linf/Addepali2021_RN18")
    with pytest.raises(FrontierError, match="no cifar10/L7: expected one of cifar10/Linf"):
        load_model("robustbench:cifar10/L7/Name")
    with pytest.raises(FrontierError, match="expected robustbench:DATASET/THREAT/NAME"):
        load_model("robustbench:Name")


def test_robustbench_weights_in_torchs_cache_are_not_fetched(robustbench, tmp_path, monkeypatch):
    monkeypatch.setenv("TORCH_HOME", str(tmp_path))
    with pytest.raises(FrontierError, match="allow the download with --download"):
        load_model("robustbench:cifar10/Linf/Debenedetti2022Light_XCiT-S12")


def test_robustbench_pickles_are_refused_and_do_not_run(robustbench, tmp_path, payload):
    path = tmp_path / "cifar10" / "Linf" / "Addepalli2021Towards_RN18.pt"
    path.parent.mkdir(parents=True)
    for content in ({"state_dict": payload}, payload):
        torch.save(content, path)
        with pytest.raises(FrontierError, match=r"is not one of plain tensors.*refused"):
            load_model(f"{NAME}?dir={tmp_path}")
    path.write_bytes(pickle.dumps(payload))
    with pytest.raises(FrontierError, match="refused"):
        load_model(f"{NAME}?dir={tmp_path}")


# timm


@pytest.fixture(scope="module")
def timm(library):
    return library("timm")


def test_timm_model_is_normalised_as_its_configuration_says(timm, tmp_path):
    torch.manual_seed(0)
    net = timm.create_model("mobilenetv3_small_050", num_classes=7).eval()
    torch.save(net.state_dict(), tmp_path / "weights.pth")
    save_file(net.state_dict(), tmp_path / "weights.safetensors")
    images = torch.rand(2, 3, 64, 64)
    mean, std = (torch.tensor(net.pretrained_cfg[key]).view(1, 3, 1, 1) for key in ("mean", "std"))
    with torch.no_grad():
        expected = net((images - mean) / std)
    for file in ("weights.pth", "weights.safetensors"):
        model = load_model(f"timm:mobilenetv3_small_050?checkpoint={tmp_path / file}&classes=7")
        torch.testing.assert_close(finite_gradient(model, images, 7), expected)


def test_timm_missing_weights_and_unknown_names(timm, tmp_path, monkeypatch):
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    with pytest.raises(
        FrontierError, match=r"not on this machine, .*--download.*\?checkpoint=FILE"
    ):
        load_model("timm:mobilenetv3_small_050")
    with pytest.raises(FrontierError, match=r"timm .* has no model 'resnet51'; near it: resnet51q"):
        load_model("timm:resnet51")
    with pytest.raises(FrontierError, match="classes=many: expected a number"):
        load_model("timm:resnet18?classes=many")
    with pytest.raises(FrontierError, match=r"name a file with \?checkpoint=FILE&classes=7"):
        load_model("timm:resnet18?classes=7")  # its last layer would be random


def test_timm_weights_in_torchs_cache(timm, tmp_path, monkeypatch):
    """Some models are not on Hugging Face: torch loads them, which has no offline switch."""
    monkeypatch.setattr(torch.hub, "get_dir", lambda: str(tmp_path))
    name = next(
        name
        for name in timm.list_models(pretrained=True)
        if (config := timm.get_pretrained_cfg(name)).url and not config.hf_hub_id
    )
    with pytest.raises(FrontierError, match=rf"no weights at {tmp_path}/checkpoints/.*--download"):
        load_model(f"timm:{name}")


SMALL = "mobilenetv3_small_050"


def test_timm_downloads_only_if_asked_and_then_reads_its_cache(timm, tmp_path):
    """The whole way of `timm:NAME --download`, with a server on this machine for the Hub."""
    version = tuple(int(part) for part in timm.__version__.split(".")[:3])
    if version < (1, 0, 20):
        pytest.skip(f"timm {timm.__version__} cannot use the installed huggingface_hub")
    torch.manual_seed(0)
    net = timm.create_model(SMALL).eval()
    config = net.pretrained_cfg
    repository = tmp_path / "hub" / timm.get_pretrained_cfg(SMALL).hf_hub_id
    repository.mkdir(parents=True)
    save_file(net.state_dict(), repository / "model.safetensors")
    images = torch.full((1, 3, 32, 32), 0.3)
    mean, std = (torch.tensor(config[key]).view(1, 3, 1, 1) for key in ("mean", "std"))
    with torch.no_grad():
        expected = net((images - mean) / std)
    check_downloads(f"timm:{SMALL}", tmp_path, expected)


def test_timm_pickles_are_refused_and_do_not_run(timm, tmp_path, payload):
    torch.save({"state_dict": payload}, tmp_path / "a.pth")
    (tmp_path / "b.pth").write_bytes(pickle.dumps(payload))
    np.savez(tmp_path / "c.npz", weights=np.array([payload], dtype=object))
    for file in ("a.pth", "b.pth"):
        with pytest.raises(FrontierError, match=r"is not one of plain tensors.*refused"):
            load_model(f"timm:mobilenetv3_small_050?checkpoint={tmp_path / file}")
    with pytest.raises(FrontierError, match="timm could not load it"):
        load_model(f"timm:vit_tiny_patch16_224?checkpoint={tmp_path / 'c.npz'}")


# Hugging Face


@pytest.fixture(scope="module")
def transformers(library):
    library("PIL")
    return library("transformers")


def classifier(transformers, folder, **processor):
    torch.manual_seed(0)
    config = transformers.ViTConfig(
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=32,
        image_size=32,
        patch_size=8,
        num_labels=5,
    )
    net = transformers.ViTForImageClassification(config).eval()
    net.save_pretrained(folder)
    settings = {
        "size": {"height": 32, "width": 32},
        "image_mean": [0.1, 0.2, 0.3],
        "image_std": [0.4, 0.5, 0.6],
    }
    transformers.ViTImageProcessor(**(settings | processor)).save_pretrained(folder)
    return net


@pytest.mark.parametrize(
    ("processor", "prepare"),
    [
        (
            {},
            lambda x: (
                (x - torch.tensor([0.1, 0.2, 0.3]).view(3, 1, 1))
                / torch.tensor([0.4, 0.5, 0.6]).view(3, 1, 1)
            ),
        ),
        ({"do_normalize": False}, lambda x: x),
        ({"do_normalize": False, "do_rescale": False}, lambda x: x * 255),
        ({"do_normalize": False, "rescale_factor": 1 / 127.5}, lambda x: x * 2),
    ],
)
def test_hugging_face_classifier_is_normalised_as_its_processor_says(
    transformers, tmp_path, processor, prepare
):
    net = classifier(transformers, tmp_path, **processor)
    images = torch.rand(2, 3, 32, 32)
    with torch.no_grad():
        expected = net(prepare(images)).logits
    torch.testing.assert_close(finite_gradient(load_model(f"hf:{tmp_path}"), images, 5), expected)


@pytest.mark.parametrize(
    "settings", [{}, {"rescale_offset": True, "rescale_factor": 1 / 127.5}, {"do_normalize": False}]
)
def test_efficientnets_processor_divides_twice_and_may_shift(transformers, tmp_path, settings):
    net = classifier(transformers, tmp_path)
    processor = transformers.EfficientNetImageProcessor(
        image_mean=[0.1, 0.2, 0.3], image_std=[0.4, 0.5, 0.6], do_resize=False, **settings
    )
    processor.save_pretrained(tmp_path)
    pixels = torch.randint(0, 256, (2, 3, 32, 32), dtype=torch.uint8)
    with torch.no_grad():
        expected = net(processor(list(pixels), return_tensors="pt")["pixel_values"]).logits
    torch.testing.assert_close(
        finite_gradient(load_model(f"hf:{tmp_path}"), pixels / 255, 5), expected
    )


def test_hugging_face_missing_files(transformers, tmp_path, monkeypatch):
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    with pytest.raises(FrontierError, match=r"could not be loaded.*--download"):
        load_model("hf:google/vit-base-patch16-224")


def test_hugging_face_downloads_only_if_asked_and_then_reads_its_cache(transformers, tmp_path):
    net = classifier(transformers, tmp_path / "hub" / "org" / "name")
    images = torch.full((1, 3, 32, 32), 0.3)
    mean, std = (
        torch.tensor(values).view(1, 3, 1, 1) for values in ([0.1, 0.2, 0.3], [0.4, 0.5, 0.6])
    )
    with torch.no_grad():
        expected = net((images - mean) / std).logits
    check_downloads("hf:org/name", tmp_path, expected)


def test_hugging_face_data_are_not_downloaded_unless_asked(library, tmp_path):
    library("datasets")
    with serve(tmp_path) as (address, requests):
        answers = load_elsewhere(
            "hf:org/name", address, tmp_path / "cache", [False, True], role="data"
        )
    assert "the datasets library cannot load it" in answers[0]
    assert "allow the download with --download" in answers[0]
    assert "the datasets library cannot load it" in answers[1]
    assert "--download" not in answers[1]
    assert requests[0] == []
    assert requests[1] != []


def test_hugging_face_pickles_are_refused_and_do_not_run(transformers, tmp_path, payload):
    classifier(transformers, tmp_path)
    (tmp_path / "model.safetensors").unlink()
    torch.save(payload, tmp_path / "pytorch_model.bin")
    with pytest.raises(
        FrontierError, match=r"found pytorch_model\.bin in .*: expected model\.safetensors"
    ):
        load_model(f"hf:{tmp_path}")
    (tmp_path / "unrelated.safetensors").write_bytes(b"")
    with pytest.raises(
        FrontierError, match="could not be loaded as an image classifier with safetensors weights"
    ):
        load_model(f"hf:{tmp_path}")
    (tmp_path / "model.safetensors").write_bytes(pickle.dumps(payload))
    with pytest.raises(
        FrontierError, match="could not be loaded as an image classifier with safetensors weights"
    ):
        load_model(f"hf:{tmp_path}")


def test_hugging_face_weights_that_are_missing_or_of_another_shape_are_refused(
    transformers, tmp_path
):
    weights = {
        key: value.contiguous()
        for key, value in classifier(transformers, tmp_path).state_dict().items()
    }
    lacking = {key: value for key, value in weights.items() if "classifier" not in key}
    save_file(lacking, tmp_path / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(
        FrontierError, match=r"lack 2 of the weights.*\(classifier\.bias, classifier\.weight\)"
    ):
        load_model(f"hf:{tmp_path}")
    other = {**weights, "classifier.weight": torch.zeros(7, 16), "classifier.bias": torch.zeros(7)}
    save_file(other, tmp_path / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(
        FrontierError, match=r"lack 2 of the weights, or have|could not be loaded as"
    ):
        load_model(f"hf:{tmp_path}")
    save_file({"other": torch.zeros(1)}, tmp_path / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(FrontierError, match="of the weights, or have them in another shape"):
        load_model(f"hf:{tmp_path}")


def test_hugging_face_code_is_not_run(transformers, tmp_path, payload):
    classifier(transformers, tmp_path)
    (tmp_path / "evil.py").write_text(
        f"open({payload.file!r}, 'w')\nclass Evil: pass\nclass EvilConfig: pass"
    )
    config = json.loads((tmp_path / "config.json").read_text())
    config |= {
        "model_type": "evil",
        "auto_map": {
            "AutoConfig": "evil.EvilConfig",
            "AutoModelForImageClassification": "evil.Evil",
        },
    }
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(FrontierError, match="could not be loaded"):
        load_model(f"hf:{tmp_path}")


def test_hugging_face_folder_without_a_processor_is_refused(transformers, tmp_path):
    classifier(transformers, tmp_path)
    (tmp_path / "preprocessor_config.json").unlink()
    with pytest.raises(
        FrontierError, match=r"no preprocessor_config\.json in .*its normalisation is unknown"
    ):
        load_model(f"hf:{tmp_path}")


# What is missing


@pytest.mark.parametrize(
    ("spec", "module", "extra"),
    [
        ("timm:resnet18", "timm", "timm"),
        ("hf:org/name", "transformers", "hf"),
        ("onnx:net.onnx", "onnx", "onnx"),
        ("robustbench:cifar10/Linf/Name", "robustbench.utils", "robustbench"),
    ],
)
def test_missing_library(monkeypatch, spec, module, extra):
    for name in [name for name in sys.modules if name == module or name.startswith(f"{module}.")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(
        FrontierError, match=rf"which is not installed; pip install 'advfrontier\[{extra}\]'"
    ):
        load_model(spec)
