"""Inputs of users: models, terms and solvers, and what is said of wrong ones."""

import pytest
import torch
from torch import nn

from advfrontier.errors import FrontierError
from advfrontier.evaluation.inputs import as_model, as_terms, check_solvers
from advfrontier.execution import Machine
from advfrontier.jobs import Model
from advfrontier.solvers import FMN


def test_models_have_names():
    net = nn.Linear(2, 2)
    assert as_model(net).name == "Linear"
    assert as_model(net, "mine").name == "mine"
    given = Model("other", net)
    assert as_model(given) is given


def test_terms_default_to_the_model_s_own():
    terms = as_terms(
        "inf", as_model(nn.Linear(2, 2).double()), seed=3, batch_size=None, machine=Machine()
    )
    assert (terms.norm, terms.seed, terms.dtype, terms.device) == ("Linf", 3, "float64", "cpu")
    assert terms.shard == 50
    assert terms.threads == torch.get_num_threads()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"seed": 1.5}, "seed is 1.5: expected a whole number"),
        ({"batch_size": 0}, r"--batch-size \(in Python batch_size=\) is 0: expected greater than"),
        ({"eot": 0}, r"--eot \(in Python eot=\) is 0: expected greater than"),
    ],
)
def test_wrong_terms_are_named_as_they_are_typed(options, message):
    options = {"seed": 1, "batch_size": 10, "machine": Machine(), **options}
    with pytest.raises(FrontierError, match=message):
        as_terms("L2", as_model(nn.Linear(2, 2)), **options)


def test_solvers_belong_to_known_attacks():
    check_solvers({"fmn": FMN()})
    with pytest.raises(FrontierError, match="fmm"):
        check_solvers({"fmm": FMN()})
    with pytest.raises(FrontierError, match="fmn"):
        check_solvers({"fmn": 3})
