"""Commands on records that must not be written."""

import pytest
from support.disks import read_only


@pytest.fixture
def view(folder, evaluate):
    """Return the folder of a finished record that cannot be written."""
    assert evaluate("nets.py:net", "-o", "a", "--norm", "L2") == 0
    with read_only(folder / "a", folder / "view") as place:
        yield str(place)


def test_asked_for_again(view, evaluate, capsys):
    capsys.readouterr()
    assert evaluate("nets.py:net", "-o", view, "--norm", "L2") == 0
    printed = capsys.readouterr()
    assert "AUREC" in printed.out
    assert "note: no report: " in printed.err
    assert "its file system is read-only. Nothing was changed" in printed.err
    assert f"`advfrontier report {view} --out report.html` writes it here" in printed.err


def test_reported_elsewhere(folder, view, run, capsys):
    assert run("report", view) == 2
    assert "--out FILE.html writes the report elsewhere" in capsys.readouterr().err
    assert run("report", view, "--out", "report.html") == 0
    assert (folder / "report.html").exists()


def test_verified_and_ranked(view, run):
    assert run("verify", view, "--model", "nets.py:net", "--data", "npz:data.npz") == 0
    assert run("rank", view) == 0


def test_work_is_refused(view, run, capsys):
    assert run("extend", view, "--queries", "200", "--model", "nets.py:net") == 2
    assert "L2 cannot be written: its file system is read-only" in capsys.readouterr().err
