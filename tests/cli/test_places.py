"""Records, reports, tables and figures go to any place that has an address; models of one place are
told apart.
"""

import os
import threading
from importlib.util import find_spec
from pathlib import Path

import fsspec
import pytest

from advfrontier import Evaluation
from advfrontier.record.folder import LocalFolder, open_folder, write_file

ADDRESS = "memory://bucket/mine"


@pytest.fixture
def memory():
    store = fsspec.filesystem("memory").store
    store.clear()
    yield store
    store.clear()


def test_all_that_a_command_writes_goes_to_an_address(folder, memory, run, evaluate, capsys):
    before = set(folder.rglob("*"))
    assert evaluate("nets.py:net", "--norm", "L2", "-o", ADDRESS, "--export", "csv") == 0
    printed = capsys.readouterr().out
    assert f"table: {ADDRESS}/L2.csv\nreport: {ADDRESS}/report.html" in printed
    assert memory["/bucket/mine/report.html"].getvalue().startswith(b"<!")
    assert memory["/bucket/mine/L2.csv"].getvalue().startswith(b"row,sample,label,")

    memory.pop("/bucket/mine/report.html")
    assert (
        run("extend", ADDRESS, "--model", "nets.py:net", "--queries", "200", "--workers", "0") == 0
    )
    assert Evaluation.load(f"{ADDRESS}/L2").ensemble.total == 200
    assert "/bucket/mine/report.html" in memory

    assert (
        evaluate(
            "nets.py:weaker", "--norm", "L2", "--queries", "200", "-o", "memory://bucket/weaker/"
        )
        == 0
    )
    assert (
        run(
            "rank",
            "memory://bucket",
            "--csv",
            "memory://out/t.csv",
            "--html",
            "memory://out/b.html",
        )
        == 0
    )
    assert run("compare", ADDRESS, "memory://bucket/weaker", "--out", "memory://out/c.html") == 0
    assert all(f"/out/{name}" in memory for name in ("t.csv", "b.html", "c.html"))
    assert {path for path in folder.rglob("*") if "__pycache__" not in path.parts} == before


@pytest.mark.skipif(find_spec("matplotlib") is None, reason="figures need the extra of that name")
def test_figures_go_to_an_address(folder, memory, run, evaluate):
    assert evaluate("nets.py:net", "--norm", "L2", "-o", "a", "--no-report") == 0
    assert (
        run("report", "a", "--out", "memory://out/r.html", "--figures", "memory://out/figures") == 0
    )
    assert memory["/out/figures/curve-L2.png"].getvalue()[:4] == b"\x89PNG"
    assert not Path("memory:").exists()


def test_local_address_is_the_local_folder(folder, run, evaluate, capsys):
    address = f"file://{folder}/z"
    assert evaluate("nets.py:net", "-o", address) == 0
    assert (
        run("extend", address, "--model", "nets.py:net", "--queries", "200", "--workers", "0") == 0
    )
    assert f"report: {address}/report.html" in capsys.readouterr().out
    assert Evaluation.load("z/Linf").ensemble.total == 200
    assert isinstance(
        open_folder(address), LocalFolder
    )  # which renames: a reader never sees half a file


def test_place_is_the_same_from_another_folder(folder, evaluate, monkeypatch):
    assert evaluate("nets.py:net", "-o", "here", "--no-report") == 0
    found = Evaluation.load("here/Linf")
    (folder / "elsewhere").mkdir()
    monkeypatch.chdir("elsewhere")
    assert len(found.distances) == 8
    assert found.place == str(folder / "here" / "Linf")


def test_files_are_listed_to_a_depth(tmp_path, memory):
    for place in (tmp_path, "memory://listed"):
        there = open_folder(place)
        names = ["top", "a/one", "a/b/two", "a/b/c/three"]
        for name in names:
            there.write(name, b"")
        assert there.names() == sorted(names)
        assert there.names(depth=1) == ["a/one", "top"]
        assert there.names("a", depth=1) == ["a/b/two", "a/one"]
        assert there.names("gone") == []


def test_link_and_a_pipe_are_written_through(tmp_path):
    (tmp_path / "real").write_text("old")
    (tmp_path / "link").symlink_to("real")
    write_file(tmp_path / "link", b"new")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "real").read_bytes() == b"new"
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    got = []
    reader = threading.Thread(target=lambda: got.append(pipe.read_bytes()), daemon=True)
    reader.start()
    write_file(pipe, b"through")
    reader.join(10)
    assert got == [b"through"]
    assert pipe.is_fifo()


@pytest.fixture
def two_models(folder, evaluate, capsys):
    for name in ("net", "weaker"):
        assert evaluate(f"nets.py:{name}", "-o", f"both/{name}", "--no-report") == 0
    capsys.readouterr()


def test_folder_of_two_models_is_not_compared_as_one(two_models, run, capsys):
    assert run("compare", "both", "both/net") == 2
    said = capsys.readouterr().err
    assert "both holds records of 2 models (nets.py:net in " in said
    assert "both/weaker/Linf): expected the folder of one" in said
    assert run("compare", "both/net", "both/weaker") == 0
    assert "nets.py:weaker" in capsys.readouterr().out


def test_tables_of_two_models_have_two_files(two_models, run):
    assert run("report", "both", "--export", "card") == 0
    assert '"name": "nets.py:net"' in Path("both/net/Linf.json").read_text()
    assert '"name": "nets.py:weaker"' in Path("both/weaker/Linf.json").read_text()
    assert run("report", "both/net/Linf", "--export", "csv") == 0
    assert Path("both/net/Linf/Linf.csv").exists()


@pytest.mark.parametrize(
    ("command", "times"), [(["report", "both/net", "both/weaker"], 2), (["report", "both"], 2)]
)
def test_report_reads_every_record_once(two_models, run, monkeypatch, command, times):
    from advfrontier.evaluation import summary  # noqa: PLC0415

    read, summarise = [], summary.summarise
    monkeypatch.setattr(
        summary, "summarise", lambda e, **more: [read.append(e.model), summarise(e, **more)][1]
    )
    assert run(*command) == 0
    assert len(read) == times


def test_missing_folder_and_foreign_record_are_named(folder, memory, run, capsys):
    assert run("extend", "memory://nothing", "--tier", "8k") == 2
    assert (
        "no folder memory://nothing, or nothing in it: type `advfrontier" in capsys.readouterr().err
    )
    (folder / "notes").mkdir()
    (folder / "notes" / "record.json").write_text("{}")
    assert run("extend", "notes", "--tier", "8k") == 2
    assert (
        "notes holds no record of the kind evaluation: type `advfrontier evaluate"
        in capsys.readouterr().err
    )
