"""Networks of the zoo: rows do not depend on each other, and the masked one hides its gradients."""

import pytest
import torch
from torch import nn

from advfrontier import zoo
from advfrontier.engine import check_model
from advfrontier.engine.oracle import Oracle
from advfrontier.flags import Kind
from advfrontier.zoo.architectures import Staircase


@pytest.fixture(scope="module")
def data():
    return zoo.images_and_labels()


def test_answers_do_not_depend_on_the_batch(data):
    images, _ = data
    for name in zoo.MODELS:
        model = zoo.load(name)
        together, alone = model(images[:30]), model(images[12:13])
        torch.testing.assert_close(together[12:13], alone, rtol=1e-4, atol=1e-4)


def test_masked_model_hides_its_gradients_and_is_not_robust(data):
    """Flagged; PGD hardly hurts it, yet what was found with the staircase taken for the identity
    does.
    """
    images, labels = data[0][:100], data[1][:100]
    masked = zoo.load("F16")
    flags = check_model(Oracle(masked), images[:20], labels[:20])
    assert any(flag.kind == Kind.NO_GRADIENTS and "100%" in flag.text for flag in flags)
    believed = int(zoo.survivors(masked, images, labels, "Linf", 0.1).sum())
    through = _Through(masked)
    generator = torch.Generator().manual_seed(0)
    point = zoo.pgd(through, images, labels, "Linf", 0.1, steps=50, generator=generator)
    with torch.no_grad():
        real = int((masked(point).argmax(1) == labels).sum())
    assert believed >= 0.75 * 100
    assert real <= 0.35 * 100


class _Through(nn.Module):
    """The masked model with the derivative of its staircase taken for one."""

    def __init__(self, masked):
        super().__init__()
        self.front, self.body = masked
        assert isinstance(self.front, Staircase)

    def forward(self, images):
        return self.body(images + (self.front(images) - images).detach())
