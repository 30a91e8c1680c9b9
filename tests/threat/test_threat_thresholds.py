import pytest
import torch

from advfrontier.threat.thresholds import largest, ranked


@pytest.mark.parametrize("features", [8, 200, 3000])
@pytest.mark.parametrize("share", [0.005, 0.2, 0.7, 1.0])
def test_the_largest_are_those_of_a_full_sort(features, share):
    values = torch.rand(5, features, generator=torch.Generator().manual_seed(1))
    values[:, ::3] = 0.25  # ties
    count = max(1, int(share * features))
    assert torch.equal(
        largest(values, count), values.sort(dim=1, descending=True).values[:, :count]
    )


def test_more_than_there_are_is_all_of_them_and_none_is_one():
    values = torch.tensor([[1.0, 3.0, 2.0]])
    assert largest(values, 9).tolist() == [[3.0, 2.0, 1.0]]
    assert largest(values, 0).tolist() == [[3.0]]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_ranking_is_a_stable_sort(dtype):
    values = torch.rand(4, 300, generator=torch.Generator().manual_seed(2)).to(dtype)
    values[0, 40:90] = 0.0
    values[1] = 0.5
    values[2, ::2] = 1e-42  # below the normal numbers
    values[3, 7] = torch.inf
    expected = values.sort(dim=1, descending=True, stable=True)
    found, places = ranked(values, values.shape[1])
    assert torch.equal(found, expected.values)
    assert torch.equal(places, expected.indices)
