"""TOML files with known keys and types: a mistake is a FrontierError that says where it is."""

from __future__ import annotations

import json
import reprlib
import tomllib
from os import PathLike
from pathlib import Path
from typing import Any, ClassVar, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError, model_validator

from advfrontier.errors import FrontierError, explain_os_errors

# Bytes. Files written by hand or by `allocate` are far smaller; nested ones take long to read.
_LARGEST = 2**20


class TomlTable(BaseModel):
    """Table of a file, with all required keys and no unknown one."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    hint: ClassVar[str] = ""  # where to look for the right form of the file

    @model_validator(mode="before")
    @classmethod
    def _check_keys(cls, content: Any) -> Any:
        if not isinstance(content, dict):
            return content
        unknown = [shown(key) for key in content if key not in cls.model_fields]
        if unknown:
            known = ", ".join(cls.model_fields)
            raise ValueError(f"unknown key {min(unknown)}: expected one of {known}")
        for key, field in cls.model_fields.items():
            if field.is_required() and key not in content:
                raise ValueError(f"has no {key}: expected {key} = …")
        return content


AnyTable = TypeVar("AnyTable", bound=TomlTable)


def read_toml(kind: type[AnyTable], path: str | PathLike[str]) -> AnyTable:
    """Read a TOML file.

    Args:
        kind: Model of the table that the file holds.
        path: Path of the TOML file.
    """
    with explain_os_errors("read", path):
        try:
            with Path(path).open("rb") as file:
                content = file.read(_LARGEST + 1)
        except FileNotFoundError as error:
            raise FrontierError(
                f"{path}: cannot be read (No such file or directory): expected a TOML file"
            ) from error
    return parse_toml(kind, content, str(path))


def parse_toml(kind: type[AnyTable], content: str | bytes, name: str) -> AnyTable:
    """Read TOML.

    Args:
        kind: Model of the table.
        content: The text of the file.
        name: Name of the file, for messages.
    """
    if len(content) > _LARGEST:
        raise FrontierError(
            f"{name}: is too large: expected a TOML file of at most {_LARGEST} bytes"
        )
    try:
        text = content.decode() if isinstance(content, bytes) else content
        table = tomllib.loads(text)
    except (ValueError, RecursionError) as error:  # bad TOML, bad UTF-8, thousands of digits
        raise FrontierError(
            f'{name}: not TOML ({error}): expected lines such as name = "text"'
        ) from error
    try:
        return kind.model_validate(table)
    except ValidationError as error:
        mistake = first_mistake(error, table)
        hint = f"; {kind.hint}" if kind.hint else ""
        raise FrontierError(f"{name}: {mistake}{hint}") from error


def first_mistake(error: ValidationError, content: Any) -> str:
    """Return where the first mistake is, the value there and what was expected.

    Args:
        error: Error of pydantic, with one mistake at least.
        content: Table that was read, as plain values.
    """
    first = error.errors(include_url=False)[0]
    return _mistake(content, first["loc"], first["type"], first["msg"])


def toml_text(value: str) -> str:
    """Return a string as TOML writes it.

    Args:
        value: String of any characters.
    """
    # A JSON string is a TOML basic string but for one character, which TOML wants escaped.
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def shown(value: Any) -> str:
    """Return a value as text, shortened.

    Args:
        value: Value of any type.
    """
    try:
        return reprlib.repr(value)
    except ValueError:  # Python refuses to write out a number of thousands of digits
        return f"a very large {type(value).__name__}"


def _mistake(content: Any, place: tuple[int | str, ...], kind: str, message: str) -> str:
    """Return where the mistake is, the value there and what was expected."""
    where, value = "", content
    for step in place:
        try:
            value = value[step]
        except (LookupError, TypeError):  # a step that names a type among several, not a key
            continue
        if isinstance(step, int):
            where += f" {step + 1}"
        else:
            where += f".{step}" if where else str(step)
        if isinstance(step, int) and isinstance(value, dict) and isinstance(value.get("id"), str):
            where += f" ({reprlib.repr(value['id'])[1:-1]})"
    if kind == "value_error":  # the words of a validator
        reason = message.removeprefix("Value error, ")
        return f"{where}: {reason}" if where else reason
    expected = message.partition(" should ")[2] or message
    return f"{where} = {shown(value)}: expected it to {expected}"
