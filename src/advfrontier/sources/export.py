"""`export:FILE.pt2`: programs saved by `torch.export.save`, read without running what may be hidden in them.

`torch.export.load` trusts its file: it unpickles where the file asks for it, evaluates shape expressions and guards as
Python, and resolves operator names to any attribute below `torch`. So the file is first taken apart. What is plain
data is copied into a clean archive in memory; tensors stored as pickles, operators other than torch's own tensor
operations, and texts that are not plain names or shape arithmetic are refused. Torch then loads the clean archive.
Its own reader of archives ignores their checksums; `zipfile`, which takes the file apart here, compares them.
"""

from __future__ import annotations

import ast
import io
import json
import math
import re
import sys
import zipfile
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch._ops import OpOverload

from advfrontier.sources.reading import Spec, existing, explaining, loading, try_batches

_PROGRAM = "models/model.json"
# The tables of tensors, with the only names that their entries may have: other prefixes mean pickled objects.
_TABLES = {
    "data/weights/model_weights_config.json": re.compile(r"weight_\d+"),
    "data/constants/model_constants_config.json": re.compile(r"tensor_\d+"),
}
# Not needed to compute, and partly run as code.
_REPLACED: dict[str, Any] = {"metadata": {}, "guards_code": [], "treespec_namedtuple_fields": {}}

_PLAIN = re.compile(r"[A-Za-z0-9_.+-]*")
_SPECIAL = re.compile(r"(^|\.)__\w*__($|\.)")  # such as __class__, a way to anywhere
_TEXT = re.compile(
    r"[ !#-&(-\[\]-~]*"
)  # arguments such as einsum's equation: printable, no quotes and no backslash
_OPERATION = re.compile(r"torch\.ops\.(aten|prims)\.(\w+)\.(\w+)")
_ARITHMETIC = re.compile(
    r"_operator\.(getitem|add|sub|mul|floordiv|truediv|mod|pow|neg|pos|eq|ne|lt|le|gt|ge|and_|or_)"
    r"|math\.(ceil|floor|trunc|sqrt)|torch\._?sym_[a-z_]+"
    r"|torch\.ops\.higher_order\.(cond|wrap_with_set_grad_enabled|wrap_with_autocast)"
)
# An expression is written as calls, such as FloorDiv(Symbol('s0', integer=True), Integer(2)). Torch computes it with
# exact numbers and polynomials, so that 9**9**9 would take forever: powers are small and hold no other power, and
# multiplied out there are few terms.
_POWERS = frozenset(("Pow", "PowByNatural", "FloatPow"))
_SHAPE_FUNCTIONS = frozenset((
    "Integer", "Rational", "Add", "Mul", "Max", "Min", "Mod", "PythonMod", "FloorDiv", "CleanDiv", "CeilDiv",
    "ModularIndexing", "Where", "CeilToInt", "FloorToInt", "TruncToInt", "RoundToInt", "ToFloat", "TruncToFloat",
    "IntTrueDiv", "FloatTrueDiv", "Equality", "Unequality", "StrictLessThan", "LessThan", "StrictGreaterThan",
    "GreaterThan", "And", "Or", "Not", "Identity",
))  # fmt: skip
_SUMS = frozenset(("Add", "And", "Or", "Max", "Min"))
_EXPONENT = 4
_EXPRESSION = 2000  # characters
_TERMS = 64


class Exported(nn.Module):
    """An exported program. It has no train or eval mode: it is as it was when it was exported."""

    def __init__(self, program: torch.export.ExportedProgram) -> None:
        super().__init__()
        self.program = program.module()

    def forward(self, images: Tensor) -> Tensor:
        """Return the program's logits."""
        found = self.program(images)
        logits: Tensor = found[0] if isinstance(found, (tuple, list)) else found
        return logits

    def train(self, mode: bool = True) -> Exported:  # noqa: FBT001, FBT002 (torch's signature)
        """Keep the program as it is: it refuses to change."""
        self.training = mode
        return self


def load(spec: Spec) -> nn.Module:
    """Load the program from a clean copy of its archive, and try it."""
    path = existing(spec.place, spec.text)
    with explaining(
        f"{spec.text}: not an archive of torch.export.save",
        ": expected its output, of torch 2.9 or later",
    ):
        entries = _entries(spec, path)
        shape = _input_shape(spec, json.loads(entries[_PROGRAM])["graph_module"])
    what = f"torch {torch.__version__} cannot load it"
    with loading(spec.text, what, "; export it again with this version", download=False):
        model = Exported(torch.export.load(_archive(entries)))
    try_batches(spec.text, model, shape, "dynamic_shapes=({0: torch.export.Dim('batch')},)")
    return model


def _entries(spec: Spec, path: Path) -> dict[str, bytes]:
    """The entries of the archive that are needed, checked. Their names begin with a folder, which is left out."""
    with zipfile.ZipFile(path) as archive:
        infos = {info.filename.partition("/")[2]: info for info in archive.infolist()}
        if any(info.compress_type != zipfile.ZIP_STORED for info in infos.values()):
            raise spec.error("is compressed: expected torch.export.save's output, which is not")
        if sum(info.file_size for info in archive.infolist()) > path.stat().st_size:
            raise spec.error("its entries overlap: expected torch.export.save's output")
        _check_names(spec, set(infos))

        def read(name: str) -> bytes:
            return archive.read(infos[name])

        if read("archive_format") != b"pt2" or read("byteorder") != sys.byteorder.encode():
            raise spec.error("is of another format or byte order: export it on this machine")
        entries = {_PROGRAM: _clean_json(spec, read(_PROGRAM)), "data/sample_inputs/model.pt": b""}
        for table, pattern in _TABLES.items():
            entries[table] = _clean_json(spec, read(table))
            for file in _tensor_files(spec, entries[table], pattern):
                entry = f"{table.rpartition('/')[0]}/{file}"
                entries[entry] = read(entry)
    return entries


def _check_names(spec: Spec, names: set[str]) -> None:
    if compiled := [name for name in names if name.startswith("data/aotinductor/")]:
        raise spec.error(
            f"holds compiled code ({min(compiled)}): expected torch.export.save's output"
        )
    if pickles := names & {"data/weights/model.pt", "data/constants/model.pt"}:
        raise spec.error(
            f"its tensors are pickled in {min(pickles)}, and reading them could run any code: refused; "
            "export it again with torch.export.save of torch 2.9 or later"
        )
    if missing := {_PROGRAM, *_TABLES, "archive_format", "byteorder"} - names:
        raise spec.error(
            f"has no {min(missing)}: expected torch.export.save's output, torch 2.9 on"
        )


def _tensor_files(spec: Spec, table: bytes, pattern: re.Pattern[str]) -> set[str]:
    files = set()
    for name, entry in json.loads(table)["config"].items():
        if entry.get("use_pickle") is not False or not pattern.fullmatch(
            str(entry.get("path_name"))
        ):
            raise spec.error(
                f"{name} is stored as a pickle ({entry.get('path_name')}), and reading it could run any "
                "code: refused; export a model whose parameters and constants are plain tensors"
            )
        files.add(entry["path_name"])
    return files


def _clean_json(spec: Spec, text: bytes) -> bytes:
    def clean(value: Any, key: str) -> Any:
        if key in _REPLACED:
            return _REPLACED[key]
        if isinstance(value, dict):
            return {clean(name, "name"): clean(part, name) for name, part in value.items()}
        if isinstance(value, list):
            return [clean(part, key) for part in value]
        if isinstance(value, str):
            what, harmless = _RULES.get(key, ("the name", _is_plain))
            if not harmless(value):
                raise spec.error(
                    f"{what} {value[:60]!r} could run code when it is loaded, or run forever: refused"
                )
        return value

    return json.dumps(clean(json.loads(text), "")).encode()


def _is_plain(text: str) -> bool:
    return _PLAIN.fullmatch(text) is not None and _SPECIAL.search(text) is None


def _is_operation(text: str) -> bool:
    if _ARITHMETIC.fullmatch(text):
        return True
    if not (match := _OPERATION.fullmatch(text)):
        return False
    namespace, name, overload = match.groups()
    operation = getattr(getattr(getattr(torch.ops, namespace), name, None), overload, None)
    # A few operations read and write files.
    return isinstance(operation, OpOverload) and all(
        argument.name != "filename"
        for argument in operation._schema.arguments  # noqa: SLF001 (public in all but name)
    )


def _is_shape(text: str) -> bool:
    try:
        return len(text) <= _EXPRESSION and _terms(ast.parse(text, mode="eval").body) <= _TERMS
    except (
        SyntaxError,
        ValueError,
        RecursionError,
        MemoryError,
    ):  # what the parser raises, and `_terms`
        return False


def _terms(node: ast.expr) -> int:
    """How many terms a shape has when it is multiplied out; a ValueError if it is not a shape."""
    total = _TERMS + 1
    match node:
        case ast.Call(ast.Name("Symbol"), [ast.Constant(str() as word)], properties):
            truths = all(
                each.arg and isinstance(getattr(each.value, "value", 0), bool)
                for each in properties
            )
            total = 1 if truths and word.isidentifier() and _is_plain(word) else total
        case ast.Call(ast.Name(name), [base, exponent], []) if name in _POWERS:
            numbers = [
                _number(part) for part in getattr(exponent, "args", [exponent])
            ]  # one, or a half and the like
            inside = {part.id for part in ast.walk(base) if isinstance(part, ast.Name)}
            if (
                numbers
                and all(0 < abs(number) <= _EXPONENT for number in numbers)
                and not inside & _POWERS
            ):
                total = max(_terms(exponent), _terms(base) ** abs(numbers[0]))
        case ast.Call(ast.Name(name), [_, *_] as arguments, []) if name in _SHAPE_FUNCTIONS:
            counts = [_terms(argument) for argument in arguments]
            total = (
                sum(counts) if name in _SUMS else math.prod(counts)
            )  # nested divisions multiply their divisors
        case _ if abs(_number(node)) < 2**63:
            total = 1
    if total > _TERMS:
        raise ValueError(total)
    return total


def _number(node: ast.expr) -> int:
    match node:
        case ast.Constant(int(number)) | ast.UnaryOp(ast.USub(), ast.Constant(int(number))) if (
            type(number) is int
        ):
            return number
    raise ValueError(node)


def _is_tree(text: str) -> bool:
    """Plain tuples, lists and dicts only: other containers name Python objects to import."""

    def plain(node: Any) -> bool:
        context = None if node["context"] is None else json.loads(node["context"])
        words = context is None or (
            isinstance(context, list) and all(isinstance(word, str) for word in context)
        )
        known = node["type"] in (None, "builtins.tuple", "builtins.list", "builtins.dict")
        return known and words and all(plain(child) for child in node["children_spec"])

    try:
        version, tree = json.loads(text)
        return isinstance(version, int) and plain(tree)
    except (ValueError, LookupError, TypeError):  # what it is made of is not what a tree is made of
        return False


_RULES = {
    "target": ("the operator", _is_operation),
    "as_operator": ("the operator", _is_operation),
    "expr_str": ("the expression", _is_shape),
    "in_spec": ("the structure", _is_tree),
    "out_spec": ("the structure", _is_tree),
    "as_string": ("the text", lambda text: _TEXT.fullmatch(text) is not None),
    "as_strings": ("the text", lambda text: _TEXT.fullmatch(text) is not None),
}


def _input_shape(spec: Spec, graph_module: Any) -> list[int]:
    """The shape of the images, 0 where it may vary; refused unless the program takes any number of images alone."""
    signature, graph = graph_module["signature"], graph_module["graph"]
    inputs = [
        entry["user_input"]["arg"] for entry in signature["input_specs"] if "user_input" in entry
    ]
    outputs = [entry for entry in signature["output_specs"] if "user_output" in entry]
    if len(inputs) != 1 or len(outputs) != 1 or "as_tensor" not in inputs[0]:
        raise spec.error(
            f"has {len(inputs)} inputs and {len(outputs)} outputs: expected images and logits"
        )
    sizes = [
        size.get("as_int", 0)
        for size in graph["tensor_values"][inputs[0]["as_tensor"]["name"]]["sizes"]
    ]
    if not sizes or sizes[0]:
        raise spec.error(
            f"was exported for batches of {sizes[0] if sizes else 'no size'}: expected any size; export "
            "it with dynamic_shapes=({0: torch.export.Dim('batch')},)"
        )
    return sizes


def _archive(entries: dict[str, bytes]) -> io.BytesIO:
    from torch.export.pt2_archive._package import PT2ArchiveWriter  # noqa: PLC0415 (absent before torch 2.9)

    buffer = io.BytesIO()
    with PT2ArchiveWriter(buffer) as archive:
        for name, content in entries.items():
            archive.write_bytes(name, content)
    buffer.seek(0)
    return buffer
