"""TOML files: mistakes are named with their place, their value and what was expected."""

import tomllib
from typing import ClassVar

import pytest

from advfrontier.errors import FrontierError
from advfrontier.toml import TomlTable, parse_toml, read_toml, toml_text


class Entry(TomlTable):
    id: str
    weight: int = 1


class Page(TomlTable):
    hint: ClassVar[str] = "see docs/page.md"
    name: str
    entries: list[Entry] = []  # noqa: RUF012  # pydantic copies it


def test_file_is_read(tmp_path):
    (tmp_path / "a.toml").write_text('name = "é"\nentries = [{ id = "x", weight = 3 }]\n')
    page = read_toml(Page, tmp_path / "a.toml")
    assert (page.name, page.entries[0].weight) == ("é", 3)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("name = ", r"a\.toml: not TOML .*: expected lines such as name = \"text\""),
        ("", r"a\.toml: has no name: expected name = …; see docs/page\.md"),
        ("name = 3", r"a\.toml: name = 3: expected it to be a valid string"),
        (
            'name = "a"\ncolour = 3',
            r"a\.toml: unknown key 'colour': expected one of name, entries",
        ),
        (
            'name = "a"\nentries = [{ id = "x" }, { id = "y", weight = "z" }]',
            r"entries 2 \(y\)\.weight = 'z': expected it to be a valid integer",
        ),
        (b"\xff", r"a\.toml: not TOML"),
        (
            "#" * (2**20 + 1),
            r"a\.toml: is too large: expected a TOML file of at most 1048576",
        ),
    ],
)
def test_mistakes_are_named(content, message):
    with pytest.raises(FrontierError, match=message):
        parse_toml(Page, content, "a.toml")


def test_missing_file_is_named(tmp_path):
    with pytest.raises(FrontierError, match=r"none\.toml: cannot be read .*: expected a TOML file"):
        read_toml(Page, tmp_path / "none.toml")


@pytest.mark.parametrize("text", ["plain", 'a "quoted" \\ line\n', "ℓ₂ \x7f\x00"])
def test_text_is_written_as_toml_reads_it(text):
    assert tomllib.loads(f"a = {toml_text(text)}")["a"] == text
