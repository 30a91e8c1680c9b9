"""Benchmark files: those of the package, and every mistake in one's own."""

import tomllib
from importlib.resources import files
from importlib.util import find_spec

import pytest

from advfrontier.bench.benchmark import (
    Benchmark,
    BenchmarkData,
    BenchmarkModel,
    benchmark_names,
    load_benchmark,
)
from advfrontier.errors import FrontierError
from advfrontier.sources.libraries import robustbench_entry, robustbench_utils
from advfrontier.sources.reading import read_spec

OWN = """
samples = 100
budgets = ["1k", 2000]
pool = ["fmn", "apgd_min-dlr:restart1"]

[data.fashion]
source = "fashion-mnist"
radii = { linf = "8/255", L2 = 1 }

[[models]]
id = "F1"
source = "zoo:F1"
data = "fashion"
split = "train"
batch = 200

[[models]]
id = "F2"
data = "fashion"
split = "held-out"
batch = 200
"""


def own(tmp_path, *changes):
    text = OWN
    for old, new in changes:
        assert old in text
        text = text.replace(old, new, 1)
    path = tmp_path / "mine.toml"
    path.write_text(text, encoding="utf-8", errors="surrogateescape")
    return path


def test_paper_names_all_models_of_the_paper():
    paper = load_benchmark("paper")
    cifar10 = [f"C{number}" for number in range(1, 21)]
    imagenet = [f"I{number}" for number in range(1, 11)]
    assert [model.id for model in paper.models] == cifar10 + imagenet
    held_out = {"C3", "C4", "C6", "C10", "C12", "C16", "C18", "C19", "I3", "I6", "I8", "I9", "I10"}
    assert {model.id for model in paper.models if model.split == "held-out"} == held_out
    usual = {"cifar10": 500, "imagenet": 100}
    other = {model.id for model in paper.models if model.batch != usual[model.data]}
    assert other == {"C6", "C17", "I5", "I6", "I7", "I8", "I10"}
    assert (paper.samples, paper.budgets, paper.pool) == (1000, (4000, 8000, 12000), ("paper",))
    assert paper.baseline == "all"
    assert paper.data["cifar10"].radii == {"L1": 12.0, "L2": 0.5, "Linf": 8 / 255}
    assert paper.data["imagenet"].radii == {"L1": 40.0, "L2": 3.0, "Linf": 4 / 255}
    assert paper.data["imagenet"].source.endswith("&preprocessing=Res256Crop224")


def test_models_of_the_paper_that_robustbench_lacks_have_no_source():
    paper = load_benchmark("paper")
    nameless = [model for model in paper.models if model.source is None]
    assert [model.id for model in nameless] == ["C8", "C9", "C14", "C15", "C16"]
    assert all("not in RobustBench" in model.about for model in nameless)


def test_every_source_of_the_paper_is_in_robustbench():
    if find_spec("robustbench") is None:
        pytest.skip("robustbench is not installed")
    for model in load_benchmark("paper").models:
        if model.source is not None:
            spec = read_spec(model.source, {"robustbench": ()})
            assert robustbench_entry(spec, robustbench_utils(spec))


@pytest.mark.parametrize("name", benchmark_names())
def test_a_shipped_file_is_read_as_it_stands(name):
    text = files("advfrontier").joinpath("benchmarks", f"{name}.toml").read_text(encoding="utf-8")
    written = tomllib.loads(text)
    read = load_benchmark(name)
    assert [model.id for model in read.models] == [model["id"] for model in written["models"]]
    assert read.samples == written["samples"]


def test_a_benchmark_file_has_about_half_the_keys_it_had():
    keys = []
    for table in (Benchmark, BenchmarkData, BenchmarkModel):
        keys += table.model_fields
    assert len(keys) == 15


def test_own_file_is_found_by_its_path(tmp_path):
    mine = load_benchmark(own(tmp_path))
    assert (mine.samples, mine.budgets) == (100, (1000, 2000))
    assert mine.pool == ("fmn", "apgd_min-dlr:restart1")
    assert mine.data["fashion"].radii == {"Linf": 8 / 255, "L2": 1.0}
    assert mine["F1"].source == "zoo:F1"
    with pytest.raises(FrontierError, match="the benchmark has no model 'F3': it has F1, F2"):
        mine["F3"]
    with pytest.raises(
        FrontierError, match="no benchmark 'papre': expected a TOML file, or one of"
    ):
        load_benchmark("papre")


def test_options_replace_what_the_file_says(tmp_path):
    mine = load_benchmark(own(tmp_path))
    assert mine.with_samples(7).samples == 7
    assert mine.with_sources({"F2": "mine.py:f2"})["F2"].source == "mine.py:f2"
    assert mine.with_sources({"F2": "mine.py:f2"})["F1"].source == "zoo:F1"
    with pytest.raises(FrontierError, match="0 samples: expected at least 1"):
        mine.with_samples(0)
    with pytest.raises(FrontierError, match="the benchmark has no model 'F9'"):
        mine.with_sources({"F9": "mine.py:f9"})


def test_parts_of_the_paper_are_its_data_sets():
    paper = load_benchmark("paper")
    part = paper.with_data(["imagenet"])
    assert [model.id for model in part.models] == [f"I{number}" for number in range(1, 11)]
    assert list(part.data) == ["imagenet"]
    with pytest.raises(FrontierError, match="no data 'mnist': it has cifar10, imagenet"):
        paper.with_data(["mnist"])


@pytest.mark.parametrize(
    ("baseline", "attacked"),
    [(None, []), ("all", ["F1", "F2"]), ("train", ["F1"]), ("held-out", ["F2"])],
)
def test_baseline_names_the_models_that_autoattack_attacks(tmp_path, baseline, attacked):
    line = "" if baseline is None else f'baseline = "{baseline}"\n'
    mine = load_benchmark(own(tmp_path, ("samples = 100\n", f"samples = 100\n{line}")))
    assert [model.id for model in mine.models if mine.baseline_on(model)] == attacked


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("samples = 100", ""), "has no samples: expected samples = …"),
        (("samples = 100", "samples = true"), "samples = True: expected it to be a valid integer"),
        (("samples = 100", "samples = 0"), "samples = 0: expected it to be greater than or equal"),
        (("samples = 100", "samples = 1\nspeed = 4"), "unknown key 'speed': expected one of"),
        (("samples = 100", "samples = 1\nseed = 42"), "unknown key 'seed': expected one of"),
        (('"1k", 2000', '"soon"'), "'soon' is not a budget"),
        (('"1k", 2000', '"4k", 2000'), r"budgets: found \[4000, 2000\]: expected them in rising"),
        (('"1k", 2000', "5, 2000"), "budgets 1 = 5: expected it to be greater than or equal to 10"),
        (('"1k", 2000', "15, 2000"), "budgets 1 = 15: expected it to be a multiple of 10"),
        (('"fmn", "apgd_min-dlr:restart1"', ""), "pool = ..: expected it to have at least 1 item"),
        (('"fmn", "apgd_min-dlr:restart1"', '"FMN!"'), "'FMN!' does not name a run"),
        (("L2 = 1", 'L2 = "-8/255"'), "'-8/255' is not a radius|radius '-8/255'"),
        (("L2 = 1", 'L2 = "1/0"'), "'1/0' is not a radius"),
        (("L2 = 1", "L2 = 0"), "radius 0: expected a positive number or a fraction"),
        (("L2 = 1", "L2 = true"), "radius True: expected a positive number"),
        (("L2 = 1", "L2 = [1, 2]"), r"radius \[1, 2\]: expected a positive number"),
        (("L2 = 1", "L3 = 1"), "unknown norm 'L3'"),
        (('data = "fashion"', 'data = "mnist"'), r"models 1 \(F1\): data = 'mnist': expected fash"),
        (('split = "train"', 'split = "test"'), "split = 'test': expected it to be 'train' or"),
        (("batch = 200", "batch = 200\nbatches = 3"), r"models 1 \(F1\): unknown key 'batches'"),
        (('id = "F2"', 'id = "F1"'), "two models have the id 'F1': expected one each"),
        (('id = "F1"', 'id = "../.."'), r"models 1 \(../..\).id = '../..'"),
        (("samples = 100", 'samples = 1\nbaseline = "pgd"'), "baseline = 'pgd': expected it to be"),
        (("samples = 100", "samples = 1\npublished = 1"), "published = 1: expected it to be a val"),
        (("[data.fashion]", "[data.fashion"), "not TOML"),
        (("samples = 100", f"samples = 0x{'f' * 5000}"), "samples = a very large int"),
        (("samples = 100", f"samples = {'9' * 5000}"), "not TOML"),
        (('"fmn", "apgd_min-dlr:restart1"', f'"fmn:target{"9" * 5000}"'), "does not name a run"),
        (("samples = 100", f"samples = {'[' * 3000}{']' * 3000}"), "not TOML"),
        (('"zoo:F1"', '"\udcff"'), "not TOML"),
        (("samples = 100", f"# {'long' * 2**20}"), "is too large"),
    ],
)
def test_a_mistake_is_named_with_what_was_expected(tmp_path, change, message):
    with pytest.raises(FrontierError, match=message):
        load_benchmark(own(tmp_path, change))
