"""Evaluations on disks that are read-only, full or failing: real ones, mounted by the tests."""

import subprocess
import sys

import pytest
from small_evaluation import LARGER, SMALL, same
from support.disks import failing_device, read_only, small_disk

from advfrontier import Evaluation, FrontierError, evaluate, rank
from advfrontier.errors import ReadOnlyError
from advfrontier.evaluation.certify import certify
from advfrontier.evaluation.verify import verify

OPTIONS = {"norm": "L2", "ensemble": SMALL, "batch_size": 4}


def contents(folder):
    """Return all files of a folder with their bytes and times."""
    files = [path for path in sorted(folder.rglob("*")) if path.is_file()]
    return [(path.name, path.read_bytes(), path.stat().st_mtime_ns) for path in files]


def test_a_finished_record_is_used_where_nothing_can_be_written(problem, evaluation, tmp_path):
    evaluate(*problem, out=tmp_path / "a", name="net", **OPTIONS)
    before = contents(tmp_path / "a")
    with read_only(tmp_path / "a", tmp_path / "view") as view:
        again = evaluate(*problem, out=view, name="another name", **OPTIONS)
        same(again, evaluation)
        loaded = Evaluation.load(view)
        same(loaded, evaluation)
        assert loaded.report(tmp_path / "report.html")
        assert rank([loaded]).norms[0].rows[0].model == "net"
        model, images, labels = problem
        assert verify(loaded, model, images, labels, rerun="100%").holds
        with pytest.raises(ReadOnlyError, match=r"L2 cannot be written: its file system is read-o"):
            loaded.extend(LARGER, model=model)
        with pytest.raises(ReadOnlyError, match=r"L2 cannot be written: its file system is read-o"):
            certify(loaded, model=model)
        with pytest.raises(ReadOnlyError, match=r"new.* cannot be written: .*Nothing was changed"):
            evaluate(*problem, out=view / "new", **OPTIONS)
    assert contents(tmp_path / "a") == before


def test_work_that_filled_a_disk_resumes_once_there_is_space(problem, evaluation, tmp_path):
    with small_disk(tmp_path / "disk", "36k") as disk:
        message = r"cannot be written: the disk is full\. .*intact\. .*run the same command again"
        with pytest.raises(FrontierError, match=message) as caught:
            evaluate(*problem, out=disk / "a", **OPTIONS)
        assert "FrontierError" not in str(caught.value)
        subprocess.run(["mount", "-o", "remount,size=4m", str(disk)], check=True)  # noqa: S603, S607
        same(evaluate(*problem, out=disk / "a", **OPTIONS), evaluation)


def test_a_failing_device_is_named(problem, tmp_path):
    evaluate(*problem, out=tmp_path / "a", **OPTIONS)
    unit = next((tmp_path / "a").rglob("units/*/*.safetensors"))
    message = r"safetensors cannot be read: the device reports an input/output error.*another disk"
    with failing_device(unit), pytest.raises(FrontierError, match=message):
        _ = Evaluation.load(tmp_path / "a").distances


@pytest.mark.skipif(sys.platform == "win32", reason="names of other systems")
@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("x" * 300, r"\(300|cannot be .*: the name is too long.*255 bytes"),
        ("a\0b", r"a\\x00b.* its name holds a NUL character"),
        ("notes/a", r"notes.* (is a file|a file stands where a folder)"),
    ],
)
def test_folders_that_cannot_be(problem, tmp_path, name, message):
    (tmp_path / "notes").touch()
    with pytest.raises(FrontierError, match=message):
        evaluate(*problem, out=f"{tmp_path}/{name}", **OPTIONS)
    with pytest.raises(FrontierError, match=message):
        Evaluation.load(f"{tmp_path}/{name}")


def test_a_very_long_name_is_shortened_in_the_message(problem, tmp_path):
    with pytest.raises(FrontierError, match="the name is too long") as caught:
        evaluate(*problem, out=tmp_path / ("x" * 5000), **OPTIONS)
    assert len(str(caught.value)) < 600
