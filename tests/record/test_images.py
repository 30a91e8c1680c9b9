"""Images beside a record: verified by their contents, and kept in memory up to a limit."""

import pickle

import pytest
import torch
from record_made import SHAPE, clean_of, images_of, made_record

from advfrontier import FrontierError
from advfrontier.engine.data import Samples
from advfrontier.record import Record, images
from advfrontier.record.images import VerifiedImages, image_file, store_images, stored_images
from advfrontier.record.tensors import pack


class Reader:
    """Reads images, and notes which."""

    def __init__(self, pixels):
        self.pixels, self.rows = pixels, []

    def __call__(self, rows):
        self.rows.append(rows.tolist())
        return self.pixels[rows]


@pytest.fixture
def reader():
    return Reader(images_of(10))


def verified(reader, **options):
    return VerifiedImages(reader, clean_of(10).ids, 4, "made", **options)


def test_rows_come_in_their_order(reader):
    read = verified(reader)
    for rows in ([7, 0, 3, 3], [9], [], list(range(10))):
        assert torch.equal(read(torch.tensor(rows, dtype=torch.long)), reader.pixels[rows])
    assert read.shape == SHAPE


def test_every_shard_is_read_and_hashed_once(reader, monkeypatch):
    hashed, sample_ids = [], images.sample_ids
    monkeypatch.setattr(
        "advfrontier.record.images.sample_ids", lambda x: [hashed.append(len(x)), sample_ids(x)][1]
    )
    read = VerifiedImages.of(Samples("made", clean_of(10).labels, reader), 4)
    assert (read.ids == clean_of(10).ids).all()
    for _ in range(3):
        assert torch.equal(read(torch.arange(10)), reader.pixels)
    assert reader.rows == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]
    assert sum(hashed) == 10


def test_what_is_kept_has_a_limit_per_reader(reader):
    size = 4 * images_of(1).nbytes
    read = verified(reader, limit=2 * size)
    for k in (0, 4, 0, 8, 0, 4):  # the shard that was used longest ago goes
        read(torch.tensor([k]))
    assert [rows[0] for rows in reader.rows] == [0, 4, 8, 4]
    none = verified(Reader(reader.pixels), limit=0)
    for k in (0, 1, 4, 4, 0):
        none(torch.tensor([k]))
    assert [rows[0] for rows in none.read.rows] == [0, 4, 0]
    assert verified(reader)._kept == {}


def test_it_travels_without_what_it_kept(reader):
    read = verified(reader)
    read(torch.arange(10))
    other = pickle.loads(pickle.dumps(read))  # noqa: S301
    assert other._kept == {}
    assert torch.equal(other(torch.arange(10)), reader.pixels)


@pytest.mark.parametrize("row", [0, 5, 9])
def test_other_images_are_refused(reader, row):
    read = verified(reader)
    reader.pixels = reader.pixels.clone()
    reader.pixels[row, 0, 0, 0] = 1 - reader.pixels[row, 0, 0, 0]
    message = rf"made gives other images .*\(1 of . differ, the first is sample {row}\)"
    with pytest.raises(FrontierError, match=message):
        read(torch.arange(10))


def test_images_of_several_shapes_are_refused():
    pixels = images_of(10)

    def read(rows):
        return pixels[rows] if rows[0] < 4 else pixels[rows].flatten(1)

    with pytest.raises(FrontierError, match=r"shape \(9,\) after \(1, 3, 3\): expected one shape"):
        VerifiedImages.of(Samples("made", clean_of(10).labels, read), 4)


def test_samples_are_checked_when_they_are_identified(reader):
    with pytest.raises(FrontierError, match="made holds no samples"):
        VerifiedImages.of(Samples("made", torch.zeros(0).long(), reader), 4)
    with pytest.raises(FrontierError, match="expected"):
        VerifiedImages.of(Samples("made", torch.zeros(10), reader), 4)
    reader.pixels = reader.pixels * 255
    with pytest.raises(FrontierError, match="divide by 255"):
        VerifiedImages.of(Samples("made", torch.zeros(10).long(), reader), 4)


# In a record


@pytest.mark.parametrize("place", ["record", "memory://images/record"])
def test_samples_of_a_record(tmp_path, place):
    record = made_record(place if "://" in place else tmp_path / place)
    samples = Record.find(record.place).samples()
    assert torch.equal(samples.read(torch.tensor([5, 0])), images_of(6)[[5, 0]])
    assert torch.equal(samples.labels, clean_of(6).labels)
    assert pickle.loads(pickle.dumps(samples.read)).shape == SHAPE  # noqa: S301


def test_images_are_verified_once_and_not_twice(tmp_path):
    record = made_record(tmp_path)
    samples = record.samples()
    assert record.images(samples) is samples.read
    reader = Reader(images_of(6))
    own = Samples("made", clean_of(6).labels, reader)
    outer = record.images(own)
    assert outer.read is reader
    more = VerifiedImages(reader, clean_of(8).ids, 4, "more")
    inner = record.images(Samples("more", clean_of(8).labels, more))
    assert inner.read is reader
    assert (inner.ids == record.clean.ids).all()


@pytest.mark.parametrize(
    "damage", ["lost", "cut", "shape", "rows", "values", "dtype", "name", "other"]
)
def test_damaged_images_are_named_and_stored_again(tmp_path, damage):
    record = made_record(tmp_path)
    file = image_file(4, 2)
    right, pixels = record.folder.read(file), images_of(6)[4:]
    wrong = {
        "lost": None,
        "cut": right[:-3],
        "shape": pack({"images": pixels.flatten(1)}),
        "rows": pack({"images": pixels[:1]}),
        "values": pack({"images": pixels + 1}),
        "dtype": pack({"images": pixels.long()}),
        "name": pack({"image": pixels}),
        "other": pack({"images": 1 - pixels}),
    }[damage]
    if wrong is None:
        record.folder.remove(file)
    else:
        record.folder.write(file, wrong)
    message = r"does not hold the images of samples 4–5, or they were damaged|gives other images"
    with pytest.raises(FrontierError, match=message):
        Record.find(tmp_path).samples().read(torch.tensor([5]))
    store_images(record.folder, 4, pixels)
    assert torch.equal(Record.find(tmp_path).samples().read(torch.tensor([5])), pixels[1:])


@pytest.mark.parametrize("pixels", [images_of(4), torch.rand(4, *SHAPE)])
def test_stored_images_come_back_bit_for_bit(tmp_path, pixels):
    from advfrontier.record import open_folder  # noqa: PLC0415

    folder = open_folder(tmp_path)
    assert stored_images(folder, 0, 4) is None
    store_images(folder, 0, pixels)
    assert torch.equal(stored_images(folder, 0, 4), pixels)
    assert torch.equal(stored_images(folder, 0, 4, SHAPE), pixels)
    assert stored_images(folder, 0, 4, (3, 3)) is None
    before = (tmp_path / image_file(0, 4)).stat().st_mtime_ns
    store_images(folder, 0, pixels)
    assert (tmp_path / image_file(0, 4)).stat().st_mtime_ns == before
