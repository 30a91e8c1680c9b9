import tomllib
from importlib.resources import files
from importlib.util import find_spec

import pytest

from advfrontier.bench.benchmark import benchmark_names, load_benchmark
from advfrontier.errors import FrontierError
from advfrontier.evaluation.radii import parse_radii, reference_radii
from advfrontier.sources.libraries import robustbench_entry, robustbench_utils
from advfrontier.sources.reading import read_spec

OWN = """
name = "mine"
samples = 100
seed = 3
norms = ["linf", "L2"]
budgets = ["1k", 2000]
pool = ["fmn", "apgd_min-dlr:restart1"]

[data.fashion]
source = "fashion-mnist"
samples = 50
seed = 7
radii = { Linf = [0.05, "0.1"], L2 = 1 }

[[models]]
id = "F1"
source = "zoo:F1"
data = "fashion"
split = "train"
batch = 200
"""


def own(tmp_path, *changes):
    text = OWN
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    (tmp_path / "mine.toml").write_text(text, encoding="utf-8", errors="surrogateescape")
    return tmp_path / "mine.toml"


def test_the_papers_pool_is_complete():
    paper = load_benchmark("paper")
    assert [model.id for model in paper.models] == [f"C{i}" for i in range(1, 21)] + [
        f"I{i}" for i in range(1, 11)
    ]
    held_out = {"C3", "C4", "C6", "C10", "C12", "C16", "C18", "C19", "I3", "I6", "I8", "I9", "I10"}
    assert {model.id for model in paper.models if model.split == "held-out"} == held_out
    assert sum(model.split == "train" for model in paper.models) == 17
    assert {m.id for m in paper.models if m.batch != (500 if m.id[0] == "C" else 100)} == {
        "C6", "C17", "I5", "I6", "I7", "I8", "I10",
    }  # fmt: skip
    assert (paper.seed, paper.norms, paper.budgets) == (
        42,
        ("L0", "L1", "L2", "Linf"),
        (4000, 8000, 12000),
    )
    assert (paper.pool, paper.baseline) == (("paper",), "autoattack")
    assert paper.data["cifar10"].radii == {"L1": (12.0,), "L2": (0.5,), "Linf": (8 / 255,)}
    assert paper.data["imagenet"].radii == {"L1": (40.0,), "L2": (3.0,), "Linf": (4 / 255,)}
    assert {data.samples for data in paper.data.values()} == {1000}
    assert {m.id for m in paper.models if m.source is None} == {"C8", "C9", "C14", "C15", "C16"}
    assert all("not in RobustBench" in m.origin for m in paper.models if m.source is None)
    assert {m.id for m in paper.models if m.alternatives} == {
        "C3",
        "C10",
        "C17",
        "I3",
        "I4",
        "I9",
        "I10",
    }
    assert all(m.note for m in paper.models if m.alternatives)
    assert paper.data_source("C1") == "cifar10:data"
    assert (
        paper.data_source("I5")
        == "imagefolder:data/imagenet/val?list=robustbench&preprocessing=Res256Crop224"
    )


def test_every_source_of_the_paper_is_in_robustbench(library):
    library("timm")
    if find_spec("robustbench") is None:
        pytest.skip("robustbench is not installed")
    named = [s for m in load_benchmark("paper").models for s in (m.source, *m.alternatives) if s]
    assert len(named) > 30
    for text in named:
        spec = read_spec(text, {"robustbench": ()})
        assert robustbench_entry(spec, robustbench_utils(spec))


def test_names_and_files(tmp_path):
    assert "paper" in benchmark_names()
    mine = load_benchmark(own(tmp_path))
    assert (mine.name, mine.norms, mine.budgets, mine.seed) == (
        "mine",
        ("Linf", "L2"),
        (1000, 2000),
        3,
    )
    assert mine.pool == ("fmn", "apgd_min-dlr:restart1")
    assert (mine.data["fashion"].samples, mine.data["fashion"].seed) == (50, 7)
    assert mine.data["fashion"].radii == {"Linf": (0.05, 0.1), "L2": (1.0,)}
    assert mine["F1"].source == "zoo:F1"
    assert mine.data_source("F1") == "fashion-mnist"
    with pytest.raises(
        FrontierError, match=r"no benchmark 'papre': expected a TOML file, or one of .*paper"
    ):
        load_benchmark("papre")


def test_a_model_may_have_its_own_preprocessing(tmp_path):
    mine = load_benchmark(own(tmp_path, ("batch = 200", 'batch = 200\npreprocessing = "Crop288"')))
    assert mine.data_source("F1") == "fashion-mnist?preprocessing=Crop288"


def test_sources_can_be_named_later():
    paper = load_benchmark("paper").with_sources({"C8": "mine.py:c8"})
    assert paper["C8"].source == "mine.py:c8"
    assert paper["C1"].source == "robustbench:cifar10/Linf/Addepalli2021Towards_RN18"
    with pytest.raises(FrontierError, match="paper has no model 'C99'"):
        paper.with_sources({"C99": "mine.py:c8"})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (('name = "mine"', ""), "has no name: expected name = …"),
        (("seed = 3", ""), "has no seed"),
        (("seed = 3", "seed = true"), "seed = True: expected it to be a valid integer"),
        (("seed = 3", "seed = -3"), "seed = -3: expected it to be greater than or equal to 0"),
        (("seed = 3", "seed = 3\nspeed = 4"), "unknown key 'speed': expected one of name, samples"),
        (('"linf", "L2"', '"linf", "Linf"'), "norms: Linf is named twice"),
        (('"linf", "L2"', '"L3"'), "unknown norm 'L3'"),
        (('"linf", "L2"', "7"), "norms 1: unknown norm 7"),
        (('"1k", 2000', '"soon"'), "'soon' is not a budget"),
        (('"1k", 2000', '"4k", 2000'), "budgets .4000, 2000.: expected them in rising order"),
        (('"1k", 2000', "5, 2000"), "budgets 1 = 5: expected it to be greater than or equal to 10"),
        (('"fmn", "apgd_min-dlr:restart1"', ""), "pool = ..: expected it to have at least 1 item"),
        (('"fmn", "apgd_min-dlr:restart1"', '"FMN!"'), "'FMN!' does not name a run"),
        (
            ("samples = 50", "samples = 0"),
            "data.fashion.samples = 0: expected it to be greater than or equal to 1",
        ),
        (('"0.1"', '"-8/255"'), "radius '-8/255': expected a positive number"),
        (('"0.1"', '"1/0"'), "radius '1/0'"),
        (
            ('data = "fashion"', 'data = "mnist"'),
            r"models 1 \(F1\): data = 'mnist': expected fashion",
        ),
        (
            ('split = "train"', 'split = "test"'),
            "split = 'test': expected it to be 'train' or 'held-out'",
        ),
        (('source = "zoo:F1"', ""), "has neither a source nor an origin"),
        (("batch = 200", "batch = 200\nbatches = 3"), r"models 1 \(F1\): unknown key 'batches'"),
        (
            ("[[models]]", f"[[models]]{OWN.partition('[[models]]')[2]}[[models]]"),
            "two models have the id 'F1'",
        ),
        (
            ("seed = 3", 'seed = 3\nbaseline = "pgd"'),
            "baseline = 'pgd': expected it to be 'autoattack'",
        ),
        (("[data.fashion]", "[data.fashion"), "not TOML"),
        (("[data.fashion]", "data = 3\n[[models]]\n[other]"), "unknown key 'other'"),
        (
            ("[data.fashion]", "[data]\nfashion = 3\n[data.other]"),
            "data.fashion = 3: expected it to be a valid dict",
        ),
        (('id = "F1"', 'id = "../.."'), r"models 1 \(../..\).id = '../..'"),
        (
            ("samples = 100", f"samples = 0x{'f' * 5000}"),
            "samples = a very large int: expected it to be less than",
        ),
        (("samples = 100", f"samples = {'9' * 5000}"), "not TOML"),
        (('"1k", 2000', f'"{"9" * 5000}"'), "is not a budget"),
        (('"fmn", "apgd_min-dlr:restart1"', f'"fmn:target{"9" * 5000}"'), "does not name a run"),
        (('"0.1"', '"1e999999999"'), "radius '1e999999999'"),
        (("seed = 3", f"seed = {'[' * 3000}{']' * 3000}"), "not TOML"),
        (('"mine"', '"\udcff"'), "not TOML"),
        (("seed = 3", f"# {'long' * 2**20}"), "is too large"),
    ],
)
def test_mistakes_are_named(tmp_path, change, message):
    with pytest.raises(FrontierError, match=message):
        load_benchmark(own(tmp_path, change))


def test_the_shipped_files_are_as_they_are_read():
    for name in benchmark_names():
        text = (
            files("advfrontier").joinpath("benchmarks", f"{name}.toml").read_text(encoding="utf-8")
        )
        assert len(load_benchmark(name).models) == len(tomllib.loads(text)["models"])


@pytest.mark.parametrize("norm", ["L1", "L2", "Linf"])
def test_usual_radii_are_the_paper_s(norm):
    for data in load_benchmark("paper").data.values():
        assert tuple(size for _, size in reference_radii(data.source, norm)) == pytest.approx(
            data.radii[norm]
        )
    assert reference_radii("npz:mine.npz", norm) == ()


def test_radii_by_norm_and_by_name():
    text = "1/2, L2=0.5,1,Linf=8/255"
    assert parse_radii(text, "L2") == (("1/2", 0.5), ("0.5", 0.5), ("1", 1.0))
    assert parse_radii(text, "Linf") == (("1/2", 0.5), ("8/255", 8 / 255))
    assert [size for _, size in parse_radii(text)] == [0.5, 0.5, 1.0, 8 / 255]
    assert reference_radii("MNIST", "Linf") == (("0.3", 0.3),)
    assert reference_radii("FashionMNIST", "Linf") == reference_radii("fashion-mnist", "Linf") != ()
    with pytest.raises(FrontierError, match="unknown norm 'L9'"):
        parse_radii("L9=1")


@pytest.mark.parametrize(("name", "models"), [("cifar10", 15), ("imagenet", 10)])
def test_parts_of_the_paper_hold_models_that_can_be_loaded_and_nothing_else_of_it(name, models):
    part, paper = load_benchmark(name), load_benchmark("paper")
    assert (part.name, len(part.models), list(part.data)) == (name, models, [name])
    assert all(
        model.source and model == paper[model.id] and model.data == name for model in part.models
    )
    assert {model.split for model in part.models} == {"train", "held-out"}
    assert (part.budgets, part.norms, part.pool, part.baseline) == (
        paper.budgets, paper.norms, paper.pool, paper.baseline,
    )  # fmt: skip


def test_a_part_says_what_differs(tmp_path):
    (tmp_path / "two.toml").write_text(
        'name = "two"\npart_of = "fashion-mnist"\nmodels = ["F3", "F5"]\nsamples = 7\n'
    )
    two = load_benchmark(tmp_path / "two.toml")
    assert [model.id for model in two.models] == ["F3", "F5"]
    assert (two.data["fashion-mnist"].samples, two.pool) == (7, ("extended",))
    more = two.with_samples(9)
    assert (more.samples, more.data["fashion-mnist"].samples, two.samples) == (9, 9, 7)
    for text, message in (
        ('part_of = "nothing"\nmodels = ["F3"]', "expected a benchmark of the package"),
        ('part_of = "paper"\nmodels = ["F3"]', "expected some of paper"),
        ('part_of = "paper"', "expected some of paper"),
        ('part_of = "paper"\n[[models]]\nid = "C1"', "expected some of paper"),
    ):
        (tmp_path / "wrong.toml").write_text(f'name = "wrong"\n{text}\n')
        with pytest.raises(FrontierError, match=message):
            load_benchmark(tmp_path / "wrong.toml")
    with pytest.raises(FrontierError, match="0 samples: expected at least 1"):
        two.with_samples(0)
