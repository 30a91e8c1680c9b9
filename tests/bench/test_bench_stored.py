"""The results of a norm in one file: every table and figure comes back from it, and norms can be done one by one."""

from dataclasses import replace
from pathlib import Path

import pytest

from advfrontier.bench.stored import read_stored, store, stored_file
from advfrontier.cli import main
from advfrontier.errors import FrontierError
from advfrontier.report.benchmark import write_page


def content(paths):
    return {path: path.read_bytes() for path in paths}


@pytest.fixture
def page(finished_in_two, tmp_path):
    """The benchmark, its page with all files, and their folder."""
    bench, results = finished_in_two
    return bench, write_page(results, tmp_path / "page.md"), tmp_path / "page"


def test_a_page_is_made_again_from_what_is_stored_beside_it(page, capsys):
    bench, written, _ = page
    before = content(written)
    for path in written:
        if path.suffix != ".safetensors":
            path.unlink()
    main(["bench", "page", bench_file(bench), str(written[0])])
    assert content(written) == before
    assert str(written[0]) in capsys.readouterr().out


def test_norms_that_are_not_asked_for_stand_as_they_were(page):
    bench, written, folder = page
    tables = [
        path for path in written if path.suffix != ".safetensors"
    ]  # whose headers have no order of their own
    before = content(tables)
    stored_file(folder, "L2").unlink()
    assert list(read_stored(folder, bench).norms) == ["Linf"]
    main(
        [
            "bench",
            "run",
            bench_file(bench),
            "--out",
            bench.out,
            "--norm",
            "l2",
            "--page",
            str(written[0]),
        ]
    )
    assert content(tables) == before


def test_norms_of_which_nothing_is_stored_are_not_lost(page, capsys):
    bench, written, folder = page
    before = content(written)
    stored_file(folder, "Linf").unlink()
    with pytest.raises(SystemExit, match="2"):
        main(
            [
                "bench",
                "run",
                bench_file(bench),
                "--out",
                bench.out,
                "--norm",
                "l2",
                "--page",
                str(written[0]),
            ]
        )
    assert "shows Linf too, of which nothing is stored" in capsys.readouterr().err
    assert written[0].read_bytes() == before[written[0]]


def test_what_is_damaged_or_of_another_benchmark_is_refused(page):
    bench, _, folder = page
    path = stored_file(folder, "Linf")
    other = replace(bench, benchmark=bench.benchmark.model_copy(update={"name": "other"}))
    with pytest.raises(FrontierError, match="is of the benchmark tiny in L2: expected other in L2"):
        read_stored(folder, other)
    whole = path.read_bytes()
    path.write_bytes(stored_file(folder, "L2").read_bytes())
    with pytest.raises(
        FrontierError, match="is of the benchmark tiny in L2: expected tiny in Linf"
    ):
        read_stored(folder, bench)
    path.write_bytes(whole)
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(FrontierError, match="cannot be read"):
        read_stored(folder, bench)


def test_interrupted_while_it_is_stored_the_file_of_before_stays(
    finished_in_two, page, monkeypatch
):
    def interrupt(_):
        raise KeyboardInterrupt

    (_, results), (bench, _, folder) = finished_in_two, page
    monkeypatch.setattr("os.fsync", interrupt)
    with pytest.raises(KeyboardInterrupt):
        store(replace(results, name="other"), folder)
    assert list(read_stored(folder, bench).norms) == ["L2", "Linf"]


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["page", "small", "."], "expected a file with an ending"),
        (["run", "small", "--page", "."], "expected a file with an ending"),
        (["page", "small", "nothing.md"], "bench run small --page nothing.md"),
        (["run", "small", "--norm", "l3"], "L0, L1"),
    ],
)
def test_what_is_not_there_is_told(words, told, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as stop:
        main(["bench", *words])
    assert stop.value.code == 2
    assert told in capsys.readouterr().err


def bench_file(bench):
    return str(Path(bench.out).parent / "tiny.toml")
