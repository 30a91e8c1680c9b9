"""Models as steps: unknown operations are refused by name, and others are read as they are."""

import pytest
import torch
from certified_nets import images, net
from torch import nn

from advfrontier.certified import certified_radius
from advfrontier.errors import FrontierError


class Looking(nn.Module):
    def forward(self, x):
        return x.flatten(1)[:, :3] / (255 if x.max() > 1 else 1)


class Noisy(nn.Module):
    def forward(self, x):
        return x.flatten(1)[:, :3] + torch.rand(3)


class Squared(nn.Module):
    def forward(self, x):
        return (x * x).flatten(1)


class Divided(nn.Module):
    def forward(self, x):
        return 1 / (x.flatten(1) + 1)


class Outside(nn.Module):
    """Rounds its image by NumPy, which no trace of operations sees."""

    def forward(self, x):
        rounded = torch.from_numpy((x.detach().numpy() * 4).round() / 4)
        return (x + 5 * rounded).flatten(1)[:, :3]


class Averaging(nn.Module):
    """Each answer depends on the other images of the batch."""

    def forward(self, x):
        return (x - x.mean(0, keepdim=True)).flatten(1)[:, :3]


class Fixed(nn.Module):
    """Takes two images at a time, and no others."""

    def forward(self, x):
        assert len(x) == 2, "two images expected"
        return x.flatten(1)


class Blind(nn.Module):
    """Its gradient says that the image does not matter, which it does."""

    def forward(self, x):
        return x.detach().flatten(1)


@torch.library.custom_op("advfrontier_tests::neg", mutates_args=())
def not_neg(x: torch.Tensor) -> torch.Tensor:
    """Called as an operation that is affine, which it is not."""
    return x - 2 * x * x


class Named(nn.Module):
    def forward(self, x):
        return not_neg(x.flatten(1))


@pytest.mark.parametrize(
    ("model", "words"),
    [
        (nn.Sequential(nn.MaxPool2d(2), nn.Flatten()), "contains aten.max_pool2d"),
        (nn.Sequential(nn.Flatten(), nn.SiLU()), "contains aten.silu"),
        (nn.Sequential(nn.Flatten(), nn.LeakyReLU()), "contains aten.leaky_relu"),
        (Squared(), "contains aten.mul"),
        (Divided(), "contains aten.(div|reciprocal)"),
        (Blind(), "contains aten.detach"),
        (Named(), "contains advfrontier_tests.neg"),
        (Noisy(), "draws random numbers"),
        (Looking(), "cannot be followed"),
        (Outside(), "answers otherwise than its operations say"),
        (Averaging(), "answers otherwise than its operations say"),
        (Fixed(), "cannot be followed operation by operation .two images expected"),
        (nn.Sequential(nn.Flatten(), nn.LazyLinear(3)), "cannot be followed"),
        (nn.Sequential(nn.Flatten(), nn.Linear(32, 1)), "1 logit per image"),
        (nn.Sequential(nn.InstanceNorm2d(2), nn.Flatten()), "contains aten.native_batch_norm"),
        (
            nn.Sequential(nn.BatchNorm2d(2, track_running_stats=False), nn.Flatten()),
            "contains aten.native_batch_norm",
        ),
        (nn.Conv2d(2, 2, 1), "does not end with its logits"),
    ],
)
def test_unknown_layer_is_refused_by_name(model, words):
    with pytest.raises(FrontierError, match=words):
        certified_radius(model, torch.rand(3, 2, 4, 4), torch.zeros(3, dtype=torch.int64), "Linf")


def test_one_image_does_not_hide_that_images_depend_on_each_other():
    with pytest.raises(FrontierError, match="images of one batch are not independent"):
        certified_radius(
            Averaging(), torch.rand(1, 2, 4, 4), torch.zeros(1, dtype=torch.int64), "Linf"
        )


class InPlace(nn.Module):
    """Normalises its input in place, and leaves some of it out."""

    def __init__(self):
        super().__init__()
        self.last = nn.Linear(32, 4)
        self.register_buffer("mask", torch.arange(32) % 3 > 0)

    def forward(self, x):
        return self.last(x.sub_(0.5).div_(0.25).flatten(1) * self.mask)


def test_model_that_changes_its_input_in_place_is_certified():
    torch.manual_seed(0)
    model, x = InPlace(), torch.rand(6, 2, 4, 4, dtype=torch.float64)
    before = x.clone()
    weight, bias = (each.detach().double() for each in (model.last.weight, model.last.bias))
    weight = weight * model.mask / 0.25
    plain = nn.Sequential(nn.Flatten(), nn.Linear(32, 4)).double()
    plain.load_state_dict({"1.weight": weight, "1.bias": bias - weight.sum(1) / 2})
    y = plain(x).argmax(1)
    torch.testing.assert_close(
        certified_radius(model, x, y, "L2"), certified_radius(plain, x, y, "L2")
    )
    assert torch.equal(x, before)


class Scaled(nn.Module):
    """Its weights are divided by what an operation with two results gives."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(4, 32) * torch.tensor([1.0, 2.0, 4.0, 8.0])[:, None])

    def forward(self, x):
        return nn.functional.linear(
            x.flatten(1), self.weight / self.weight.abs().max(1, keepdim=True).values
        )


@pytest.mark.parametrize("norm", ["L1", "L2", "Linf"])
@pytest.mark.parametrize("kind", ["scaled", "weight_norm"])
def test_constants_of_operations_with_several_results(kind, norm):
    torch.manual_seed(0)
    own = nn.utils.parametrizations.weight_norm(nn.Linear(32, 4))
    model = Scaled() if kind == "scaled" else nn.Sequential(nn.Flatten(), own)
    x = torch.rand(6, 2, 4, 4)
    y = model(x).argmax(1)
    weight, bias = (
        (own.weight, own.bias) if kind == "weight_norm" else (model.weight, torch.zeros(4))
    )
    if kind == "scaled":
        weight = weight / weight.abs().max(1, keepdim=True).values
    plain = nn.Sequential(nn.Flatten(), nn.Linear(32, 4))
    plain.load_state_dict({"1.weight": weight.detach(), "1.bias": bias.detach()})
    torch.testing.assert_close(
        certified_radius(model, x, y, norm), certified_radius(plain, x, y, norm)
    )


class Talkative(nn.Module):
    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, x):
        return {"logits": self.model(x), "features": x.flatten(1) ** 2}


def test_logits_among_several_outputs_are_certified():
    model, x = net("plain"), images(3)
    y = model(x).argmax(1)
    found = certified_radius(Talkative(model), x, y, "Linf")
    torch.testing.assert_close(found, certified_radius(model, x, y, "Linf"))
