"""Archives of NumPy: stored arrays are mapped, compressed ones read, damaged ones refused."""

import io
import pickle
import tracemalloc
import zipfile

import numpy as np
import pytest
import torch

from advfrontier.errors import FrontierError
from advfrontier.sources import load_data, npz

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
def test_read_rows_in_the_order_asked_for(tmp_path, save, arrays):
    samples = load_data(written(tmp_path / "a.npz", save, **arrays))
    images = samples.read(ROWS)
    assert images.dtype == torch.float32
    assert torch.allclose(images, UNIT[ROWS], atol=1e-7)
    assert torch.equal(samples.labels, torch.from_numpy(LABELS))
    assert samples.labels.dtype == torch.int64


def test_grey_images_and_class_names(tmp_path):
    spec = written(
        tmp_path / "a.npz",
        images=PIXELS[..., 0],
        labels=LABELS,
        class_names=np.array([b"cat", b"dog"]),
    )
    samples = load_data(spec)
    assert torch.equal(samples.read(ROWS), UNIT[ROWS, :1])
    assert samples.class_names == ("cat", "dog")


def test_stored_arrays_are_mapped_and_pickled_as_a_file_name(tmp_path):
    images = np.zeros((4000, 8, 8, 3), np.uint8)
    images[3999] = 255
    samples = load_data(written(tmp_path / "a.npz", images=images, labels=np.zeros(4000, np.int64)))
    assert isinstance(samples.read.array, np.memmap)
    content = pickle.dumps(samples)
    assert len(content) < 40_000  # the labels, not the 768 kB of images
    assert float(pickle.loads(content).read(torch.tensor([3999])).min()) == 1.0  # noqa: S301


def test_read_only_the_rows_asked_for(tmp_path, monkeypatch):
    samples = load_data(written(tmp_path / "a.npz"))
    read = []
    whole = samples.read.array

    class Spy:
        def __getitem__(self, rows):
            read.extend(rows.tolist())
            return whole[rows]

    vars(samples.read)["array"] = Spy()
    samples.read(ROWS)
    assert read == ROWS.tolist()


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        (
            {"images": PIXELS.astype(np.float32), "labels": LABELS},
            "range from 0 to 255: expected .0, 1.; if they are 8-bit, divide",
        ),
        (
            {"images": PIXELS / 127.5 - 1, "labels": LABELS},
            "range from -1 to 1: expected .0, 1.; if they are normalised, undo it",
        ),
        ({"images": PIXELS.astype(np.int32), "labels": LABELS}, "images are int32: expected uint8"),
        ({"images": PIXELS, "labels": LABELS[:5]}, r"20 images but labels of shape \(5,\)"),
        (
            {"images": PIXELS, "labels": LABELS.astype(str)},
            "labels are <U.*: expected class numbers",
        ),
        (
            {"images": PIXELS.astype(complex), "labels": LABELS},
            "images are complex128: expected uint8",
        ),
        ({"images": PIXELS, "labels": LABELS / 2}, "labels are float64: expected class numbers"),
        (
            {"images": np.zeros((9, 3, 4, 3), np.uint8), "labels": LABELS[:9]},
            r"cannot tell.*\?layout=NHWC",
        ),
        ({"images": np.zeros((9, 4), np.uint8), "labels": LABELS[:9]}, r"shape \(9, 4\)"),
        ({"pictures": PIXELS}, "holds pictures: expected images and labels"),
    ],
)
def test_wrong_arrays_are_refused(tmp_path, arrays, message):
    with pytest.raises(FrontierError, match=message):
        load_data(written(tmp_path / "a.npz", **arrays))


def test_layout_ambiguous(tmp_path):
    images = RNG.integers(0, 256, (9, 3, 4, 3), dtype=np.uint8)
    spec = written(tmp_path / "which?.npz", images=images, labels=LABELS[:9])
    assert load_data(f"{spec}?layout=NHWC").read(torch.tensor([0])).shape == (1, 3, 3, 4)
    assert load_data(f"{spec}?layout=NCHW").read(torch.tensor([0])).shape == (1, 3, 4, 3)
    with pytest.raises(FrontierError, match="layout=HW: expected one of NHWC, NCHW"):
        load_data(f"{spec}?layout=HW")
    with pytest.raises(FrontierError, match="'size=3' is not an option of npz: expected layout="):
        load_data(f"{spec}?size=3")


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_object_arrays_are_refused_and_do_not_run(tmp_path, payload, save):
    for key in ("images", "labels"):
        arrays = {
            "images": PIXELS[:1],
            "labels": LABELS[:1],
            key: np.array([payload], dtype=object),
        }
        with pytest.raises(
            FrontierError,
            match=r"Object arrays cannot be loaded .*expected one written by np\.savez",
        ):
            load_data(written(tmp_path / f"{key}.npz", save, **arrays))


def test_file_that_is_no_archive(tmp_path, payload):
    (tmp_path / "a.npz").write_bytes(pickle.dumps(payload))
    with pytest.raises(FrontierError, match="not an npz archive"):
        load_data(f"npz:{tmp_path / 'a.npz'}")
    with pytest.raises(FrontierError, match="found nothing at"):
        load_data(f"npz:{tmp_path / 'b.npz'}")


def test_changed_bytes_are_refused(tmp_path):
    spec = written(tmp_path / "a.npz")
    content = bytearray((tmp_path / "a.npz").read_bytes())
    content[content.index(PIXELS.tobytes()) + 1000] ^= 1
    (tmp_path / "a.npz").write_bytes(content)
    with pytest.raises(
        FrontierError, match=r"the checksum of images\.npy differs: the file is damaged"
    ):
        load_data(spec)


def test_a_directory_that_lost_an_entry_is_refused(tmp_path):
    names = np.array(["cat", "dog"])
    spec = written(tmp_path / "a.npz", images=PIXELS, labels=LABELS, class_names=names)
    assert load_data(spec).class_names == ("cat", "dog")
    with zipfile.ZipFile(tmp_path / "a.npz", "a") as archive:
        archive.filelist.pop()
        archive.NameToInfo.pop("class_names.npy")
        archive._didModify = True  # so that it writes its directory again
    with pytest.raises(FrontierError, match="its directory does not list all of its content"):
        load_data(spec)


def test_archives_written_to_a_pipe_are_read(tmp_path):
    """Sizes and checksums follow the content of an entry there."""

    class Pipe(io.BytesIO):
        def seekable(self):
            return False

        def tell(self):
            raise OSError("a pipe has no position")

    pipe = Pipe()
    with zipfile.ZipFile(pipe, "w") as archive:
        for name, array in (("images", PIXELS), ("labels", LABELS)):
            content = io.BytesIO()
            np.save(content, array)
            with archive.open(f"{name}.npy", "w") as entry:
                entry.write(content.getvalue())
    (tmp_path / "a.npz").write_bytes(pipe.getvalue())
    assert torch.equal(load_data(f"npz:{tmp_path / 'a.npz'}").labels, torch.from_numpy(LABELS))


def bomb(path, size, *, method=zipfile.ZIP_DEFLATED, declared=None):
    """Write an archive whose images are so many zeros; return the bytes before them."""
    header, labels = io.BytesIO(), io.BytesIO()
    shape = ((declared or size) // 16, 4, 4, 1)
    np.lib.format.write_array_header_1_0(
        header, {"descr": "|u1", "fortran_order": False, "shape": shape}
    )
    np.save(labels, LABELS)
    with zipfile.ZipFile(path, "w", method) as archive:
        archive.writestr("images.npy", header.getvalue() + bytes(size))
        archive.writestr("labels.npy", labels.getvalue())
    return header.tell()


@pytest.fixture
def little_memory():
    """Check that little memory was used."""
    tracemalloc.start()
    yield tracemalloc.reset_peak
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 2**24


def test_large_compressed_array_is_refused_before_it_is_unpacked(
    tmp_path, monkeypatch, little_memory
):
    monkeypatch.setattr(npz, "LARGEST_COMPRESSED", 2**26)
    bomb(tmp_path / "a.npz", 2**27)
    little_memory()
    with pytest.raises(
        FrontierError, match=r"images\.npy is compressed and holds 0\.1 GB.*np\.savez\('a\.npz'"
    ):
        load_data(f"npz:{tmp_path / 'a.npz'}")


@pytest.mark.parametrize(
    ("lie", "message"),
    [
        (20 * 16, "the checksum of images.npy differs: the file is damaged"),
        (2**40, "images.npy is compressed and holds 4.3 GB: expected at most 1.1 GB"),
    ],
)
def test_compressed_array_that_lies_about_its_size(tmp_path, lie, message, little_memory):
    header = bomb(tmp_path / "a.npz", 2**27, declared=lie)
    content = (tmp_path / "a.npz").read_bytes()
    true, false = (min(header + size, 2**32 - 2).to_bytes(4, "little") for size in (2**27, lie))
    assert content.count(true) == 2
    (tmp_path / "a.npz").write_bytes(content.replace(true, false))
    little_memory()
    with pytest.raises(FrontierError, match=message):
        load_data(f"npz:{tmp_path / 'a.npz'}")


def test_other_compression_is_refused(tmp_path):
    bomb(tmp_path / "a.npz", 2**20, method=zipfile.ZIP_BZIP2)
    with pytest.raises(
        FrontierError, match=r"images\.npy is compressed in another way than by NumPy"
    ):
        load_data(f"npz:{tmp_path / 'a.npz'}")


def test_class_names_that_take_no_space(tmp_path):
    spec = written(
        tmp_path / "a.npz", images=PIXELS, labels=LABELS, class_names=np.zeros(10**7, "V0")
    )
    with pytest.raises(
        FrontierError, match=r"class_names have shape \(10000000,\): expected one name per class"
    ):
        load_data(spec)


@pytest.mark.parametrize("rows", [19, 21, 2**40])
def test_stored_array_whose_header_tells_another_size_is_not_mapped(tmp_path, rows):
    """A checksum can be forged with the rest, so the sizes are compared too."""
    header, labels = io.BytesIO(), io.BytesIO()
    np.lib.format.write_array_header_1_0(
        header, {"descr": "|u1", "fortran_order": False, "shape": (rows, 6, 5, 3)}
    )
    np.save(labels, LABELS)
    with zipfile.ZipFile(tmp_path / "a.npz", "w") as archive:
        archive.writestr("images.npy", header.getvalue() + PIXELS.tobytes())
        archive.writestr("labels.npy", labels.getvalue())
    message = "not an npz archive, or a damaged one"
    if rows == 19:
        message = r"19 images but labels of shape \(20,\)"
    with pytest.raises(FrontierError, match=message):
        load_data(f"npz:{tmp_path / 'a.npz'}")


def test_stored_array_in_fortran_order_is_mapped(tmp_path):
    samples = load_data(
        written(tmp_path / "a.npz", images=np.asfortranarray(PIXELS), labels=LABELS)
    )
    assert isinstance(samples.read.array, np.memmap)
    assert torch.equal(samples.read(ROWS), UNIT[ROWS])
