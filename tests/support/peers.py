"""Other attack libraries, as `make peers` puts them into `build/peers` without their dependencies.

adv-lib and secml-torch import torchvision and visdom, which their attacks do not use: stand-ins
take their place.
"""

import sys
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType

import pytest

FOLDER = Path(__file__).parents[2] / "build" / "peers"
_STAND_INS = (
    "torchvision",
    "torchvision.datasets",
    "torchvision.models",
    "torchvision.transforms",
    "torchvision.transforms.functional",
    "visdom",
)
_MODULES = {"advlib": "adv_lib", "foolbox": "foolbox", "torchattacks": "torchattacks", "art": "art"}


def _stand_in(name):
    module = ModuleType(name)
    module.__spec__ = ModuleSpec(name, None)
    module.__path__ = []

    def attribute(wanted):
        if wanted.startswith("__"):
            raise AttributeError(wanted)
        return type(wanted, (), {})

    module.__getattr__ = attribute
    return module


def need_library(library, monkeypatch):
    """Make a library importable, or skip the test."""
    monkeypatch.setattr(sys, "path", [*sys.path, str(FOLDER)])
    for name in _STAND_INS:
        monkeypatch.setitem(sys.modules, name, _stand_in(name))
    if find_spec(_MODULES.get(library, library)) is None:
        pytest.skip(f"{library} is not installed: make peers")
