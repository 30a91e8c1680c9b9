"""Helpers of readers: parsed sources, optional libraries, and guards.

Two rules hold for all sources. Nothing is downloaded unless the user asks for it: libraries get
their own offline switches, see `offline`. Checkpoints are read as plain tensors, see
`weights_only`. Whatever a reader raises becomes a FrontierError.
"""

from __future__ import annotations

import os
import pickle
import sys
import threading
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from torch.library import Library

from advfrontier.errors import FrontierError, os_error_cure

_BUILT_ON_TORCHVISION = ("onnx2torch", "robustbench", "timm", "torchvision", "transformers")
_SWITCHES = threading.RLock()  # the switches below are the process's: one reader at a time
_declared: list[Library] = []  # operators exist as long as their library object


@dataclass(frozen=True)
class Spec:
    """Parsed source: `kind:place?option=value&option=value`.

    Args:
        text: The source as messages and records name it.
        kind: The part before the first colon, such as `npz`.
        place: Part after the colon: a file, a folder or a name.
        options: Options after the question mark, by name.
        download: Whether files may be downloaded.
        unit: Whether samples must be in [0, 1]; those of a domain need not be.
    """

    text: str
    kind: str
    place: str
    options: Mapping[str, str]
    download: bool
    unit: bool = True

    @property
    def hint(self) -> str:
        """Return the command that downloads a file that is missing."""
        if self.download:
            return ""
        return "; if it is not on this machine, allow the download with --download (download=True)"

    def option(self, name: str, *, choices: tuple[str, ...]) -> str:
        """Return an option that has a few possible values, "" if it is left out.

        Args:
            name: Name of the option.
            choices: Its possible values.
        """
        value = self.options.get(name, "")
        if value and value not in choices:
            raise self.error(f"{name}={value}: expected one of {', '.join(choices)}")
        return value

    def error(self, why: str) -> FrontierError:
        """Return an error whose message begins with the source.

        Args:
            why: What was found, what was expected and what to type.
        """
        return FrontierError(f"{self.text}: {why}")


def read_spec(
    text: str, options: Mapping[str, tuple[str, ...]], *, download: bool = False
) -> Spec | None:
    """Take a source apart; return None if its kind is unknown.

    Args:
        text: What the user typed.
        options: The known kinds, each with the names of its options.
        download: Whether files may be downloaded.
    """
    kind, _, rest = text.partition(":")
    if kind not in options:
        return None
    place, mark, query = rest.rpartition("?")
    if not mark or "=" not in query:  # a question mark in the name of a file
        place, query = rest, ""
    values: dict[str, str] = {}
    for part in filter(None, query.split("&")):
        key, _, value = part.partition("=")
        if key not in options[kind] or not value:
            known = " or ".join(f"{name}=…" for name in options[kind]) or "none"
            raise FrontierError(f"{text}: {part!r} is not an option of {kind}: expected {known}")
        values[key] = value
    return Spec(text, kind, place, values, download)


def existing(path: str | Path, text: str, *, folder: bool = False) -> Path:
    """Return the path of a file or folder; raise if it is not there.

    Args:
        path: The file or folder; `~` is the user's home.
        text: The source, for the message.
        folder: Whether a folder is expected.
    """
    place = Path(path).expanduser()
    if not (place.is_dir() if folder else place.is_file()):
        found = "a folder" if place.is_dir() else "a file" if place.is_file() else "nothing"
        wanted = "a folder" if folder else "a file"
        raise FrontierError(f"{text}: found {found} at {place}: expected {wanted}; check the path")
    return place


def need(module: str, *, extra: str, source: str) -> Any:
    """Import an optional library; raise with the command that installs it.

    Args:
        module: The module to import, such as `timm`.
        extra: The extra of this package that brings it.
        source: The source, for the message.
    """
    install = f"pip install 'advfrontier[{extra}]'"
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # libraries warn about each other while they import
            if module.partition(".")[0] in _BUILT_ON_TORCHVISION:
                fit_torchvision()
            return import_module(module)
    except ModuleNotFoundError as error:
        raise FrontierError(
            f"{source}: needs the package {error.name}, which is not installed; {install}"
        ) from error
    except Exception as error:
        raise FrontierError(
            f"{source}: {module} is installed but cannot be imported "
            f"({type(error).__name__}: {error}); its version may not fit: pip install --upgrade "
            f"{module.partition('.')[0]}"
        ) from error


def fit_torchvision() -> None:
    """Make torchvision importable beside a build of torch that its operators do not fit.

    Its wheels are compiled for one build of torch. Beside another one, such as CUDA wheels beside
    a CPU build, the import fails where it decorates two operators. Declaring these two lets the
    import pass; no model needs them.
    """
    try:
        import_module("torchvision")
    except ModuleNotFoundError:
        return
    except RuntimeError as error:
        if "torchvision::" not in str(error) or _declared:
            raise
        library = Library("torchvision", "FRAGMENT")  # type: ignore[no-untyped-call]
        for operator in ("nms", "qnms"):
            schema = f"{operator}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"
            library.define(schema)  # type: ignore[no-untyped-call]
        _declared.append(library)


@contextmanager
def explaining(what: str, hint: str = "") -> Iterator[None]:
    """Turn whatever is raised inside into a FrontierError.

    Args:
        what: Beginning of the message.
        hint: End of the message: what was expected, what to type.
    """
    try:
        yield
    except FrontierError:
        raise
    except OSError as error:
        if os_error_cure(error) is None:
            raise _explained(what, error, hint) from error
        raise FrontierError(f"{what}: {os_error_cure(error)}") from error
    except Exception as error:
        raise _explained(what, error, hint) from error


def _explained(what: str, error: Exception, hint: str) -> FrontierError:
    first_line = next(iter(str(error).splitlines()), "")[:300]
    return FrontierError(f"{what} ({type(error).__name__}: {first_line}){hint}")


@contextmanager
def offline(*, wanted: bool = True) -> Iterator[None]:
    """Switch the Hugging Face libraries to their offline mode, in which they read caches only.

    `HF_HUB_OFFLINE` in the environment is read when they are imported. Afterwards the switch is
    the constant of that name, which they look up whenever they connect.

    Args:
        wanted: Whether to switch downloads off; False does nothing.
    """
    if not wanted:
        yield
        return
    with _SWITCHES:
        before = []
        for name in ("huggingface_hub.constants", "datasets.config"):
            module = sys.modules.get(name)
            if module is not None:
                before.append((module, module.HF_HUB_OFFLINE))
                module.HF_HUB_OFFLINE = True  # type: ignore[attr-defined]
        try:
            yield
        finally:
            for module, value in before:
                module.HF_HUB_OFFLINE = value  # type: ignore[attr-defined]


@contextmanager
def weights_only(source: str) -> Iterator[None]:
    """Let `torch.load` read tensors and plain containers only, whatever its caller asks for.

    Args:
        source: The source, for the message.
    """
    switch = "TORCH_FORCE_WEIGHTS_ONLY_LOAD"  # torch's own
    with _SWITCHES:
        before = os.environ.get(switch)
        os.environ[switch] = "1"
        try:
            yield
        except Exception as error:
            if not isinstance(error.__cause__ or error, pickle.UnpicklingError):
                raise
            raise FrontierError(
                f"{source}: the checkpoint is not one of plain tensors, and reading anything else "
                "could run any code: refused; keep its state_dict alone, as safetensors or with "
                "torch.save(model.state_dict(), file)"
            ) from error
        finally:
            if before is None:
                del os.environ[switch]
            else:
                os.environ[switch] = before


@contextmanager
def loading(spec: Spec, what: str, hint: str) -> Iterator[None]:
    """Put all guards around a library that loads a model.

    Args:
        spec: Source that is loaded, for the message.
        what: Beginning of the message if the library raises.
        hint: End of the message: what to type.
    """
    with (
        explaining(f"{spec.text}: {what}", hint),
        offline(wanted=not spec.download),
        weights_only(spec.text),
    ):
        yield
