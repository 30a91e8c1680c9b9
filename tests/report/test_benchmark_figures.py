"""Figures of a benchmark's page: one file for each that has something to show."""

import pytest
from bench_tiny import NORMS

from advfrontier.bench.collect import collect
from advfrontier.bench.frame import Results
from advfrontier.report.benchmark import View
from advfrontier.report.benchmark_figures import draw_figures

PNG = b"\x89PNG\r\n\x1a\n"


def test_figures_are_png_files_named_by_their_content(finished, tmp_path):
    pytest.importorskip("matplotlib", reason="figures need matplotlib")
    bench, _ = finished
    results = Results()
    collect(bench, results, norms=NORMS)
    figures = draw_figures(View(bench, results), tmp_path)
    assert {"growth", "curves"} <= figures.keys()
    assert {path.name for path in tmp_path.iterdir()} == {f"{name}.png" for name in figures}
    for name, path in figures.items():
        assert path == tmp_path / f"{name}.png"
        assert path.read_bytes().startswith(PNG)
