"""Files and folders typed alone, and hints to what was meant."""

import numpy as np
import pytest
import torch

from advfrontier.errors import FrontierError
from advfrontier.sources import load_data, load_model
from advfrontier.sources.paths import data_source, model_source


def save_picture(path, value):
    image = pytest.importorskip("PIL.Image", reason="Pillow is not installed")
    path.parent.mkdir(parents=True, exist_ok=True)
    image.fromarray(np.full((4, 4, 3), value, np.uint8)).save(path)


@pytest.mark.parametrize(
    ("text", "source"),
    [
        ("net.onnx", "onnx:net.onnx"),
        ("a folder/net.ONNX", "onnx:a folder/net.ONNX"),
        ("onnx:net.onnx", "onnx:net.onnx"),
        ("mine.py:factory", "mine.py:factory"),
        ("mine.py", "mine.py"),
        ("timm:resnet18", "timm:resnet18"),
    ],
)
def test_model_source(text, source):
    assert model_source(text) == source


@pytest.mark.parametrize(
    ("text", "source"),
    [
        ("data.npz", "npz:data.npz"),
        ("data.npz?layout=NHWC", "npz:data.npz?layout=NHWC"),
        ("npz:data.npz", "npz:data.npz"),
        ("fashion-mnist", "fashion-mnist"),
        ("hf:org/name", "hf:org/name"),
        ("absent", "absent"),
    ],
)
def test_data_source_of_a_name(text, source, tmp_path, monkeypatch):
    (tmp_path / "fashion-mnist").mkdir()
    monkeypatch.chdir(tmp_path)
    assert data_source(text) == source


def test_archive_typed_alone_is_read(tmp_path):
    np.savez(tmp_path / "data.npz", images=np.zeros((3, 8, 8, 3), np.uint8), labels=[1, 0, 2])
    samples = load_data(str(tmp_path / "data.npz"))
    assert samples.name == f"npz:{tmp_path / 'data.npz'}"
    assert samples.labels.tolist() == [1, 0, 2]
    assert load_data(f"{tmp_path / 'data.npz'}?layout=NHWC", samples=2).labels.tolist() == [1, 0]


def test_class_folders_typed_alone_are_read(tmp_path):
    save_picture(tmp_path / "cat" / "a.png", 255)
    save_picture(tmp_path / "ant" / "b.png", 0)
    samples = load_data(f"{tmp_path}/")
    assert samples.name == f"imagefolder:{tmp_path}"
    assert samples.class_names == ("ant", "cat")
    assert samples.read(torch.tensor([1])).min() == 1
    assert load_data(f"{tmp_path}?preprocessing=Res2").read(torch.tensor([0])).shape[2:] == (2, 2)


def test_labelled_folder_typed_alone_is_read(tmp_path):
    save_picture(tmp_path / "a.png", 255)
    save_picture(tmp_path / "b.png", 0)
    message = "found pictures and 0 CSV files: .* did you mean folder:.*labels=FILE.csv"
    with pytest.raises(FrontierError, match=message):
        load_data(str(tmp_path))
    (tmp_path / "truth.csv").write_text("file,label\nb.png,1\na.png,0\n")
    samples = load_data(str(tmp_path))
    assert samples.name == f"folder:{tmp_path}?labels=truth.csv"
    assert samples.labels.tolist() == [1, 0]
    assert load_data(f"{tmp_path}?preprocessing=Res2").read(torch.tensor([0])).shape[2:] == (2, 2)
    (tmp_path / "other.csv").write_text("file,label\na.png,3\n")
    with pytest.raises(FrontierError, match="found pictures and 2 CSV files"):
        load_data(str(tmp_path))
    assert load_data(f"{tmp_path}?labels=other.csv").labels.tolist() == [3]


def test_cifar_folders_typed_alone_are_recognised(tmp_path):
    folder = tmp_path / "cifar-10-batches-py"
    folder.mkdir()
    assert data_source(str(tmp_path)) == f"cifar10:{tmp_path}"
    for name in (*(f"data_batch_{i}" for i in range(1, 6)), "test_batch", "batches.meta"):
        (folder / name).touch()
    assert data_source(str(folder)) == f"cifar10:{folder}"
    hundred = tmp_path / "hundred"
    hundred.mkdir()
    for name in ("train", "test", "meta"):
        (hundred / name).touch()
    assert data_source(str(hundred)) == f"cifar100:{hundred}"


def test_saved_data_set_typed_alone_is_recognised(tmp_path):
    (tmp_path / "dataset_info.json").touch()
    assert data_source(str(tmp_path)) == f"hf:{tmp_path}"


def test_folder_without_data_is_refused(tmp_path):
    with pytest.raises(FrontierError, match=r"found a folder without pictures.* name its kind"):
        load_data(str(tmp_path))


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("net.onnx", "net.onnx is a model: name it as MODEL, and a data set as DATA"),
        ("mine.py", "mine.py is a model"),
        ("imgefolder:pictures", "did you mean imagefolder:pictures"),
        ("cifar:folder", "did you mean cifar10.*:folder"),
    ],
)
def test_data_hint(text, hint):
    with pytest.raises(FrontierError, match=f"{text}.* is not a data set: expected.*; {hint}"):
        load_data(text)


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("data.npz", "data.npz is a data set: name it as DATA, and a model as MODEL"),
        ("net.pth", r"weights need an architecture: did you mean timm:NAME\?checkpoint=net.pth"),
        ("net.safetensors", "weights need an architecture"),
    ],
)
def test_model_hint(text, hint):
    with pytest.raises(FrontierError, match=f"{text}' is not a model: expected.*; {hint}"):
        load_model(text)


def test_model_hint_of_a_folder(tmp_path):
    (tmp_path / "config.json").touch()
    with pytest.raises(FrontierError, match=f"is not a model: .*; did you mean hf:{tmp_path}"):
        load_model(str(tmp_path))


def test_no_hint():
    with pytest.raises(FrontierError, match=r"or one of zoo:…, .*, onnx:…$"):
        load_model("resnet")
