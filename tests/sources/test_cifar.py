"""CIFAR's batches: files are unpickled only if their checksum is the published one."""

import hashlib
import pickle

import numpy as np
import pytest
import torch

from advfrontier.errors import FrontierError
from advfrontier.sources import cifar, load_data

FLAT = np.random.default_rng(0).integers(0, 256, (6, 3072), dtype=np.uint8)
CLASSES = [3, 1, 4, 1, 5, 9]


def old_pickle(batch):
    """Pickle as Python 2 and NumPy 1 did: byte strings as str, arrays of numpy.core."""
    parts = [b"\x80\x02}("]
    for key, value in batch.items():
        parts.append(short_string(key))
        if isinstance(value, np.ndarray):
            parts += old_array(value)
        else:
            parts.append(b"](")
            for item in value:
                parts.append(b"K" + bytes([item]) if isinstance(item, int) else short_string(item))
            parts.append(b"e")
    return b"".join([*parts, b"u."])


def md5_of(path):
    return hashlib.md5(path.read_bytes(), usedforsecurity=False).hexdigest()


def short_string(text):
    return b"U" + bytes([len(text)]) + text


def old_array(values):
    content = values.tobytes()
    shape = b"".join(b"J" + int(side).to_bytes(4, "little") for side in values.shape)
    return [
        b"cnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\nK\x00\x85U\x01btR(K\x01(",
        shape,
        b"tcnumpy\ndtype\n(U\x02u1K\x00K\x01tR(K\x03U\x01|NNN",
        b"J\xff\xff\xff\xff" * 2,
        b"K\x00tb\x89",
        b"T" + len(content).to_bytes(4, "little") + content,
        b"tb",
    ]


@pytest.fixture(params=["cifar10", "cifar100"])
def kind(request):
    return request.param


@pytest.fixture
def folder(tmp_path, monkeypatch, kind):
    """A folder of small batches, whose checksums stand for the published ones."""
    hundred = kind == "cifar100"
    place = tmp_path / ("cifar-100-python" if hundred else "cifar-10-batches-py")
    place.mkdir()
    labels = b"fine_labels" if hundred else b"labels"
    names = b"fine_label_names" if hundred else b"label_names"
    checksums = {}
    for number, name in enumerate(cifar.PUBLISHED[kind]):
        batch = {b"data": np.roll(FLAT, number, axis=0), labels: CLASSES}
        if name.endswith("meta"):
            batch = {names: [b"airplane", b"bird"]}
        (place / name).write_bytes(old_pickle(batch))
        checksums[name] = md5_of(place / name)
    monkeypatch.setitem(cifar.PUBLISHED, kind, checksums)
    return place


def test_old_pickle_is_a_pickle():
    content = old_pickle({b"data": FLAT, b"labels": CLASSES})
    batch = pickle.loads(content, encoding="bytes")  # noqa: S301
    assert np.array_equal(batch[b"data"], FLAT)
    assert batch[b"labels"] == CLASSES


def test_load_test_split(folder, kind):
    test = folder / ("test" if kind == "cifar100" else "test_batch")
    pixels = pickle.loads(test.read_bytes(), encoding="latin1")["data"]  # noqa: S301
    for place in (folder, folder.parent):
        samples = load_data(f"{kind}:{place}")
        assert samples.labels.tolist() == CLASSES
        assert samples.labels.dtype == torch.int64
        assert samples.class_names == ("airplane", "bird")
        expected = torch.from_numpy(pixels[[5, 0]] / np.float32(255)).view(2, 3, 32, 32)
        assert torch.equal(samples.read(torch.tensor([5, 0])), expected)


def test_load_train_split(folder, kind):
    samples = load_data(f"{kind}:{folder}?split=train")
    batches = 1 if kind == "cifar100" else 5
    assert samples.labels.tolist() == batches * CLASSES
    assert samples.read(torch.arange(len(samples))).shape == (6 * batches, 3, 32, 32)
    if batches == 5:  # the first image of the second batch is the last of the first one
        first, second = samples.read(torch.tensor([5 - 1, 6]))
        assert not torch.equal(first, second)
        assert torch.equal(samples.read(torch.tensor([5]))[0], second)
    with pytest.raises(FrontierError, match="split=valid: expected one of test, train"):
        load_data(f"{kind}:{folder}?split=valid")


def test_load_without_class_names(folder, kind):
    (folder / ("meta" if kind == "cifar100" else "batches.meta")).unlink()
    assert load_data(f"{kind}:{folder}").class_names is None


def test_pickled_samples_name_files(folder, kind):
    samples = load_data(f"{kind}:{folder}")
    content = pickle.dumps(samples)
    assert len(content) < 2000
    row = torch.tensor([4])
    assert torch.equal(pickle.loads(content).read(row), samples.read(row))  # noqa: S301


def test_worker_checks_the_file_again(folder, kind):
    content = pickle.dumps(load_data(f"{kind}:{folder}"))
    test = folder / ("test" if kind == "cifar100" else "test_batch")
    test.write_bytes(test.read_bytes()[:-1] + b"?")
    with pytest.raises(FrontierError, match="found a file with MD5"):
        pickle.loads(content).read(torch.tensor([0]))  # noqa: S301


@pytest.mark.parametrize("labels", [[0], [10], [3.5], []])
def test_file_with_another_checksum_is_refused(tmp_path, labels):
    """Nothing of such a file is looked at, so its labels do not matter."""
    path = tmp_path / "test_batch"
    path.write_bytes(pickle.dumps({"data": FLAT[: len(labels)], "labels": labels}))
    found = md5_of(path)
    expected = "40351d587109b95175f43aff81a1287e"
    with pytest.raises(
        FrontierError,
        match=rf"test_batch: found a file with MD5 {found}: expected {expected}, as "
        r"published; unpack the Python version of https://www.cs.toronto.edu",
    ):
        load_data(f"cifar10:{tmp_path}")


def test_malicious_pickles_do_not_run(folder, kind, payload):
    for name in cifar.PUBLISHED[kind]:
        honest = (folder / name).read_bytes()
        (folder / name).write_bytes(pickle.dumps({"data": FLAT, "labels": payload}))
        split = "train" if "train" in name or "data" in name else "test"
        with pytest.raises(FrontierError, match=rf"{name}: found a file with MD5"):
            load_data(f"{kind}:{folder}?split={split}")
        (folder / name).write_bytes(honest)


def test_published_checksums_are_those_of_torchvision(library):
    datasets = library("torchvision.datasets.cifar")
    for kind, source in (("cifar10", datasets.CIFAR10), ("cifar100", datasets.CIFAR100)):
        known = dict(map(tuple, source.train_list + source.test_list))
        known[source.meta["filename"]] = source.meta["md5"]
        assert cifar.PUBLISHED[kind] == known


def test_missing_files_are_named(tmp_path):
    with pytest.raises(FrontierError, match=r"found nothing at .*test_batch: expected a file"):
        load_data(f"cifar10:{tmp_path}")
    with pytest.raises(FrontierError, match=r"found nothing at .*absent: expected a folder"):
        load_data(f"cifar10:{tmp_path / 'absent'}")


def test_files_may_be_links(folder, kind, tmp_path):
    test = folder / ("test" if kind == "cifar100" else "test_batch")
    test.rename(tmp_path / "elsewhere")
    test.symlink_to(tmp_path / "elsewhere")
    assert load_data(f"{kind}:{folder}").labels.tolist() == CLASSES
