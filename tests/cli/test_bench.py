"""bench run, page and status on the command line."""

import json
from pathlib import Path

import pytest
from bench_nets import FILE
from bench_tiny import write_tiny

from advfrontier.cli import main


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(capsys, *words):
    main([str(word) for word in words])
    return capsys.readouterr()


def refused(capsys, *words):
    with pytest.raises(SystemExit, match=r"^2$"):
        main([str(word) for word in words])
    return capsys.readouterr().err


def test_run_then_status_then_page(here, capsys):
    write_tiny(here, pool=("fmn", "ddn"))
    words = ("--norm", "L2", "--samples", 2)
    said = run(capsys, "bench", "run", "tiny.toml", *words, "--only", "trace", "--workers", 0)
    assert "bench/tiny/results.md" in said.out.splitlines()
    assert "trace plain in L2" in said.err
    assert "evaluate plain in L2" not in said.err
    text = (here / "bench/tiny/results.md").read_text(encoding="utf-8")
    assert "2 models (1 held out) on 2 samples of fashion-mnist" in text
    said = run(capsys, "bench", "status", "tiny.toml", *words, "--json").out
    rows = {row["stage"]: row for row in json.loads(said)}
    assert rows["trace"]["missing"] is None
    assert rows["evaluate"]["missing"] == "plain noisy"
    said = run(capsys, "bench", "page", "tiny.toml", "mine.md", *words).out
    assert said.splitlines()[0] == "mine.md"
    assert Path("mine/results.parquet").is_file()


def test_a_part_that_fails_ends_with_exit_code_2_after_the_page(here, capsys):
    write_tiny(here, models=("plain", "lost"), pool=("fmn",))
    words = ("bench", "run", "tiny.toml", "--norm", "L2", "--only", "trace", "--workers", 0)
    said = refused(capsys, *words)
    assert "1 parts failed, the others are done; run the same command again" in said
    assert "model lost: " in said
    assert Path("bench/tiny/results.md").is_file()
    run(capsys, *words, "--source", f"lost={FILE}:wide")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("run", "tiny.toml", "--source", "plain"), "--source plain: expected MODEL=SOURCE"),
        (("run", "tiny.toml", "--only", "train"), "tiny has no stage 'train'"),
        (("run", "tiny.toml", "--data", "mnist"), "no data 'mnist': it has fashion-mnist"),
        (("status", "nothing"), "no benchmark 'nothing'"),
        (("status", "tiny.toml", "--samples", "0"), "0 samples: expected at least 1"),
        (("page", "tiny.toml", "mine.md"), "type `advfrontier bench run tiny`"),
        (("page", "tiny.toml", "mine"), "the page is mine: expected a file such as results.md"),
    ],
)
def test_a_mistake_is_answered_before_anything_is_done(here, capsys, words, message):
    write_tiny(here)
    assert message in refused(capsys, "bench", *words)
    assert sorted(path.name for path in here.iterdir()) == ["tiny.toml"]
