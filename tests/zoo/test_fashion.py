"""The embedded images, and the readers of the files they come from."""

import gzip
import struct
from importlib.resources import files

import pytest
import torch
from zoo_files import write_set

from advfrontier import zoo
from advfrontier.errors import FrontierError
from advfrontier.zoo import fashion


def test_images_and_labels_have_the_agreed_form():
    images, labels = zoo.images_and_labels()
    assert images.shape == (1000, 1, 28, 28)
    assert images.dtype == torch.float32
    assert labels.dtype == torch.int64
    assert images.min() == 0
    assert images.max() == 1
    assert len(zoo.CLASS_NAMES) == 10


def test_every_prefix_of_tens_is_balanced_and_the_order_looks_random():
    labels = zoo.images_and_labels()[1].view(100, 10)
    assert (labels.sort(1).values == torch.arange(10)).all()
    # Each class should come first in about ten of the hundred runs, and no order should be common.
    assert labels[:, 0].bincount(minlength=10).max() <= 20
    assert len({tuple(run.tolist()) for run in labels}) > 95


def test_indices_are_distinct_and_in_the_test_set():
    indices = fashion.embedded()["indices"]
    assert len(set(indices.tolist())) == 1000
    assert indices.min() >= 0
    assert indices.max() < 10_000


def test_changed_byte_is_refused(monkeypatch):
    stored = fashion.embedded()
    stored["images"][17, 3, 3] ^= 1
    monkeypatch.setattr(fashion, "load_tensors", lambda _: stored)
    with pytest.raises(FrontierError, match=r"images in fashion_mnist_test_1000\.safetensors"):
        zoo.images_and_labels()


@pytest.mark.skipif(
    not fashion.DEBIAN_FOLDER.is_dir(), reason="the Debian package is not installed"
)
def test_embedded_images_are_those_of_the_test_set():
    images, labels = fashion.read_set("test")
    stored = fashion.embedded()
    rows = stored["indices"].long()
    assert torch.equal(images[rows], stored["images"])
    assert torch.equal(labels[rows], stored["labels"])
    assert torch.equal(fashion.choose(labels), rows)


def test_licence_travels_with_the_images():
    notice = (
        files("advfrontier.zoo")
        .joinpath("data", "FASHION_MNIST_LICENCE.txt")
        .read_text(encoding="utf-8")
    )
    assert "Copyright © 2017 Zalando SE" in notice
    assert "Permission is hereby granted, free of charge" in notice
    assert "WITHOUT WARRANTY OF ANY KIND" in notice


@pytest.mark.parametrize("packed", [True, False], ids=["gz", "plain"])
def test_folder_of_idx_files_is_read(tmp_path, packed):
    images, labels = write_set(tmp_path, 30, packed=packed)
    found = fashion.read_set("train", tmp_path)
    assert torch.equal(found[0], images)
    assert torch.equal(found[1], labels)


def test_missing_files_say_what_to_type(tmp_path):
    with pytest.raises(FrontierError, match=r"apt-get install dataset-fashion-mnist.*data_dir"):
        zoo.train(
            "F3", data_dir=tmp_path / "nowhere", out=tmp_path / "x.safetensors", progress=False
        )


@pytest.mark.parametrize(
    "spoil",
    [
        lambda content: content[:-1],
        lambda content: content + b"\0",
        lambda content: b"\0\0\x0d\x03" + content[4:],
        lambda content: content[:7],
        lambda _: b"",
        lambda content: content[:4] + struct.pack(">iii", 30, 14, 56) + content[16:],
        lambda content: content[:4] + struct.pack(">iii", -30, -28, 28) + content[16:],
    ],
    ids=["short", "long", "floats", "header", "empty", "shape", "negative"],
)
def test_files_that_are_not_images_are_refused(tmp_path, spoil):
    write_set(tmp_path, 30, packed=False)
    path = tmp_path / "train-images-idx3-ubyte"
    path.write_bytes(spoil(path.read_bytes()))
    with pytest.raises(FrontierError, match=r"fetch it again|expected"):
        fashion.read_set("train", tmp_path)


def test_broken_gzip_file_is_refused(tmp_path):
    write_set(tmp_path, 30)
    path = tmp_path / "train-images-idx3-ubyte.gz"
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(FrontierError, match="cannot be unpacked"):
        fashion.read_set("train", tmp_path)
    path.write_bytes(b"not gzip")
    with pytest.raises(FrontierError, match="cannot be unpacked"):
        fashion.read_set("train", tmp_path)


def test_as_many_labels_as_images(tmp_path):
    write_set(tmp_path, 30)
    (tmp_path / "train-labels-idx1-ubyte.gz").write_bytes(
        gzip.compress(b"\0\0\x08\x01" + struct.pack(">i", 29) + bytes(29))
    )
    with pytest.raises(FrontierError, match="29 labels"):
        fashion.read_set("train", tmp_path)


def test_labels_of_other_data_are_refused(tmp_path):
    write_set(tmp_path, 30, packed=False)
    path = tmp_path / "train-labels-idx1-ubyte"
    path.write_bytes(path.read_bytes()[:-1] + bytes([46]))
    with pytest.raises(FrontierError, match="labels from 0 to 9"):
        fashion.read_set("train", tmp_path)
