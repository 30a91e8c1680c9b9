import pickle

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset

from advfrontier import zoo
from advfrontier.errors import FrontierError
from advfrontier.sources import as_samples, load_samples

RNG = np.random.default_rng(0)
PIXELS = RNG.integers(0, 256, (20, 6, 5, 3), dtype=np.uint8)
LABELS = RNG.integers(0, 10, 20)
UNIT = torch.from_numpy(PIXELS).permute(0, 3, 1, 2).float() / 255
ROWS = torch.tensor([7, 0, 19, 7])


def written(path, save=np.savez, **arrays):
    save(path, **(arrays or {"images": PIXELS, "labels": LABELS}))
    return f"npz:{path}"


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
@pytest.mark.parametrize(
    "arrays",
    [
        {"images": PIXELS, "labels": LABELS},
        {"images": PIXELS.transpose(0, 3, 1, 2), "labels": LABELS.astype(np.uint8)[:, None]},
        {"x_test": np.asfortranarray(PIXELS.astype(np.float32) / 255), "y_test": LABELS},
        {"x": PIXELS.astype(">f8") / 255, "y": LABELS.astype(">i2")},
        {"X": PIXELS.astype(np.longdouble) / 255, "y": LABELS},
    ],
)
def test_npz_gives_unit_nchw_rows_in_the_order_asked_for(tmp_path, save, arrays):
    samples = load_samples(written(tmp_path / "a.npz", save, **arrays))
    images = samples.images(ROWS)
    assert images.dtype == torch.float32
    assert torch.allclose(images, UNIT[ROWS], atol=1e-7)
    assert torch.equal(samples.labels, torch.from_numpy(LABELS))
    assert samples.labels.dtype == torch.int64


def test_grey_images_get_their_channel_and_class_names_are_read(tmp_path):
    spec = written(tmp_path / "a.npz", images=PIXELS[..., 0], labels=LABELS, class_names=np.array(["cat", "dog"]))
    samples = load_samples(spec)
    assert torch.equal(samples.images(ROWS), UNIT[ROWS, :1])
    assert samples.class_names == ("cat", "dog")


def test_stored_archives_are_mapped_and_pickle_as_a_file_name(tmp_path):
    images = np.zeros((4000, 8, 8, 3), np.uint8)
    images[3999] = 255
    samples = load_samples(written(tmp_path / "a.npz", images=images, labels=np.zeros(4000, np.int64)))
    assert isinstance(samples._array, np.memmap)
    content = pickle.dumps(samples)
    assert len(content) < 40_000  # the labels, not the 768 kB of images
    assert float(pickle.loads(content).images(torch.tensor([3999])).min()) == 1.0  # noqa: S301


def test_only_the_rows_asked_for_are_read(tmp_path, monkeypatch):
    samples = load_samples(written(tmp_path / "a.npz"))
    read = []
    whole = samples._array

    class Spy:
        def __getitem__(self, rows):
            read.extend(rows.tolist())
            return whole[rows]

    vars(samples)["_array"] = Spy()
    samples.images(ROWS)
    assert read == ROWS.tolist()


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"images": PIXELS.astype(np.float32), "labels": LABELS}, "range from 0 to 255: expected .0, 1.; divide"),
        ({"images": PIXELS / 127.5 - 1, "labels": LABELS}, "range from -1 to 1: expected .0, 1.; leave them"),
        ({"images": PIXELS.astype(np.int32), "labels": LABELS}, "images are int32: expected uint8"),
        ({"images": PIXELS, "labels": LABELS[:5]}, r"20 images but labels of shape \(5,\)"),
        ({"images": PIXELS, "labels": LABELS.astype(str)}, "labels are <U.*: expected class numbers"),
        ({"images": PIXELS.astype(complex), "labels": LABELS}, "images are complex128: expected uint8"),
        ({"images": PIXELS, "labels": LABELS / 2}, "labels are float64: expected class numbers"),
        ({"images": np.zeros((9, 3, 4, 3), np.uint8), "labels": LABELS[:9]}, r"cannot tell.*\?layout=NHWC"),
        ({"images": np.zeros((9, 4), np.uint8), "labels": LABELS[:9]}, r"shape \(9, 4\)"),
        ({"pictures": PIXELS}, "holds pictures: expected images and labels"),
    ],
)
def test_npz_that_cannot_be_right_is_refused(tmp_path, arrays, message):
    with pytest.raises(FrontierError, match=message):
        load_samples(written(tmp_path / "a.npz", **arrays))


def test_an_ambiguous_layout_can_be_named(tmp_path):
    images = RNG.integers(0, 256, (9, 3, 4, 3), dtype=np.uint8)
    spec = written(tmp_path / "a.npz", images=images, labels=LABELS[:9])
    assert load_samples(f"{spec}?layout=NHWC").images(torch.tensor([0])).shape == (1, 3, 3, 4)
    assert load_samples(f"{spec}?layout=NCHW").images(torch.tensor([0])).shape == (1, 3, 4, 3)
    with pytest.raises(FrontierError, match="layout=HW: expected one of NHWC, NCHW"):
        load_samples(f"{spec}?layout=HW")
    with pytest.raises(FrontierError, match="'size=3' is not an option of npz: expected layout="):
        load_samples(f"{spec}?size=3")


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_npz_object_arrays_are_refused_and_do_not_run(tmp_path, payload, save):
    for key in ("images", "labels"):
        arrays = {"images": PIXELS[:1], "labels": LABELS[:1], key: np.array([payload], dtype=object)}
        with pytest.raises(FrontierError, match=f"{key} is not a plain array.*refused"):
            load_samples(written(tmp_path / f"{key}.npz", save, **arrays))


def test_a_file_that_is_no_archive_is_refused(tmp_path, payload):
    (tmp_path / "a.npz").write_bytes(pickle.dumps(payload))
    with pytest.raises(FrontierError, match="not an npz archive"):
        load_samples(f"npz:{tmp_path / 'a.npz'}")
    with pytest.raises(FrontierError, match="found nothing at"):
        load_samples(f"npz:{tmp_path / 'b.npz'}")


# CIFAR


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
    names = ["test", "train"] if hundred else ["test_batch", *(f"data_batch_{i}" for i in range(1, 6))]
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
        samples = load_samples(f"{kind}:{place}")
        assert samples.labels.tolist() == CLASSES
        expected = torch.from_numpy(FLAT[[5, 0]] / np.float32(255)).view(2, 3, 32, 32)
        assert torch.equal(samples.images(torch.tensor([5, 0])), expected)
        assert samples.class_names == ("airplane", "bird")
    assert len(load_samples(f"{kind}:{folder}?split=train")) == (6 if hundred else 30)
    content = pickle.dumps(samples)
    assert len(content) < 2000
    assert torch.equal(pickle.loads(content).images(ROWS[1:2]), samples.images(ROWS[1:2]))  # noqa: S301


def test_cifar_pickles_that_would_run_code_are_refused_and_do_not_run(tmp_path, payload):
    folder = cifar_folder(tmp_path, python2_pickle)
    good = (folder / "test_batch").read_bytes()
    evil = pickle.dumps({b"data": FLAT, b"labels": payload}, protocol=2)
    system = b"cos\nsystem\n(S'touch " + payload.file.encode() + b"'\ntR."
    deep = pickle.dumps({b"data": np.array([payload], dtype=object), b"labels": CLASSES}, protocol=2)
    builtins = b"\x80\x02c__builtin__\neval\n(U\x011tR."
    encode = b"\x80\x02c_codecs\nencode\n(X\x01\x00\x00\x00aX\x05\x00\x00\x00rot13tR."
    for content in (evil, system, deep, builtins, encode, good[:200], b"", b"\x80\x02]."):
        (folder / "test_batch").write_bytes(content)
        with pytest.raises(FrontierError):
            load_samples(f"cifar10:{folder}")
    (folder / "test_batch").write_bytes(good)
    (folder / "batches.meta").write_bytes(pickle.dumps({b"label_names": [payload]}))
    with pytest.raises(FrontierError, match=r"asks for \w+\.open, which could run any code: refused"):
        load_samples(f"cifar10:{folder}")


def test_a_cifar_folder_without_its_files_is_refused(tmp_path):
    with pytest.raises(FrontierError, match=r"found nothing at .*test_batch"):
        load_samples(f"cifar10:{tmp_path}")
    with pytest.raises(FrontierError, match=r"found nothing at .*absent: expected a folder"):
        load_samples(f"cifar10:{tmp_path / 'absent'}")


# Which rows


def test_samples_are_the_first_or_a_prefix_of_one_permutation(tmp_path):
    spec = written(tmp_path / "a.npz")
    first = load_samples(spec, samples=5)
    assert torch.equal(first.images(torch.arange(5)), UNIT[:5])
    assert torch.equal(first.labels, torch.from_numpy(LABELS[:5]))
    few, more, others = (load_samples(spec, samples=n, seed=s) for n, s in ((5, 1), (12, 1), (12, 2)))
    assert torch.equal(few.images(torch.arange(5)), more.images(torch.arange(12))[:5])
    assert torch.equal(few.labels, more.labels[:5])
    assert not torch.equal(more.images(torch.arange(12)), others.images(torch.arange(12)))
    everything = load_samples(spec, seed=3).images(torch.arange(20))
    assert torch.equal(everything.flatten(1).sum(1).sort()[0], UNIT.flatten(1).sum(1).sort()[0])
    assert few.name == spec
    assert torch.equal(pickle.loads(pickle.dumps(few)).images(ROWS[1:2]), few.images(ROWS[1:2]))  # noqa: S301
    for wrong in (0, 21, -1):
        with pytest.raises(FrontierError, match="expected 1 to 20"):
            load_samples(spec, samples=wrong)


def test_unknown_data_are_refused():
    for spec in ("cifar", "mnist:here", "npz", "npz:", "fashion"):
        with pytest.raises(FrontierError, match="is not a data set: expected fashion-mnist, cifar10:DIR"):
            load_samples(spec)


def test_fashion_mnist_comes_from_the_zoo_and_pickles_by_name():
    images, labels = zoo.images_and_labels()
    samples = load_samples("fashion-mnist", samples=40)
    rows = torch.tensor([20, 0])
    assert torch.equal(samples.images(rows), images[rows])
    assert torch.equal(samples.labels, labels[:40])
    assert samples.class_names == tuple(zoo.CLASS_NAMES)
    content = pickle.dumps(samples)
    assert len(content) < 2000
    assert torch.equal(pickle.loads(content).images(rows), images[rows])  # noqa: S301


# What Python users have


class Rows(Dataset):
    def __init__(self, images):
        self.content, self.read = images, []

    def __len__(self):
        return len(self.content)

    def __getitem__(self, row):
        self.read.append(row)
        return self.content[row], int(LABELS[row])


class Stream(IterableDataset):
    def __iter__(self):
        return iter([(image, label) for image, label in zip(UNIT, LABELS, strict=True)])


def test_tensors_and_loaders_become_samples():
    labels = torch.from_numpy(LABELS)
    for given in (
        as_samples(UNIT, labels),
        as_samples(torch.from_numpy(PIXELS).permute(0, 3, 1, 2), labels),
        as_samples(DataLoader(TensorDataset(UNIT, labels), batch_size=7)),
        as_samples(DataLoader(Stream(), batch_size=7)),
        as_samples(zip(UNIT.split(6), labels.split(6), strict=True)),
        as_samples(UNIT.numpy(), LABELS),
    ):
        assert torch.equal(given.images(ROWS), UNIT[ROWS])
        assert torch.equal(given.labels, labels)
        assert len(given) == 20


def test_a_loader_over_a_dataset_is_read_on_demand_in_the_order_of_its_sampler():
    rows = Rows(UNIT)
    torch.manual_seed(0)
    samples = as_samples(DataLoader(rows, batch_size=4, shuffle=True), name="mine")
    order = samples.order
    assert order.tolist() != list(range(20))
    assert torch.equal(samples.labels, torch.from_numpy(LABELS)[order])
    rows.read.clear()
    assert torch.equal(samples.images(torch.tensor([3, 1])), UNIT[order[[3, 1]]])
    assert rows.read == order[[3, 1]].tolist()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((UNIT,), "images without labels"),
        ((UNIT * 255, torch.from_numpy(LABELS)), "range from 0 to 255: expected .0, 1.; divide them by 255"),
        ((UNIT, torch.zeros(20)), "labels are torch.float32"),
        ((UNIT, torch.zeros(20, 10, dtype=torch.int64)), r"labels of shape \(20, 10\)"),
        ((UNIT[0], torch.zeros(3, dtype=torch.int64)), r"shape \(3, 6, 5\)"),
        (
            (UNIT.flatten(1), torch.from_numpy(LABELS)),
            r"shape \(20, 90\).*flat inputs go as \(samples, 1, 1, features\)",
        ),
        ((UNIT[:0], torch.from_numpy(LABELS)[:0]), r"no images, shape \(0, 3, 6, 5\)"),
        ((UNIT * torch.nan, torch.from_numpy(LABELS)), "pixels are not all finite"),
        ((DataLoader(UNIT), None), "expected .image, label. pairs"),
        ((DataLoader(Rows(UNIT)), torch.zeros(20)), "images are a DataLoader with labels given apart"),
        (([],), "expected batches of"),
        ((DataLoader(Rows([torch.rand(3, 4, 4), torch.rand(3, 5, 5)]), batch_size=1),), "images of different sizes"),
    ],
)
def test_data_that_cannot_be_right_are_refused(arguments, message):
    with pytest.raises(FrontierError, match=message):
        as_samples(*arguments).images(torch.tensor([0, 1]))
