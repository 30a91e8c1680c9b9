"""Text of a record that somebody else wrote: no command prints what acts on a terminal."""

import json
import shutil
import unicodedata

import pytest

from advfrontier.record.header import checksum

UNSAFE = "\x1b]0;owned\x07\x9b31m\u202eevil\u2066\u200f\u2028"
SOURCE = "file.py:net"


def unsafe_letters(text):
    """Return the characters of an output that a terminal may act on."""
    return sorted({letter for letter in text if unicodedata.category(letter) in BAD} - {"\n"})


BAD = {"Cc", "Cf", "Cs", "Zl", "Zp"}


@pytest.fixture
def record(folder, evaluate):
    """Return the folder of a record with unsafe text wherever a stranger can put it."""
    assert evaluate("nets.py:net", "-o", "a", "--norm", "L2", "--no-report") == 0
    path = folder / "a" / "L2" / "record.json"
    fields = json.loads(path.read_text())
    del fields["checksum"]
    fields["model"]["name"] = f"model{UNSAFE}"
    fields["model"]["source"] = f"{UNSAFE}.py:net"
    fields["data"]["name"] = f"data{UNSAFE}"
    fields["data"]["class_names"] = [f"class{k}{UNSAFE}" for k in range(10)]
    fields["flags"] = [{"kind": "eot", "text": f"flag{UNSAFE}"}]
    fields["commands"] = [f"advfrontier {UNSAFE}"]
    for name in ("ensemble", "finished"):
        fields[name]["name"] = f"ensemble{UNSAFE}"
        fields[name]["flags"] = [f"note{UNSAFE}"]
    fields["versions"]["platform"] = UNSAFE
    fields["checksum"] = checksum(fields)
    path.write_text(json.dumps(fields))
    return "a"


COMMANDS = {
    "report": (0, ("report", "a", "--export", "csv,card,classes,latex,sentence")),
    "report as JSON": (0, ("report", "a", "--json")),
    "figures": (0, ("report", "a", "--figures", "figures")),
    "rank": (0, ("rank", "a", "--csv", "t.csv", "--html", "board.html")),
    "rank as JSON": (0, ("rank", "a", "--json")),
    "compare": (0, ("compare", "a", "b", "--out", "c.html")),
    "verify": (1, ("verify", "a", "--model", "nets.py:weaker", "--data", "npz:data.npz")),
    "verify as JSON": (
        1,
        ("verify", "a", "--model", "nets.py:weaker", "--data", "npz:data.npz", "--json"),
    ),
    "extend": (2, ("extend", "a", "--queries", "200")),
    "certify": (2, ("certify", "a")),
    "another model": (2, ("evaluate", "nets.py:weaker", "--data", "npz:data.npz", "-o", "a/L2")),
    "a folder": (2, ("report", f"no{UNSAFE}where")),
    "an option": (2, ("rank", "a", f"--{UNSAFE}")),
    "a norm": (2, ("evaluate", "nets.py:net", "--norm", UNSAFE)),
    "a model": (2, ("evaluate", f"{UNSAFE}.py:net")),
    "an ensemble": (2, ("evaluate", "nets.py:net", "--ensemble", UNSAFE)),
    "no rank": (2, ("rank", "a", "--reference", UNSAFE)),
    "a list": (2, ("rank", "a", "--verified", f"{UNSAFE}.toml")),
}


@pytest.mark.parametrize("name", list(COMMANDS))
def test_no_command_prints_what_acts_on_a_terminal(folder, record, run, capsys, name):
    code, words = COMMANDS[name]
    if name == "compare":
        shutil.copytree(record, "b")
    before = set(folder.rglob("*"))
    capsys.readouterr()
    assert run(*words) == code
    printed = capsys.readouterr()
    assert unsafe_letters(printed.out + printed.err) == []
    if name != "compare":  # which names two records of one model by their folders
        assert "owned" in printed.out + printed.err
    for path in set(folder.rglob("*")) - before:
        if path.suffix in {".csv", ".html", ".tex", ".txt", ".json"}:
            assert unsafe_letters(path.read_text(encoding="utf-8")) == [], path


def test_json_keeps_the_text_that_it_escapes(folder, record, run, capsys):
    assert run("report", record, "--json") == 0
    (found,) = json.loads(capsys.readouterr().out)
    assert found["model"] == f"model{UNSAFE}"


def test_all_models_flagged(folder, record, run, capsys):
    """The names of all models are in one error."""
    path = folder / record / "L2" / "record.json"
    fields = json.loads(path.read_text()) | {"flags": [{"kind": "beaten", "text": "no"}]}
    del fields["checksum"]
    path.write_text(json.dumps({**fields, "checksum": checksum(fields)}))
    assert run("rank", "a") == 2
    error = capsys.readouterr().err
    assert "flagged" in error
    assert unsafe_letters(error) == []
