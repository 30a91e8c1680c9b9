"""Random numbers: uniform, independent, and a function of seed, sample and stream alone."""

import numpy as np
import pytest
import torch
from scipy.stats import chi2, kstest

from advfrontier.threat.random import Draws, sample_ids, sample_keys

HASHES = np.random.default_rng(0).integers(0, 2**64, 20_000, dtype=np.uint64)
COUNTED = np.arange(20_000, dtype=np.uint64)  # ids that differ in few bits
KEYS = pytest.mark.parametrize("ids", [HASHES, COUNTED], ids=["hashes", "small numbers"])


def draws(ids=HASHES, seed=43):
    return Draws(seed, sample_keys(ids))


def worst_p_value(columns, distribution):
    return min(kstest(column, distribution).pvalue for column in columns)


@KEYS
def test_uniform_numbers_of_many_samples_are_uniform_and_independent(ids):
    u = draws(ids).uniform("stream", 4).double().numpy()
    assert u.min() > 0
    assert u.max() < 1
    assert worst_p_value(u.T, "uniform") > 1e-3
    assert np.abs(np.corrcoef(u.T) - np.eye(4)).max() < 0.03
    assert abs(np.corrcoef(u[:-1, 0], u[1:, 0])[0, 1]) < 0.03


@KEYS
def test_uniform_numbers_of_one_sample_are_uniform_and_independent(ids):
    u = draws(ids[:4]).uniform("stream", 100_000).double().numpy()
    assert worst_p_value(u, "uniform") > 1e-3
    assert np.abs(np.corrcoef(u) - np.eye(4)).max() < 0.015
    for lag in (1, 2, 28, 784):
        assert abs(np.corrcoef(u[0, :-lag], u[0, lag:])[0, 1]) < 0.015


@KEYS
def test_bits_are_each_set_half_of_the_time(ids):
    bits = draws(ids[:50]).bits("stream", 4000).numpy().view(np.uint32)
    for bit in range(32):
        share = ((bits >> bit) & 1).mean()
        assert share == pytest.approx(0.5, abs=5 * 0.5 / bits.size**0.5)


@KEYS
def test_pairs_of_numbers_fill_the_square_evenly(ids):
    """χ² of a 16 × 16 table, for neighbours in a row, in a column, and in two streams."""
    one, two = draws(ids).uniform("one", 4).numpy(), draws(ids).uniform("two", 4).numpy()
    pairs = ((one[:, 0], one[:, 1]), (one[:-1, 0], one[1:, 0]), (one[:, 0], two[:, 0]))
    for first, second in pairs:
        table = np.histogram2d(first, second, bins=16, range=[(0, 1), (0, 1)])[0]
        expected = len(first) / table.size
        statistic = ((table - expected) ** 2 / expected).sum()
        assert chi2.sf(statistic, table.size - 1) > 1e-4


def test_one_bit_of_the_key_changes_half_of_the_bits():
    for bit in range(64):
        other = HASHES[:500] ^ np.uint64(1 << bit)
        changed = draws(HASHES[:500]).bits("s", 8) ^ draws(other).bits("s", 8)
        share = np.unpackbits(changed.numpy().view(np.uint8)).mean()
        assert share == pytest.approx(0.5, abs=0.01)


def test_numbers_depend_on_seed_stream_and_sample():
    one = draws(HASHES[:5], 7).uniform("a", 4)
    others = [
        draws(HASHES[:5], 8).uniform("a", 4),
        draws(HASHES[:5], 7).uniform("b", 4),
        draws(HASHES[5:10], 7).uniform("a", 4),
    ]
    for other in others:
        assert (one != other).all()


def test_numbers_do_not_depend_on_the_batch_or_the_count():
    together = draws(HASHES[:50]).uniform("stream", 30)
    order = np.random.default_rng(1).permutation(50)
    assert torch.equal(draws(HASHES[:50][order]).uniform("stream", 30), together[order])
    assert torch.equal(draws(HASHES[17:18]).uniform("stream", 30)[0], together[17])
    assert torch.equal(draws(HASHES[:50]).uniform("stream", 12), together[:, :12])


def test_numbers_stay_the_same_from_version_to_version():
    """Stored runs resume with these bits."""
    expected = [[-2060292315, 70666088, -262826941], [226690687, 755424410, -1212275998]]
    assert draws(COUNTED[:2], 42).bits("golden", 3).tolist() == expected


def test_normal_numbers_are_normal_and_independent():
    numbers = draws().normal("stream", 3)
    assert numbers.dtype == torch.float64
    assert worst_p_value(numbers.T.numpy(), "norm") > 1e-3
    assert np.abs(np.corrcoef(numbers.T.numpy()) - np.eye(3)).max() < 0.03
    assert kstest(draws(COUNTED[:1]).normal("stream", 50_000)[0].numpy(), "norm").pvalue > 1e-3


def test_sample_ids_belong_to_the_content_of_an_image():
    images = np.random.default_rng(0).random((6, 3, 4, 4), dtype=np.float32)
    ids = sample_ids(images)
    assert len(set(ids.tolist())) == 6
    order = [3, 0, 5, 1, 4, 2]
    assert (sample_ids(images[order]) == ids[order]).all()
    assert sample_ids(images[2:3]) == ids[2]
    assert (sample_ids(images[:, ::-1].copy()[:, ::-1]) == ids).all()
    changed = images.copy()
    changed[4, 0, 0, 0] = np.nextafter(changed[4, 0, 0, 0], np.float32(2))
    assert ((sample_ids(changed) == ids) == (np.arange(6) != 4)).all()


def test_sample_keys_are_the_two_halves_of_an_id():
    keys = sample_keys(np.array([1, 5 << 32], dtype=np.uint64))
    assert keys.dtype == torch.int32
    assert keys.tolist() == [[1, 0], [0, 5]]
