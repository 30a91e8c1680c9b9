import pickle

import numpy as np
import pytest
import torch

from advfrontier.errors import FrontierError
from advfrontier.sources import load_data

RNG = np.random.default_rng(0)


def python2_pickle(batch):
    """Pickle like Python 2 and NumPy 1 did when the files were published: byte strings as str, numpy.core."""
    out = [b"\x80\x02}("]
    for key, value in batch.items():
        out += [b"U", bytes([len(key)]), key]
        if isinstance(value, np.ndarray):
            raw = value.tobytes()
            shape = b"".join(b"J" + int(side).to_bytes(4, "little") for side in value.shape)
            out += [
                b"cnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\nK\x00\x85U\x01bt R(K\x01(".replace(b" ", b""),
                shape, b"tcnumpy\ndtype\n(U\x02u1K\x00K\x01tR(K\x03U\x01|NNN", b"J\xff\xff\xff\xff" * 2, b"K\x00tb\x89",
                b"T", len(raw).to_bytes(4, "little"), raw, b"tb",
            ]  # fmt: skip
        else:
            out.append(b"](" + b"".join(
                b"K" + bytes([item]) if isinstance(item, int) else b"U" + bytes([len(item)]) + item for item in value
            ) + b"e")  # fmt: skip
    return b"".join([*out, b"u."])


FLAT = RNG.integers(0, 256, (6, 3072), dtype=np.uint8)
CLASSES = [3, 1, 4, 1, 5, 9]


def cifar_folder(tmp_path, dump, *, hundred=False):
    folder = tmp_path / ("cifar-100-python" if hundred else "cifar-10-batches-py")
    folder.mkdir()
    labels = b"fine_labels" if hundred else b"labels"
    names = (
        ["test", "train"] if hundred else ["test_batch", *(f"data_batch_{i}" for i in range(1, 6))]
    )
    for name in names:
        (folder / name).write_bytes(dump({b"data": FLAT, labels: CLASSES}))
    meta = {b"fine_label_names" if hundred else b"label_names": [b"airplane", b"bird"]}
    (folder / ("meta" if hundred else "batches.meta")).write_bytes(dump(meta))
    return folder


def python3_pickle(batch):
    return pickle.dumps({key.decode(): value for key, value in batch.items()}, protocol=2)


def test_the_old_pickles_of_these_tests_are_pickles():
    found = pickle.loads(python2_pickle({b"data": FLAT, b"labels": CLASSES}), encoding="bytes")  # noqa: S301
    assert np.array_equal(found[b"data"], FLAT)
    assert found[b"labels"] == CLASSES


@pytest.mark.parametrize("dump", [python2_pickle, python3_pickle, pickle.dumps])
@pytest.mark.parametrize("hundred", [False, True])
def test_cifar_batches_are_read(tmp_path, dump, hundred):
    folder = cifar_folder(tmp_path, dump, hundred=hundred)
    kind = "cifar100" if hundred else "cifar10"
    for place in (tmp_path, folder):
        samples = load_data(f"{kind}:{place}")
        assert samples.labels.tolist() == CLASSES
        expected = torch.from_numpy(FLAT[[5, 0]] / np.float32(255)).view(2, 3, 32, 32)
        assert torch.equal(samples.read(torch.tensor([5, 0])), expected)
        assert samples.class_names == ("airplane", "bird")
    assert len(load_data(f"{kind}:{folder}?split=train")) == (6 if hundred else 30)
    content = pickle.dumps(samples)
    assert len(content) < 2000
    assert torch.equal(
        pickle.loads(content).read(torch.tensor([0])),  # noqa: S301
        samples.read(torch.tensor([0])),
    )


def batch_of(labels, *, data=b"](K\x01e"):
    """A pickle whose data or labels are these operations."""
    return b"\x80\x02}(U\x06labels" + labels + b"U\x04data" + data + b"u."


ARRAY = python2_pickle({b"data": FLAT})[3 + 1 + 6 : -2]  # the operations of an array alone
CRAFTED = [
    batch_of(b"K\x05", data=ARRAY),  # labels that are a number
    batch_of(b"](K\x0ae", data=ARRAY),  # a class that does not exist
    batch_of(b"](" + 6 * b"J\xff\xff\xff\xff" + b"e", data=ARRAY),
    batch_of(b"](" + 6 * b"\x88" + b"e", data=ARRAY),  # true
    batch_of(b"](" + 6 * (b"\x8a\x10" + 16 * b"\x7f") + b"e", data=ARRAY),  # numbers of 128 bits
    batch_of(
        b"](" + 6 * b"K\x01" + b"e", data=ARRAY.replace(b"J\x06\x00", b"J\xfa\xff")
    ),  # a negative size
    batch_of(
        b"](" + 6 * b"K\x01" + b"e", data=b"cnumpy.core.multiarray\n_reconstruct\n(tR"
    ),  # an array without content
    b"\x80\x02}(J\xff\xff\xff\x7fNu.",  # a key that would become two gigabytes
    b"\x80\x02}(" + b")" + 64 * b"q\x01h\x01\x86" + b"Nu.",  # a key whose hash takes forever
    b"\x80\x02}r\xff\xff\xff\x7f.",  # a memo of thirty gigabytes
    b"\x80\x02cnumpy\ndtype\n("
    b"]" + 64 * b"q\x01]q\x02(h\x01h\x01e" + b"tR.",  # a type whose text takes forever
    b"\x80\x02}u.",
    b"\x80\x02tR.",
    b"\x80\x02}" + 10**5 * b"]" + b".",
]


def test_crafted_cifar_files_differ_from_an_honest_one_in_one_thing(tmp_path):
    folder = cifar_folder(tmp_path, python2_pickle)
    (folder / "test_batch").write_bytes(batch_of(b"](" + 6 * b"K\x01" + b"e", data=ARRAY))
    assert load_data(f"cifar10:{folder}").labels.tolist() == [1] * 6


def test_cifar_class_names_that_are_none_are_refused(tmp_path):
    folder = cifar_folder(tmp_path, python2_pickle)
    for names in (3, [3], [None], "airplane"):
        (folder / "batches.meta").write_bytes(pickle.dumps({b"label_names": names}, protocol=2))
        with pytest.raises(FrontierError):
            load_data(f"cifar10:{folder}")


def test_a_cifar_file_of_the_published_size_that_is_another_is_mentioned(tmp_path, caplog):
    folder = cifar_folder(tmp_path, python2_pickle)
    load_data(f"cifar10:{folder}")
    assert not caplog.text
    images = np.zeros((10_000, 3072), np.uint8)
    (folder / "test_batch").write_bytes(python2_pickle({b"data": images, b"labels": [1] * 10_000}))
    load_data(f"cifar10:{folder}")
    assert "test_batch is not the published file" in caplog.text
    assert "40351d587109b95175f43aff81a1287e" in caplog.text


def test_cifar_pickles_that_would_run_code_are_refused_and_do_not_run(tmp_path, payload):
    folder = cifar_folder(tmp_path, python2_pickle)
    good = (folder / "test_batch").read_bytes()
    evil = pickle.dumps({b"data": FLAT, b"labels": payload}, protocol=2)
    system = b"cos\nsystem\n(S'touch " + payload.file.encode() + b"'\ntR."
    deep = pickle.dumps(
        {b"data": np.array([payload], dtype=object), b"labels": CLASSES}, protocol=2
    )
    builtins = b"\x80\x02c__builtin__\neval\n(U\x011tR."
    encode = b"\x80\x02c_codecs\nencode\n(X\x01\x00\x00\x00aX\x05\x00\x00\x00rot13tR."
    crafted = [evil, system, deep, builtins, encode, good[:200], b"", b"\x80\x02].", *CRAFTED]
    for content in crafted:
        (folder / "test_batch").write_bytes(content)
        with pytest.raises(FrontierError):
            load_data(f"cifar10:{folder}")
    (folder / "test_batch").write_bytes(good)
    (folder / "batches.meta").write_bytes(pickle.dumps({b"label_names": [payload]}))
    with pytest.raises(
        FrontierError, match=r"asks for \w+\.open, which could run any code: refused"
    ):
        load_data(f"cifar10:{folder}")


def test_a_cifar_folder_without_its_files_is_refused(tmp_path):
    with pytest.raises(FrontierError, match=r"found nothing at .*test_batch"):
        load_data(f"cifar10:{tmp_path}")
    with pytest.raises(FrontierError, match=r"found nothing at .*absent: expected a folder"):
        load_data(f"cifar10:{tmp_path / 'absent'}")


def test_cifar_files_may_be_links(tmp_path):
    folder = cifar_folder(tmp_path, python2_pickle)
    (folder / "test_batch").rename(tmp_path / "elsewhere")
    (folder / "test_batch").symlink_to(tmp_path / "elsewhere")
    assert load_data(f"cifar10:{folder}").labels.tolist() == CLASSES
