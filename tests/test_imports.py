"""Python that users name: files with their neighbours, and modules of the working directory."""

import sys

import pytest

from advfrontier.errors import FrontierError
from advfrontier.imports import import_file, import_here


@pytest.fixture(autouse=True)
def _same_path(monkeypatch):
    monkeypatch.setattr(sys, "path", [*sys.path])


def test_file_is_imported_with_its_neighbours(tmp_path):
    (tmp_path / "neighbour_of_it.py").write_text("number = 7\n")
    (tmp_path / "it.py").write_text("from neighbour_of_it import number\n")
    assert import_file(tmp_path / "it.py").number == 7


def test_files_of_one_name_are_two_modules(tmp_path):
    for number, folder in enumerate(("a", "b")):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "net.py").write_text(f"number = {number}\n")
    numbers = [import_file(tmp_path / folder / "net.py").number for folder in ("a", "b")]
    assert numbers == [0, 1]


def test_other_files_are_refused(tmp_path):
    (tmp_path / "it.txt").write_text("number = 7\n")
    with pytest.raises(FrontierError, match=r"it\.txt cannot be imported: expected a Python file"):
        import_file(tmp_path / "it.txt")


def test_module_of_the_working_directory_is_found(tmp_path, monkeypatch):
    (tmp_path / "module_of_this_folder.py").write_text("number = 8\n")
    monkeypatch.chdir(tmp_path)
    assert import_here("module_of_this_folder").number == 8
