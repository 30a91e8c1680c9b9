"""Other people's files: a record touches none of them, follows no link, and runs no code that it
names.
"""

import os
import shutil
import time
from pathlib import Path

import pytest
import torch
from record_cases import LARGER, OPTIONS
from support.models import SHAPE

from advfrontier import Evaluation, FrontierError, Machine, evaluate, trace
from advfrontier.autoattack_api import AutoAttack
from advfrontier.cli import main
from advfrontier.record import Record

FOREIGN = [
    ".env.prod-eu",
    ".git/refs/.x.y-z",
    ".git/HEAD",
    ".hidden",
    "README.md",
    "originals/cat.png",
    "originals/dog.png",
    "images/00000+004.safetensors",
    "images/cat.png",
    "units/fmn/00000+004-0020.safetensors",
    "units/notes.txt",
    "units/.a.b-c",
    "clean.safetensors",
    "report.html",
    "results/results.md",
    "results/results.json",
    "failures.json",
    "ensembles/L2-4k.toml",
    "traces/F1/L2/notes.txt",
    "radii/0.1/00000+100.safetensors",
    "calibration.json",
]


@pytest.fixture
def project(tmp_path):
    """A folder of someone's own work, old enough for anything that tidies, with links into another
    folder.
    """
    folder, outside = tmp_path / "project", tmp_path / "outside"
    outside.mkdir()
    (outside / "precious.txt").write_text("precious")
    for name in FOREIGN:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"of the user: {name}")
    (folder / "linked").symlink_to(outside)
    (folder / "link.txt").symlink_to(outside / "precious.txt")
    for path in folder.rglob("*"):
        if not path.is_symlink():
            os.utime(path, (time.time() - 10_000,) * 2)
    return folder


def contents(folder):
    return {
        str(path.relative_to(folder)): str(path.readlink())
        if path.is_symlink()
        else path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_symlink() or path.is_file()
    }


def typed(*words):
    """A command as its user types it; returns its exit code."""
    try:
        main([str(word) for word in words])
    except SystemExit as end:
        return end.code
    return 0


def user_files_are_untouched(project, before):
    after = contents(project)
    assert {name: after.get(name) for name in before} == before
    assert contents(project.parent / "outside") == {"precious.txt": b"precious"}


def test_a_record_is_never_started_among_other_files(problem, project):
    project = project.rename(project.parent / "L2")  # as the folder of the record would be called
    before = contents(project)
    for start in (
        lambda: evaluate(*problem, out=project, **OPTIONS),
        lambda: trace(*problem, norm="L2", runs=["fmn"], queries=20, out=project),
        lambda: AutoAttack(problem[0], norm="L2", eps=0.5, verbose=False).run_standard_evaluation(
            *problem[1:], state_path=project
        ),
    ):
        with pytest.raises(
            FrontierError, match=r"holds \.env\.prod-eu and \d+ more, but no record\.json.*--out"
        ):
            start()
        assert contents(project) == before


@pytest.mark.parametrize(
    "words",
    [
        (
            "evaluate",
            "zoo:F8",
            "--samples",
            "2",
            "--norm",
            "L2",
            "--queries",
            "20",
            "--workers",
            "0",
            "--out",
        ),
        (
            "trace",
            "zoo:F8",
            "--samples",
            "2",
            "--norm",
            "L2",
            "--runs",
            "ddn",
            "--queries",
            "20",
            "--workers",
            "0",
            "--out",
        ),
        ("report",),
        ("rank",),
        ("extend",),
        pytest.param(("bench", "run", "small", "--workers", "0", "--out"), marks=pytest.mark.slow),
        ("allocate",),
    ],
    ids=lambda words: words[0],
)
def test_commands_leave_a_folder_of_other_files_as_it_was(project, words, capsys):
    before = contents(project)
    rest = ("--tier", "8k") if words[0] == "extend" else ()
    code = typed(*words, project, *rest)
    assert code in {0, 2}
    user_files_are_untouched(project, before)


def test_foreign_files_that_come_into_a_record_later_stay(problem, tmp_path):
    out = tmp_path / "a" / "L2"
    done = evaluate(*problem, out=out, **OPTIONS)
    foreign = [
        ".env.prod-eu",
        "images/cat.png",
        "images/.x.y-z",
        "units/fmn/notes.txt",
        "units/.a.b-c",
        "mine/x.txt",
    ]
    for name in foreign:
        (out / name).parent.mkdir(exist_ok=True)
        (out / name).write_text("of the user")
        os.utime(out / name, (time.time() - 10_000,) * 2)
    done.extend(LARGER)
    more = torch.cat([problem[1], 1 - problem[1]])
    evaluate(
        problem[0], more, torch.cat([problem[2]] * 2), out=out, **OPTIONS | {"ensemble": LARGER}
    )
    assert all((out / name).read_text() == "of the user" for name in foreign)


# Links


@pytest.mark.parametrize(
    "name", ["images", "units", "record.json", "clean.safetensors", "units/ensemble"]
)
def test_no_link_in_a_record_is_followed(problem, tmp_path, name):
    """A received record with a link to a folder, or to a file, of the one who received it."""
    out, outside = tmp_path / "a" / "L2", tmp_path / "outside"
    evaluate(*problem, out=out, **OPTIONS)
    shutil.move(out / name, outside)  # so that what the link leads to looks right
    (out / name).symlink_to(outside)
    precious = outside / "precious.png" if outside.is_dir() else None
    if precious:
        precious.write_text("precious")
    before = contents(outside) if outside.is_dir() else outside.read_bytes()
    for use in (
        lambda: Evaluation.load(out).adversarials,
        lambda: evaluate(*problem, out=out, **OPTIONS),
        lambda: Evaluation.load(out).extend(LARGER, model=problem[0]),
        lambda: evaluate(problem[0], problem[1][:6], problem[2][:6], out=out, **OPTIONS),
    ):
        with pytest.raises(FrontierError, match=r"is a link|other samples|lacks"):
            use()
    assert (contents(outside) if outside.is_dir() else outside.read_bytes()) == before


def test_a_report_is_not_written_through_a_link(problem, tmp_path, capsys):
    evaluate(*problem, out=tmp_path / "a" / "L2", name="net", **OPTIONS)
    (tmp_path / "mine.txt").write_text("mine")
    (tmp_path / "a" / "L2" / "report.html").symlink_to(tmp_path / "mine.txt")
    assert typed("report", tmp_path / "a" / "L2") == 2
    assert "report.html is a link" in capsys.readouterr().err
    assert (tmp_path / "mine.txt").read_text() == "mine"


def test_a_report_that_somebody_else_wrote_is_kept(problem, tmp_path, capsys):
    evaluate(*problem, out=tmp_path / "a" / "L2", name="net", **OPTIONS)
    (tmp_path / "a" / "L2" / "report.html").write_text("<p>my own notes</p>")
    assert typed("report", tmp_path / "a" / "L2") == 2
    assert "was not written by advfrontier" in capsys.readouterr().err
    assert (tmp_path / "a" / "L2" / "report.html").read_text() == "<p>my own notes</p>"
    assert typed("report", tmp_path / "a" / "L2", "--out", tmp_path / "other.html") == 0
    assert (
        typed("report", tmp_path / "a" / "L2", "--out", tmp_path / "other.html") == 0
    )  # its own it may replace


NAMES = {
    "card": "L2.json",
    "classes": "L2-classes.csv",
    "latex": "summary.tex",
    "sentence": "sentence.txt",
}


@pytest.mark.parametrize("kind", ["csv", "npz", "card", "parquet", "classes", "latex", "sentence"])
def test_a_table_that_somebody_else_wrote_is_kept(problem, tmp_path, kind, capsys):
    evaluate(*problem, out=tmp_path / "a" / "L2", name="net", **OPTIONS)
    target = tmp_path / "a" / "L2" / NAMES.get(kind, f"L2.{kind}")
    target.write_text("my own figures")
    out = ("--out", tmp_path / "report.html")
    assert typed("report", tmp_path / "a" / "L2", "--export", kind, *out) == 2
    assert "was not written by advfrontier" in capsys.readouterr().err
    assert target.read_text() == "my own figures"
    target.unlink()
    assert typed("report", tmp_path / "a" / "L2", "--export", kind, *out) == 0
    assert (
        typed("report", tmp_path / "a" / "L2", "--export", kind, *out) == 0
    )  # its own it may replace


# Code


EVIL = """
from pathlib import Path
Path({ran!r}).write_text("ran")
def net():
    import sys
    sys.path.insert(0, {tests!r})
    from support.models import conv_net
    return conv_net({shape}, classes=10, seed=5)
"""


def test_figures_and_rank_tables_of_somebody_else_are_kept(problem, tmp_path, capsys):
    made = [tmp_path / "f" / "curve-L2.pdf", tmp_path / "f" / "curve-L2.png", tmp_path / "t.csv"]
    words = [
        "report",
        str(tmp_path / "r"),
        "--out",
        str(tmp_path / "r.html"),
        "--figures",
        str(tmp_path / "f"),
    ]
    tables = ["rank", str(tmp_path / "r"), "--csv", str(tmp_path / "t.csv")]
    evaluate(*problem, norm="L2", ensemble=["fmn"], out=tmp_path / "r")
    for command in (words, tables) * 2:
        main(command)  # writes it, and then over what it wrote itself
    for command, path in ((words, made[0]), (words, made[1]), (tables, made[2])):
        path.write_text("mine")
        with pytest.raises(SystemExit, match="2"):
            main(command)
        assert f"{path} was not written by advfrontier" in capsys.readouterr().err
        assert path.read_text() == "mine"
        path.unlink()  # the next command may write it again


def test_a_page_that_somebody_else_wrote_is_kept(tmp_path, capsys):
    for page, words in (
        ("NOTES.md", "was not written by advfrontier"),
        ("notes", "expected a file such as results.md"),
    ):
        (tmp_path / page).write_text("mine")
        with pytest.raises(SystemExit, match="2"):
            main(
                [
                    "bench",
                    "run",
                    "small",
                    "--out",
                    str(tmp_path / "b"),
                    "--page",
                    str(tmp_path / page),
                ]
            )
        assert words in capsys.readouterr().err
        assert (tmp_path / page).read_text() == "mine"
    assert not (tmp_path / "b").exists()


def test_code_that_a_record_names_is_not_run(problem, tmp_path, capsys):
    ran, tests = tmp_path / "ran", Path(__file__).parent.parent
    (tmp_path / "evil.py").write_text(EVIL.format(ran=str(ran), tests=str(tests), shape=SHAPE))
    source = f"{tmp_path}/evil.py:net"
    evaluate(source, *problem[1:], out=tmp_path / "a" / "L2", machine=Machine(threads=1), **OPTIONS)
    ran.unlink()
    assert Record.find(tmp_path / "a" / "L2").header.model.source == source
    with pytest.raises(
        FrontierError, match=r"which would run code on this machine.*--model .*evil.py:net"
    ):
        Evaluation.load(tmp_path / "a" / "L2").extend(LARGER)
    LARGER.save(tmp_path / "larger.toml")
    assert (
        typed(
            "extend",
            tmp_path / "a" / "L2",
            "--ensemble",
            tmp_path / "larger.toml",
            "--workers",
            "0",
        )
        == 2
    )
    assert "type it yourself" in capsys.readouterr().err
    assert typed("report", tmp_path / "a" / "L2") == 0
    assert typed("rank", tmp_path / "a" / "L2") == 0
    assert not ran.exists()
    command = (
        "extend",
        tmp_path / "a" / "L2",
        "--ensemble",
        tmp_path / "larger.toml",
        "--model",
        source,
        "--workers",
        "0",
    )
    assert typed(*command) == 0
    assert ran.exists()
    assert Evaluation.load(tmp_path / "a" / "L2").ensemble.total == 100
