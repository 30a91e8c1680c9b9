"""Tensors, datasets and loaders that Python users have, as samples."""

import pickle

import numpy as np
import pytest
import torch
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    Dataset,
    IterableDataset,
    SubsetRandomSampler,
    TensorDataset,
)

from advfrontier.errors import FrontierError
from advfrontier.sources import as_samples
from advfrontier.sources.samples import choose

RNG = np.random.default_rng(0)
PIXELS = RNG.integers(0, 256, (20, 6, 5, 3), dtype=np.uint8)
LABELS = RNG.integers(0, 10, 20)
UNIT = torch.from_numpy(PIXELS).permute(0, 3, 1, 2).float() / 255
ROWS = torch.tensor([7, 0, 19, 7])


class Named(Dataset):
    def __len__(self):
        return 20

    def __getitem__(self, row):
        return UNIT[row], "cat"


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


def test_as_samples_of_tensors_and_loaders():
    labels = torch.from_numpy(LABELS)
    for given in (
        as_samples(UNIT, labels),
        as_samples(torch.from_numpy(PIXELS).permute(0, 3, 1, 2), labels),
        as_samples(DataLoader(TensorDataset(UNIT, labels), batch_size=7)),
        as_samples(DataLoader(Stream(), batch_size=7)),
        as_samples(zip(UNIT.split(6), labels.split(6), strict=True)),
        as_samples(UNIT.numpy(), LABELS),
    ):
        assert torch.equal(given.read(ROWS), UNIT[ROWS])
        assert torch.equal(given.labels, labels)
        assert len(given) == 20
        assert as_samples(given) is given


def test_as_samples_of_unusual_loaders_and_layouts():
    labels = torch.from_numpy(LABELS)
    half = DataLoader(
        TensorDataset(UNIT, labels),
        collate_fn=lambda items: tuple(map(torch.stack, zip(*items, strict=True))),
    )
    assert torch.equal(as_samples(half).read(ROWS), UNIT[ROWS])
    last = UNIT.permute(0, 2, 3, 1)
    assert torch.equal(as_samples(last, LABELS.tolist()).read(ROWS), UNIT[ROWS])
    assert torch.equal(as_samples(list(UNIT), LABELS).read(ROWS), UNIT[ROWS])
    unclear = torch.rand(2, 4, 9, 3)  # four channels, or a height of four
    assert torch.equal(as_samples(unclear, [0, 1]).read(torch.tensor([0, 1])), unclear)


def test_loader_over_a_dataset_is_read_on_demand_in_its_samplers_order():
    rows = Rows(UNIT)
    torch.manual_seed(0)
    samples = as_samples(DataLoader(rows, batch_size=4, shuffle=True), name="mine")
    order = samples.read.args[1]
    assert order.tolist() != list(range(20))
    assert torch.equal(samples.labels, torch.from_numpy(LABELS)[order])
    rows.read.clear()
    assert torch.equal(samples.read(torch.tensor([3, 1])), UNIT[order[[3, 1]]])
    assert rows.read == order[[3, 1]].tolist()


@pytest.mark.parametrize("way", [{}, {"batch_size": None}])
def test_batches_of_the_users_own(way):
    """The loader's own sampler then knows nothing of them."""
    pair = TensorDataset(UNIT, torch.arange(20))
    batches = BatchSampler(SubsetRandomSampler([5, 6, 7]), 2, drop_last=False)
    loader = (
        DataLoader(pair, sampler=batches, **way) if way else DataLoader(pair, batch_sampler=batches)
    )
    samples = as_samples(loader)
    assert sorted(samples.labels.tolist()) == [5, 6, 7]
    assert torch.equal(samples.read(torch.arange(3)), UNIT[samples.labels])
    first = as_samples(DataLoader(pair, batch_sampler=BatchSampler(range(20), 8, drop_last=True)))
    assert first.labels.tolist() == list(range(16))
    whole = as_samples(DataLoader(pair, batch_size=8, drop_last=True))
    assert whole.labels.tolist() == list(range(16))


def test_pictures_have_their_channels_first_and_true_colours():
    picture = pytest.importorskip("PIL.Image", reason="Pillow is not installed").fromarray(
        PIXELS[0]
    )
    few = picture.quantize(4)
    for given, pixels in (
        (picture, PIXELS[0]),
        (picture.convert("L"), np.array(picture.convert("L"))[:, :, None]),
        (few, np.array(few.convert("RGB"))),  # whose own numbers are those of a palette
        (picture.convert("RGBA"), PIXELS[0]),
    ):
        expected = torch.from_numpy(pixels).permute(2, 0, 1)[None] / 255
        for samples in (as_samples([given], [0]), as_samples(Rows([given]))):
            assert torch.equal(samples.read(torch.tensor([0])), expected)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((UNIT,), "images without labels"),
        (
            (UNIT * 255, torch.from_numpy(LABELS)),
            "range from 0 to 255: expected .0, 1.; if they are 8-bit, divide by 255",
        ),
        ((UNIT, torch.zeros(20)), "labels are torch.float32"),
        (
            (UNIT, torch.zeros(20, 10, dtype=torch.int64)),
            r"labels have shape \(20, 10\), as one-hot labels",
        ),
        ((UNIT[0, 0, 0], torch.zeros(5, dtype=torch.int64)), r"shape \(5,\)"),
        (
            (UNIT[:0], torch.from_numpy(LABELS)[:0]),
            r"images have shape \(0, 3, 6, 5\): expected at least one",
        ),
        ((UNIT * torch.nan, torch.from_numpy(LABELS)), "range from nan to nan: expected .0, 1."),
        (
            (TensorDataset(UNIT, torch.full((20,), 2.7)),),
            "labels are torch.float32: expected class numbers",
        ),
        ((DataLoader(TensorDataset(UNIT, torch.eye(20).long())),), "labels have shape"),
        ((DataLoader(Named()),), r"its labels cannot be read \(TypeError"),
        ((DataLoader(UNIT), None), "expected .image, label. pairs"),
        (
            (DataLoader(Rows(UNIT)), torch.zeros(20)),
            "labels were given apart, but a DataLoader has its own",
        ),
        (([],), "expected batches of"),
        ((3,), r"cannot be read \(TypeError.*expected images with labels, or batches"),
        (([(UNIT, LABELS), (UNIT[:, :1], LABELS)],), r"cannot be read \(RuntimeError"),
        (
            (DataLoader(Rows([torch.rand(3, 4, 4), torch.rand(3, 5, 5)]), batch_size=1),),
            "images of different sizes",
        ),
    ],
)
def test_wrong_data_are_refused(arguments, message):
    with pytest.raises(FrontierError, match=message):
        as_samples(*arguments).read(torch.tensor([0, 1]))


@pytest.mark.parametrize("kind", [np.uint16, np.float32])
def test_pictures_of_more_than_8_bits_are_refused(kind):
    image = pytest.importorskip("PIL.Image", reason="Pillow is not installed")
    picture = image.fromarray(np.arange(64).reshape(8, 8).astype(kind))
    with pytest.raises(FrontierError, match=r"pixels are of mode .*: expected 8 bits per channel"):
        as_samples([picture], [0])


def test_choose_first_rows_or_a_prefix_of_one_permutation():
    source = as_samples(UNIT, LABELS, name="mine")
    assert choose(source, None, None) is source
    first = choose(source, 5, None)
    assert torch.equal(first.read(torch.arange(5)), UNIT[:5])
    assert torch.equal(first.labels, torch.from_numpy(LABELS[:5]))
    few, more, others = choose(source, 5, 1), choose(source, 12, 1), choose(source, 12, 2)
    assert torch.equal(few.read(torch.arange(5)), more.read(torch.arange(12))[:5])
    assert torch.equal(few.labels, more.labels[:5])
    assert not torch.equal(more.read(torch.arange(12)), others.read(torch.arange(12)))
    assert not torch.equal(few.read(torch.arange(5)), UNIT[:5])
    everything = choose(source, None, 3)
    assert torch.equal(everything.labels.sort()[0], torch.from_numpy(LABELS).sort()[0])
    pixels = everything.read(torch.arange(20)).flatten(1).sum(1)
    assert torch.equal(pixels.sort()[0], UNIT.flatten(1).sum(1).sort()[0])
    assert few.name == "mine"
    again = pickle.loads(pickle.dumps(few))  # noqa: S301
    assert torch.equal(again.read(ROWS[1:2]), few.read(ROWS[1:2]))


@pytest.mark.parametrize("samples", [0, 21, -1])
def test_choose_wrong_count(samples):
    message = f"mine: samples={samples}, but it has 20: expected 1 to 20"
    with pytest.raises(FrontierError, match=message):
        choose(as_samples(UNIT, LABELS, name="mine"), samples, None)


def test_choose_wrong_seed():
    message = r"the seed of the samples is \d+: expected one from 0 to 2\^64 - 1"
    with pytest.raises(FrontierError, match=message):
        choose(as_samples(UNIT, LABELS), 3, 2**64)
