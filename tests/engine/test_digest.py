"""Models are told apart by their structure and all their numbers, whatever these are kept in."""

import copy

import numpy as np
import pytest
import torch
from support.models import tanh_mlp
from torch import nn

from advfrontier import FrontierError
from advfrontier.engine import model_digest

SHAPE = (1, 4, 4)


class Keeping(nn.Module):
    """A module with a tensor of its own and a state beside it."""

    def __init__(self, tensor=None, extra=None):
        super().__init__()
        self.extra = extra
        self.register_buffer("kept", torch.zeros(()) if tensor is None else tensor)

    def get_extra_state(self):
        return self.extra

    def set_extra_state(self, state):
        self.extra = state


class Opaque:
    """Prints where it lies in memory."""


ONES = torch.ones(3, 2)
TENSORS = {
    "float32": (ONES, 2 * ONES),
    "float64": (ONES.double(), (1 + 1e-12) * ONES.double()),
    "float16": (ONES.half(), 2 * ONES.half()),
    "bfloat16": (ONES.bfloat16(), 2 * ONES.bfloat16()),
    "int64": (ONES.long(), ONES.long() + (1 << 40)),
    "bool": (ONES > 0, ONES < 0),
    "complex": (ONES + 0j, ONES + 1j),
    "no dimension": (torch.tensor(1.0), torch.tensor(2.0)),
    "empty": (torch.zeros(0, 3), torch.zeros(0, 4)),
    "sparse": (ONES.to_sparse(), (2 * ONES).to_sparse()),
    "not contiguous": (torch.arange(6.0).view(2, 3).T, torch.arange(6.0).view(3, 2)),
    "other type": (ONES, ONES.double()),
    "other shape": (ONES, ONES.T),
}


@pytest.mark.parametrize("name", TENSORS)
def test_tensors_of_any_type(name):
    one, two = TENSORS[name]
    assert model_digest(Keeping(one)) == model_digest(Keeping(one.clone()))
    assert model_digest(Keeping(one)) != model_digest(Keeping(two))


@pytest.mark.parametrize(
    ("one", "two"),
    [
        ({"classes": ["a"]}, {"classes": ["b"]}),
        ([1, 2.5, None], [1, 2.5, True]),
        ({"inner": (torch.ones(2),)}, {"inner": (torch.zeros(2),)}),
        ("words", b"words"),
        (torch.float32, torch.float64),
        (
            np.arange(5000),
            np.where(np.arange(5000) == 2500, 0, np.arange(5000)),
        ),  # of which only the ends are printed
        (np.array(["a", None]), np.array(["b", None])),
        ({"a", "b"}, {"a", "c"}),
    ],
)
def test_states_that_are_no_tensors(one, two):
    assert model_digest(Keeping(extra=one)) == model_digest(Keeping(extra=copy.deepcopy(one)))
    assert model_digest(Keeping(extra=one)) != model_digest(Keeping(extra=two))


class Ordered(set):
    """A set that goes through its members in this order, as another process might."""

    def __init__(self, *members):
        super().__init__(members)
        self.members = members

    def __iter__(self):
        return iter(self.members)

    def __repr__(self):
        return f"{{{', '.join(self.members)}}}"


def test_the_order_of_a_set_says_nothing():
    assert model_digest(Keeping(extra=Ordered("a", "b"))) == model_digest(
        Keeping(extra=Ordered("b", "a"))
    )


def test_a_place_in_memory_says_nothing():
    assert model_digest(Keeping(extra=Opaque())) == model_digest(Keeping(extra=Opaque()))


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.filterwarnings("ignore:.*quantize_per_tensor.*:UserWarning")
def test_quantised_layers():
    def int8(seed):
        net = tanh_mlp(SHAPE, hidden=8, classes=4, seed=seed)
        return torch.ao.quantization.quantize_dynamic(net, {nn.Linear}, dtype=torch.qint8)

    assert model_digest(int8(1)) == model_digest(int8(1))
    assert model_digest(int8(1)) != model_digest(int8(2))


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_scripted_models():
    nets = [torch.jit.script(tanh_mlp(SHAPE, hidden=8, classes=4, seed=seed)) for seed in (1, 1, 2)]
    assert model_digest(nets[0]) == model_digest(nets[1]) != model_digest(nets[2])


def test_one_weight_is_enough():
    net = tanh_mlp(SHAPE, hidden=8, classes=4)
    other = copy.deepcopy(net)
    other[3].bias.data[2] += 1e-6
    assert model_digest(net) == model_digest(copy.deepcopy(net)) != model_digest(other)


def test_functions_go_by_their_names():
    assert model_digest(torch.relu) == model_digest(torch.relu) != model_digest(torch.tanh)


class Failing(nn.Module):
    def get_extra_state(self):
        raise KeyError("gone")


@pytest.mark.parametrize(
    ("model", "words"),
    [
        (Failing(), r"state_dict\(\) failed \(KeyError: 'gone'\)"),
        (nn.Sequential(nn.LazyLinear(4)), "0.weight is not initialised"),
        (nn.Linear(4, 4, device="meta"), "weight is on the device meta"),
    ],
)
def test_models_without_numbers_are_refused(model, words):
    with pytest.raises(FrontierError, match=words):
        model_digest(model)
