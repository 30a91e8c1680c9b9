"""Attacks of other libraries: one adapter per library, imported when used.

An adapter returns an attack without a radius, `attack(model, images, labels)`, or one at a radius,
`attack(model, images, labels, radius)`. An attack at a radius that its name gives a radius, as in
`torchattacks:PGD?eps=8/255`, is run at this radius only; else `radius` searches over it.

Where the name gives no step size, the library's default is scaled with the radius. The norm is
handed over where the attack has a parameter for it.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from hashlib import blake2b
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from advfrontier.attacks.radius import AtRadius
from advfrontier.attacks.watched import Attack
from advfrontier.errors import FrontierError
from advfrontier.imports import import_file, import_here
from advfrontier.pool.runs import CALLABLE, External, Value

_NUMBERS = {"L0": 0.0, "L1": 1.0, "L2": 2.0, "Linf": math.inf}
_PACKAGES = {
    "foolbox": "foolbox",
    "advlib": "adv-lib",
    "torchattacks": "torchattacks",
    "art": "adversarial-robustness-toolbox",
    "secmlt": "secml-torch",
}
_RADII = ("eps", "epsilon", "ε")  # names of the radius in signatures
_STEP_RULE = 2.5  # of PGD (Madry et al. 2018): step size = 2.5 · radius / steps

Arguments = dict[str, Any]


@dataclass(frozen=True)
class Loaded:
    """Attack that can be called.

    Args:
        origin: Facts beside the parameters that decide the points: class, and version or source.
        attack: `attack(model, images, labels)`.
        at_radius: `attack(model, images, labels, radius)`, where it has no `attack`.
    """

    origin: Mapping[str, str]
    attack: Attack | None = None
    at_radius: AtRadius | None = None


def load_attack(external: External, norm: str, function: Attack | None = None) -> Loaded:
    """Return the attack of an external run.

    Args:
        external: Parsed name of the run: library or file, attack and parameters.
        norm: Name of the norm, which chooses the variant of an attack of a library.
        function: The attack itself, for a name such as `callable:mine`.
    """
    if external.origin in _ADAPTERS:
        library = _ADAPTERS[external.origin]
        package = _PACKAGES[external.origin]
        try:
            loaded = library(external, norm)
        except FrontierError:
            raise
        except ImportError as error:
            raise FrontierError(
                f"{external} needs {package}, and the module {error.name} is not installed: type "
                f"pip install 'advfrontier[{external.origin}]'"
            ) from error
        except Exception as error:
            raise FrontierError(
                f"{external}: {package} raised {type(error).__name__}: {error}; correct its "
                "parameters or its installation"
            ) from error
        try:
            installed = version(package)
        except PackageNotFoundError:
            installed = "unknown"
        origin = {"class": f"{external.origin}:{external.attack}", "version": installed}
        return Loaded({**origin, **loaded.origin}, loaded.attack, loaded.at_radius)
    return _load_function(external, norm, function)


# Signatures


def _parameters(function: Callable[..., Any]) -> dict[str, inspect.Parameter]:
    try:
        return dict(inspect.signature(function).parameters)
    except (TypeError, ValueError):  # some built-in callables have none
        return {}


def _check_arguments(external: External, function: Callable[..., Any]) -> None:
    """Raise if an attack has no parameter of a name that is given."""
    known = _parameters(function)
    if any(each.kind is inspect.Parameter.VAR_KEYWORD for each in known.values()):
        return
    for name in external.arguments:
        if name not in known:
            options = ", ".join(
                each for each in known if each not in {"self", "model", "inputs", "labels"}
            )
            raise FrontierError(
                f"{external}: {external.attack} has no parameter {name}: expected one of {options}"
            )


def _norm_argument(parameter: inspect.Parameter, norm: str) -> Value:
    """Return a norm as a parameter of a library writes it: as its default, else a number."""
    default = parameter.default
    if isinstance(default, str):
        return norm if default[:1] == "L" else norm.lower()
    return _NUMBERS[norm]


def _with_norm(external: External, function: Callable[..., Any], norm: str) -> Arguments:
    """Return the arguments of an attack, with the norm where it has a parameter for it."""
    arguments: Arguments = dict(external.arguments)
    known = _parameters(function)
    for name in ("norm", "distance"):
        parameter = known.get(name)
        own = parameter is not None and isinstance(parameter.default, str | int | float)
        required = parameter is not None and parameter.default is inspect.Parameter.empty
        if parameter is None or name in arguments or not (own or required):
            continue
        if norm not in _NUMBERS:
            raise FrontierError(
                f"{external} does not run in {norm}: expected one of {', '.join(_NUMBERS)}"
            )
        arguments[name] = _norm_argument(parameter, norm)
    return arguments


def _check_norm(external: External, own: float, norm: str) -> None:
    """Raise if an attack minimises another norm than the one asked for."""
    if _NUMBERS.get(norm) == own:
        return
    names = {number: name for name, number in _NUMBERS.items()}
    raise FrontierError(
        f"{external} attacks in {names.get(own, own)}, and the norm asked for is {norm}: expected "
        "an attack in the same norm"
    )


def _radius_of(names: tuple[str, ...], known: Mapping[str, inspect.Parameter]) -> str | None:
    return next((name for name in names if name in known), None)


def _find(place: Any, external: External) -> Any:
    """Return a class or function of a module; raise with those that are like it."""
    found = place
    for part in external.attack.split("."):
        found = getattr(found, part, None)
    if not callable(found):
        known = [name for name in dir(place) if callable(getattr(place, name)) and name[0] != "_"]
        alike = [name for name in known if external.attack.lower()[:3] in name.lower()] or known
        raise FrontierError(
            f"{external}: {external.origin} has no attack {external.attack}: expected one such as "
            f"{', '.join(alike[:12])}"
        )
    return found


# Libraries


def _foolbox(external: External, norm: str) -> Loaded:
    """`foolbox:L2CarliniWagnerAttack?steps=200` (Rauber et al. 2020); `epsilon` is a radius."""
    foolbox = import_module("foolbox")
    kind = _find(foolbox.attacks, external)
    arguments = dict(external.arguments)
    radius = arguments.pop("epsilon", None)
    attack = kind(**arguments)
    own = getattr(getattr(attack, "distance", None), "p", None)
    if own is not None:
        _check_norm(external, float(own), norm)

    def call(model: nn.Module, images: Tensor, labels: Tensor, **options: Any) -> Tensor:
        bounded = foolbox.PyTorchModel(model, bounds=(0, 1), device=images.device)
        found: Tensor = attack.run(bounded, images, labels, **options)
        return found

    if not isinstance(attack, foolbox.attacks.base.FixedEpsilonAttack):
        return Loaded({}, attack=call)
    if radius is not None:
        return Loaded({}, attack=lambda *given: call(*given, epsilon=radius))
    return Loaded({}, at_radius=lambda m, x, y, size: call(m, x, y, epsilon=size))


def _advlib(external: External, norm: str) -> Loaded:
    """`advlib:alma?num_steps=500`: a function of `adv_lib.attacks`, with `norm` or `distance`."""
    function = _find(import_module("adv_lib.attacks"), external)
    return _of_function(external, norm, function, names=("model", "inputs", "labels"))


def _torchattacks(external: External, norm: str) -> Loaded:
    """`torchattacks:CW?steps=50` (Kim 2020); `eps` is a radius, `alpha` is scaled with it."""
    kind = _find(import_module("torchattacks"), external)
    _check_arguments(external, kind)
    arguments = _with_norm(external, kind, norm)
    known = _parameters(kind)
    if "eps" in known and "norm" not in known:
        _check_norm(external, 2.0 if external.attack.endswith("L2") else math.inf, norm)

    def call(model: nn.Module, images: Tensor, labels: Tensor, **options: Any) -> Tensor:
        found: Tensor = kind(model, **arguments, **options)(images, labels)
        return found

    if "eps" not in known or "eps" in arguments:
        return Loaded({}, attack=call)
    return Loaded(
        {}, at_radius=lambda m, x, y, size: call(m, x, y, **_scaled(known, arguments, size))
    )


def _scaled(
    known: Mapping[str, inspect.Parameter], arguments: Mapping[str, Any], radius: float
) -> Arguments:
    """Return `eps` and step sizes: the library's defaults, scaled with the radius."""
    scaled: Arguments = {"eps": radius}
    usual = known["eps"].default
    for name in ("alpha", "eps_step"):
        default = known[name].default if name in known else None
        if name in arguments or not isinstance(default, int | float):
            continue
        scaled[name] = float(default) * radius / float(usual)
    return scaled


def _art(external: External, norm: str) -> Loaded:
    """`art:ProjectedGradientDescent?max_iter=40` (Nicolae et al. 2018); `eps` is a radius."""
    kind = _find(import_module("art.attacks.evasion"), external)
    estimators = import_module("art.estimators.classification")
    _check_arguments(external, kind)
    arguments = _with_norm(external, kind, norm)
    known = _parameters(kind)
    if "eps" in known and "norm" not in known:
        _check_norm(external, math.inf, norm)
    if "verbose" in known:
        arguments.setdefault("verbose", False)

    def call(model: nn.Module, images: Tensor, labels: Tensor, **options: Any) -> Tensor:
        estimator = estimators.PyTorchClassifier(
            model,
            loss=nn.CrossEntropyLoss(),
            input_shape=tuple(images.shape[1:]),
            nb_classes=int(model.classes),  # type: ignore[arg-type]
            clip_values=(0.0, 1.0),
            device_type="gpu" if images.device.type == "cuda" else "cpu",
        )
        if "batch_size" in known and "batch_size" not in arguments:
            options["batch_size"] = len(images)
        attack = kind(estimator, **arguments, **options)
        found = attack.generate(x=images.cpu().float().numpy(), y=labels.cpu().numpy())
        return torch.as_tensor(found).to(images)

    if "eps" not in known or "eps" in arguments:
        return Loaded({}, attack=call)
    return Loaded(
        {}, at_radius=lambda m, x, y, size: call(m, x, y, **_scaled(known, arguments, size))
    )


def _secmlt(external: External, norm: str) -> Loaded:
    """`secmlt:PGD?num_steps=50&backend=native`: a class of `secmlt.adv.evasion`."""
    import_module("secmlt")
    name = external.attack.rpartition(".")[2]
    try:
        place = import_module(f"secmlt.adv.evasion.{name.lower()}")
    except ModuleNotFoundError as error:
        if not str(error.name).startswith("secmlt.adv.evasion"):
            raise
        raise FrontierError(
            f"{external}: secml-torch has no attack {name}: expected one such as PGD, FMN or DDN"
        ) from error
    kind = _find(place, External(external.origin, name))
    wrapper = import_module("secmlt.models.pytorch.base_pytorch_nn").BasePyTorchClassifier
    known = _parameters(kind.__new__)
    arguments: Arguments = dict(external.arguments)
    if "perturbation_model" in known:
        arguments.setdefault("perturbation_model", norm.lower())

    def call(model: nn.Module, images: Tensor, labels: Tensor, **options: Any) -> Tensor:
        loader = DataLoader(TensorDataset(images, labels), batch_size=len(images))
        found = kind(**arguments, **options)(wrapper(model), loader)
        return torch.cat([batch[0] for batch in found])

    if "epsilon" not in known or "epsilon" in arguments:
        return Loaded({}, attack=call)

    def at_radius(model: nn.Module, images: Tensor, labels: Tensor, radius: float) -> Tensor:
        options: Arguments = {"epsilon": radius}
        if "step_size" in known and "step_size" not in arguments:
            steps = arguments.get("num_steps", 1)
            options["step_size"] = _STEP_RULE * radius / steps
        return call(model, images, labels, **options)

    return Loaded({}, at_radius=at_radius)


_ADAPTERS: dict[str, Callable[[External, str], Loaded]] = {
    "foolbox": _foolbox,
    "advlib": _advlib,
    "torchattacks": _torchattacks,
    "art": _art,
    "secmlt": _secmlt,
}


# Functions of users


def _load_function(external: External, norm: str, function: Attack | None) -> Loaded:
    """Return a function of a file or a module, or the one that is given."""
    if function is None:
        function = _import(external)
    try:
        source = inspect.getsource(inspect.getmodule(function) or function)
    except (OSError, TypeError):  # typed at a prompt, or compiled
        source = repr(getattr(function, "__qualname__", type(function).__qualname__))
    place = external.origin
    if place.endswith(".py"):
        place = Path(place).name  # it may lie elsewhere on another machine
    origin = {
        "class": f"{place}:{external.attack}",
        "source": blake2b(source.encode(), digest_size=8).hexdigest(),
    }
    loaded = _of_function(external, norm, function)
    return Loaded(origin, loaded.attack, loaded.at_radius)


def _import(external: External) -> Attack:
    """Import the function that a name says; its code is run."""
    origin = external.origin
    if origin == CALLABLE:
        raise FrontierError(
            f'{external}: no function was given for it: expected solvers={{"{external}": function}}'
        )
    try:
        if origin.endswith(".py"):
            if not Path(origin).is_file():
                raise FrontierError(f"{external}: no file {origin}: expected an existing one")
            module = import_file(Path(origin))
        else:
            module = import_here(origin)
    except FrontierError:
        raise
    except (Exception, SystemExit) as error:
        raise FrontierError(
            f"{external}: importing {origin} raised {type(error).__name__}: {error}"
        ) from error
    found: Attack = _find(module, external)
    return found


def _of_function(
    external: External, norm: str, function: Callable[..., Any], names: tuple[str, ...] = ()
) -> Loaded:
    """Return a function `attack(model, images, labels, …)`.

    It has a radius if a parameter `eps` or `epsilon` has no default.
    """
    _check_arguments(external, function)
    arguments = _with_norm(external, function, norm)
    known = _parameters(function)

    def call(model: nn.Module, images: Tensor, labels: Tensor, **options: Any) -> object:
        given = (model, images, labels)
        if names:
            return function(**dict(zip(names, given, strict=True)), **arguments, **options)
        return function(*given, **arguments, **options)

    radius = _radius_of(_RADII, known)
    required = radius is not None and known[radius].default is inspect.Parameter.empty
    if radius is None or not required or radius in arguments:
        return Loaded({}, attack=call)
    return Loaded({}, at_radius=lambda m, x, y, size: call(m, x, y, **{radius: size}))
