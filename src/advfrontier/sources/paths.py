"""Files and folders typed alone, as in `net.onnx` or `pictures/`: which source they are."""

from __future__ import annotations

from difflib import get_close_matches
from pathlib import Path

from advfrontier.errors import FrontierError
from advfrontier.sources.cifar import FOLDERS, PUBLISHED
from advfrontier.sources.pictures import class_folders, is_picture_file

_WEIGHTS = (".pt", ".pth", ".ckpt", ".bin", ".safetensors", ".pt2")
_TABLES = ("dataset_info.json", "dataset_dict.json")


def model_source(text: str) -> str:
    """Return `onnx:FILE` for a file named alone, and any other text as it is.

    Only the text decides, never what is on the disk: whether a source runs code depends on it.

    Args:
        text: What the user typed.
    """
    is_file = text.lower().endswith(".onnx") and ":" not in text
    return f"onnx:{text}" if is_file else text


def data_source(text: str) -> str:
    """Return the source of a file or folder that is typed alone, and any other text as it is.

    Args:
        text: What the user typed; options such as `?preprocessing=Res224` may follow.
    """
    place, _, options = text.partition("?")
    path = Path(place).expanduser()
    if ":" in text or text == "fashion-mnist":
        return text
    if path.is_dir():
        source = _folder_source(text, path, options)
    elif place.lower().endswith(".npz"):
        source = f"npz:{place}"
    else:
        return text
    if not options:
        return source
    return f"{source}&{options}" if "?" in source else f"{source}?{options}"


def _folder_source(text: str, folder: Path, options: str) -> str:
    """Return the source that the content of a folder shows; raise if it shows none."""
    if any((folder / name).is_file() for name in _TABLES):
        return f"hf:{folder}"
    for kind, name in FOLDERS.items():
        if (folder / name).is_dir() or all((folder / file).is_file() for file in PUBLISHED[kind]):
            return f"{kind}:{folder}"
    if "labels=" in options:
        return f"folder:{folder}"
    if any(is_picture_file(path) for path in folder.iterdir()):
        tables = sorted(path.name for path in folder.glob("*.csv"))
        if len(tables) == 1:
            return f"folder:{folder}?labels={tables[0]}"
        raise FrontierError(
            f"{text}: found pictures and {len(tables)} CSV files: expected one table of labels; "
            f"did you mean folder:{folder}?labels=FILE.csv?"
        )
    if class_folders(folder):
        return f"imagefolder:{folder}"
    raise FrontierError(
        f"{text}: found a folder without pictures, folders of pictures or CIFAR batches: expected "
        "a data set; name its kind, as in imagefolder:DIR or hf:DIR"
    )


def misplaced(text: str, role: str, kinds: tuple[str, ...]) -> str:
    """Return the end of a message about an unknown source: what the user may have meant.

    Args:
        text: What the user typed.
        role: "model" or "data", what was expected.
        kinds: The known kinds of that role.
    """
    kind, colon, rest = text.partition(":")
    path = Path(text).expanduser()
    suffix = path.suffix.lower()
    if colon and (near := get_close_matches(kind, kinds, n=1, cutoff=0.7)):
        return f"; did you mean {near[0]}:{rest}?"
    if role == "data" and suffix in (".onnx", ".py"):
        return f"; {text} is a model: name it as MODEL, and a data set as DATA"
    if role == "model" and suffix == ".npz":
        return f"; {text} is a data set: name it as DATA, and a model as MODEL"
    if role == "model" and suffix in _WEIGHTS:
        return f"; weights need an architecture: did you mean timm:NAME?checkpoint={text}?"
    if role == "model" and (path / "config.json").is_file():
        return f"; did you mean hf:{text}?"
    return ""
