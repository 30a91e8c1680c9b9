"""Progress: a bar on terminals, one line in notebooks, plain lines elsewhere, and nothing where
nobody reads it.
"""

import io
import re
from types import SimpleNamespace

import pytest
from support.models import samples, tanh_mlp

from advfrontier import Machine, progress, trace


@pytest.fixture
def clock(monkeypatch):
    """Advance the clock by a second every time it is read."""
    now = iter(range(10**6))
    monkeypatch.setattr(progress.time, "monotonic", lambda: float(next(now)))


def test_plain_lines_now_and_then(clock):
    stream = io.StringIO()
    with progress.Progress(100, unit="queries", stream=stream) as bar:
        bar.show("fmn, ddn")
        for _ in range(50):
            bar.advance(2)
    lines = stream.getvalue().splitlines()
    assert lines[0] == "fmn, ddn: 4 of 100 queries (4%), 2/s, about 48 s left"
    assert 3 <= len(lines) <= 5  # every 15 seconds of 50
    assert "\x1b" not in stream.getvalue()
    assert bar.done == 100


def test_quick_work_is_not_reported():
    stream = io.StringIO()
    with progress.Progress(100, unit="queries", stream=stream) as bar:
        bar.advance(100)
    assert stream.getvalue() == ""


def test_terminal_gets_a_bar_that_is_removed_at_the_end(monkeypatch):
    stream = io.StringIO()
    monkeypatch.setattr(stream, "isatty", lambda: True)
    monkeypatch.setenv("TERM", "xterm")
    with progress.Progress(100, unit="queries", stream=stream) as bar:
        bar.show("fmn [/255]")  # a name, not markup
        bar.advance(100)
    shown = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", stream.getvalue())
    assert "100/100" in shown
    assert "fmn [/255]" in shown


class Kernel:
    """The shell of a notebook."""

    kernel = object()


@pytest.mark.parametrize("terminal", [True, False])
@pytest.mark.parametrize("notebook", [True, False])
@pytest.mark.parametrize("asked", [True, False, None])
def test_progress_is_shown_where_somebody_reads_it(monkeypatch, terminal, notebook, asked):
    monkeypatch.setattr(progress.sys.stderr, "isatty", lambda: terminal)
    shell = Kernel() if notebook else None
    monkeypatch.setitem(progress.sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: shell))
    shown = not isinstance(progress.progress_bar(asked, 10, unit="queries"), progress.Silent)
    assert shown == (asked if asked is not None else terminal or notebook)


def test_notebook_has_one_line_that_is_overwritten(clock, monkeypatch):
    monkeypatch.setitem(progress.sys.modules, "IPython", SimpleNamespace(get_ipython=Kernel))
    stream = io.StringIO()
    with progress.Progress(100, unit="queries", stream=stream) as bar:
        bar.show("fmn")
        for _ in range(10):
            bar.advance(10)
    first, *lines = stream.getvalue().split("\r")
    assert first == ""
    assert len(lines) > 2
    assert lines[0] == "fmn: 20 of 100 queries (20%), 10/s, about 8 s left"
    assert [line.endswith("\n") for line in lines] == [False] * (len(lines) - 1) + [True]


def test_trace_reports_to_stderr_and_only_when_asked(clock, capsys):
    model = tanh_mlp(hidden=8)
    images, labels = samples(model, 3)
    trace(
        model,
        images,
        labels,
        norm="L2",
        runs=["fmn", "ddn"],
        queries=100,
        machine=Machine(progress=True),
    )
    out = capsys.readouterr()
    assert out.out == ""
    assert re.search(
        r"^L2 (fmn|ddn).*: \d+ of 600 queries \(\d+%\), 6/s, about \d+ s left$",
        out.err,
        re.MULTILINE,
    )
    trace(model, images, labels, norm="L2", runs=["fmn"], queries=100)
    assert capsys.readouterr() == ("", "")
