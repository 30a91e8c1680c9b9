"""A record is of one model, one set of samples and one code; whatever else comes to it is refused or done again."""

import os
import pickle
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from support.faults import interrupted
from support.models import Watch, conv_net, samples
from torch import nn
from torch.utils.data import DataLoader, Dataset

from advfrontier import Ensemble, Evaluation, FrontierError, Machine, evaluate, trace
from advfrontier.command import typed
from advfrontier.engine.data import Samples
from advfrontier.flags import Kind, doubts
from advfrontier.jobs.units import UnitPart, UnitTask
from advfrontier.record import Header, Record, identity, images, units
from advfrontier.solvers import Fmn
from advfrontier.sources import load_model

SHAPE = (1, 6, 6)
SMALL = Ensemble.of("small", "L2", {"fmn": 20, "ddn": 20})
LARGER = Ensemble.of("larger", "L2", {"fmn": 40, "ddn": 40, "alma": 20})
OPTIONS = {"norm": "L2", "ensemble": SMALL, "batch_size": 4}
NETS = """
import sys
sys.path.insert(0, {tests!r})
import torch
from torch import nn
from support.models import conv_net

def function():
    net = conv_net({shape}, classes=10, seed=5)
    return lambda x: net(x)

def another_function():
    net = conv_net({shape}, classes=10, seed=6)
    return lambda x: net(x)

def unseeded():
    return nn.Sequential(nn.Flatten(), nn.Linear(36, 10))

class Scaled(nn.Module):
    def __init__(self, process):
        super().__init__()
        self.net = conv_net({shape}, classes=10, seed=5)
        self.scale = 1.0 if process == {process} else 0.3

    def forward(self, x):
        return self.net(self.scale * x)

def other_elsewhere():
    import os
    return Scaled(os.getpid())
"""


@pytest.fixture(scope="module")
def problem():
    model = conv_net(SHAPE, classes=10, seed=5)
    images, labels = samples(model, 8, SHAPE, seed=5)
    return model, images, labels


@pytest.fixture
def nets(tmp_path):
    tests = str(Path(__file__).parent.parent)
    (tmp_path / "nets.py").write_text(NETS.format(tests=tests, shape=SHAPE, process=os.getpid()))
    return f"{tmp_path}/nets.py"


def contents(place):
    return {path: path.read_bytes() for path in Path(place).rglob("*") if path.is_file()}


def same(one, two):
    assert one.distances.tobytes() == two.distances.tobytes()
    assert torch.equal(one.adversarials, two.adversarials)
    assert one.winners == two.winners


# Interrupted


@pytest.mark.parametrize("after", [0, 1, 5])
def test_an_interrupted_extend_shows_the_tier_before_and_goes_on(problem, tmp_path, after):
    model, images, labels = problem
    watch = Watch.on(model)
    held = evaluate(model, images, labels, out=tmp_path / "a" / "L2", **OPTIONS)
    before = held.distances
    with typed("advfrontier extend a --tier 8k"), pytest.raises(KeyboardInterrupt):
        held.extend(LARGER, machine=interrupted(after))
    half = Evaluation.load(tmp_path / "a" / "L2")
    assert not half.finished
    assert half.ensemble == SMALL
    assert half.distances.tobytes() == before.tobytes()
    (flag,) = half.flags
    assert flag.kind == Kind.INTERRUPTED
    assert not flag.doubtful
    assert f"to 100 queries was interrupted ({after} of 6 units are done): these are the figures of the 40" in flag.text
    assert "to go on, type advfrontier extend a --tier 8k" in flag.text
    with torch.no_grad():  # the points may be nearer by now, and are misclassified all the same
        assert (model(half.adversarials).argmax(1) != labels).all()
    whole = half.extend(LARGER, model=model)
    assert whole.finished
    assert whole.flags == ()
    assert whole.counts["attack"] == 8 * LARGER.total
    assert watch.total - 8 == sum(whole.counts.values())  # the points were looked at above
    same(whole, evaluate(*problem, **OPTIONS | {"ensemble": LARGER}))
    assert (whole.distances <= before).all()


def test_an_interrupted_extend_also_goes_on_by_evaluating_further(problem, tmp_path):
    evaluate(*problem, out=tmp_path / "a" / "L2", **OPTIONS)
    with pytest.raises(KeyboardInterrupt):
        Evaluation.load(tmp_path / "a" / "L2").extend(LARGER, model=problem[0], machine=interrupted(1))
    with pytest.raises(FrontierError, match=r"holds 100 queries per sample, unfinished \(the same call.*which the"):
        evaluate(*problem, out=tmp_path / "a" / "L2", **OPTIONS)
    done = evaluate(*problem, out=tmp_path / "a" / "L2", **OPTIONS | {"ensemble": LARGER})
    same(done, evaluate(*problem, **OPTIONS | {"ensemble": LARGER}))


def test_an_extend_that_did_nothing_yet_can_be_taken_back(problem, tmp_path):
    held = evaluate(*problem, out=tmp_path / "a" / "L2", **OPTIONS)
    with pytest.raises(KeyboardInterrupt):
        held.extend(LARGER, machine=interrupted(0))
    same(evaluate(*problem, out=tmp_path / "a" / "L2", **OPTIONS), evaluate(*problem, **OPTIONS))
    assert Evaluation.load(tmp_path / "a" / "L2").ensemble == SMALL


def test_all_commands_that_made_a_record_are_kept(problem, tmp_path):
    with typed("advfrontier evaluate"):
        held = evaluate(*problem, out=tmp_path / "a" / "L2", **OPTIONS)
    with typed("advfrontier extend a"):
        held.extend(LARGER)
        again = Evaluation.load(tmp_path / "a" / "L2").extend(LARGER, model=problem[0])
    assert again.commands == ("advfrontier evaluate", "advfrontier extend a")


def test_an_interrupted_evaluate_says_its_command(problem, tmp_path):
    with typed("advfrontier evaluate net"), pytest.raises(KeyboardInterrupt):
        evaluate(*problem, out=tmp_path / "a" / "L2", machine=interrupted(1), **OPTIONS)
    with pytest.raises(FrontierError, match="1 of 4 units are done; to go on, type advfrontier evaluate net"):
        Evaluation.load(tmp_path / "a" / "L2").aurec()
    evaluate(*problem, out=tmp_path / "a" / "L2", **OPTIONS)
    assert Evaluation.load(tmp_path / "a" / "L2").commands == ("advfrontier evaluate net",)


def test_points_of_a_record_that_was_extended_meanwhile_are_not_shown_for_the_shorter_ones(problem, tmp_path):
    evaluate(*problem, out=tmp_path / "a" / "L2", **OPTIONS)
    reader = Evaluation.load(tmp_path / "a" / "L2")
    expected = reader.distances
    reader = Evaluation.load(tmp_path / "a" / "L2")
    Evaluation.load(tmp_path / "a" / "L2").extend(LARGER, model=problem[0])
    assert (reader.distances == expected).all()  # a prefix of what is there now
    with pytest.raises(FrontierError, match="was extended since it was opened"):
        reader.adversarials  # noqa: B018


# Another model


def refused(message, place, function: Callable[[], object]):
    before = contents(place)
    with pytest.raises(FrontierError, match=message):
        function()
    assert contents(place) == before


def test_a_function_is_recognised_by_its_answers(problem, tmp_path):
    model, images, labels = problem
    other = conv_net(SHAPE, classes=10, seed=6)

    def wrapped(inner):
        return lambda x: inner(x) + 0

    one = evaluate(wrapped(model), images, labels, out=tmp_path / "a" / "L2", **OPTIONS)
    two = evaluate(wrapped(model), images, labels, out=tmp_path / "a" / "L2", **OPTIONS)
    same(one, two)
    assert one.counts["checks"] == 8 * 8 + 4
    assert two.counts["checks"] == one.counts["checks"] + 8  # looked at again when the record was opened
    refused(
        "another model, which answers differently",
        tmp_path / "a" / "L2",
        lambda: evaluate(wrapped(other), images, labels, out=tmp_path / "a" / "L2", **OPTIONS),
    )


def test_a_function_that_a_source_names_is_recognised_too(problem, nets, tmp_path):
    _, images, labels = problem
    one = evaluate(f"{nets}:function", images, labels, out=tmp_path / "a" / "L2", **OPTIONS)
    same(one, evaluate(f"{nets}:function", images, labels, out=tmp_path / "a" / "L2", **OPTIONS))
    refused(
        "another model, which answers differently",
        tmp_path / "a" / "L2",
        lambda: evaluate(f"{nets}:another_function", images, labels, out=tmp_path / "a" / "L2", **OPTIONS),
    )


class Scaled(nn.Module):
    def __init__(self, net, scale):
        super().__init__()
        self.net, self.scale = net, scale

    def forward(self, x):
        return self.net(self.scale * x)


def test_a_module_that_does_something_else_with_the_same_numbers_is_refused(problem, tmp_path):
    model, images, labels = problem
    evaluate(Scaled(model, 1.0), images, labels, out=tmp_path / "a" / "L2", **OPTIONS)
    refused(
        "another model, which answers differently",
        tmp_path / "a" / "L2",
        lambda: evaluate(Scaled(model, 0.3), images, labels, out=tmp_path / "a" / "L2", **OPTIONS),
    )
    refused(
        "another model, which answers differently",
        tmp_path / "a" / "L2",
        lambda: Evaluation.load(tmp_path / "a" / "L2").extend(LARGER, model=Scaled(model, 0.3)),
    )


def test_double_precision_goes_on(problem, tmp_path):
    _, images, labels = problem
    double = conv_net(SHAPE, classes=10, seed=5).double()
    options = {"out": tmp_path / "a" / "L2", "machine": Machine(dtype="float64"), **OPTIONS}
    one = evaluate(lambda x: double(x) + 0, images, labels, **options)
    two = evaluate(lambda x: double(x) + 0, images, labels, **options)
    assert one.adversarials.dtype == torch.float64
    same(one, two)


class Noisy(nn.Module):
    def __init__(self, net):
        super().__init__()
        self.net = net

    def forward(self, x):
        return self.net(x) + 3 * torch.randn(len(x), 10)


def test_a_random_model_can_be_gone_on_with(problem, tmp_path):
    model, images, labels = problem
    torch.manual_seed(0)
    evaluate(Noisy(model), images, labels, out=tmp_path / "a" / "L2", **OPTIONS)
    assert evaluate(Noisy(model), images, labels, out=tmp_path / "a" / "L2", **OPTIONS).finished


@pytest.mark.parametrize("factory", ["unseeded", "other_elsewhere"])
def test_workers_that_load_another_model_say_so(problem, nets, tmp_path, factory):
    _, images, _ = problem
    torch.manual_seed(0)
    labels = load_model(f"{nets}:{factory}")(images).argmax(1)
    torch.manual_seed(0)
    message = rf"4 of 4 units failed.*nets.py:{factory} is another model in this worker process.*set its seed"
    with pytest.raises(FrontierError, match=message):
        evaluate(f"{nets}:{factory}", images, labels, out=tmp_path / "a" / "L2", machine=Machine(workers=1, threads=1),
                 **OPTIONS)  # fmt: skip
    assert Record.find(tmp_path / "a" / "L2").units() == {}


# Units of another record


def test_units_without_their_record_are_refused(problem, tmp_path):
    evaluate(*problem, out=tmp_path / "a" / "L2", **OPTIONS)
    (tmp_path / "a" / "L2" / "record.json").unlink()
    other = conv_net(SHAPE, classes=10, seed=6)
    refused(
        r"holds clean.safetensors and 2 more, but no record\.json: expected an empty folder",
        tmp_path / "a" / "L2",
        lambda: evaluate(other, *problem[1:], out=tmp_path / "a" / "L2", **OPTIONS),
    )


def foreign(problem):
    model, images, labels = problem
    other = conv_net(SHAPE, classes=10, seed=6)
    return {
        "another model": ((other, images, other(images).argmax(1)), {}),
        "other images": ((model, 1 - images, model(1 - images).argmax(1)), {}),
        "another seed": (problem, {"seed": 7}),
        "another precision": (
            (conv_net(SHAPE, classes=10, seed=5).double(), images, labels),
            {"machine": Machine(dtype="float64")},
        ),
    }


@pytest.mark.parametrize("what", ["another model", "other images", "another seed", "another precision"])
def test_a_unit_of_another_record_is_named_and_done_again(problem, tmp_path, what):
    own = evaluate(*problem, out=tmp_path / "a" / "L2", **OPTIONS)
    arguments, options = foreign(problem)[what]
    evaluate(*arguments, out=tmp_path / "b" / "L2", **OPTIONS, **options)
    file = "units/ddn/00004+004-0020.safetensors"
    right = (tmp_path / "a" / "L2" / file).read_bytes()
    shutil.copy(tmp_path / "b" / "L2" / file, tmp_path / "a" / "L2" / file)
    refused(
        "lacks ddn on samples 4–7 .*00004.004-0020.safetensors belongs to another record",
        tmp_path / "a" / "L2",
        lambda: Evaluation.load(tmp_path / "a" / "L2").distances,
    )
    same(evaluate(*problem, out=tmp_path / "a" / "L2", **OPTIONS), evaluate(*problem, **OPTIONS))
    assert len((tmp_path / "a" / "L2" / file).read_bytes()) == len(right)
    same(Evaluation.load(tmp_path / "a" / "L2"), own)


def test_a_unit_of_another_record_is_not_gone_on_with(problem, tmp_path):
    other = conv_net(SHAPE, classes=10, seed=6)
    held = evaluate(*problem, out=tmp_path / "a" / "L2", **OPTIONS)
    evaluate(other, problem[1], other(problem[1]).argmax(1), out=tmp_path / "b" / "L2", **OPTIONS)
    for path in (tmp_path / "b" / "L2" / "units").rglob("*.safetensors"):
        shutil.copy(path, tmp_path / "a" / "L2" / path.relative_to(tmp_path / "b" / "L2"))
    same(held.extend(LARGER), evaluate(*problem, **OPTIONS | {"ensemble": LARGER}))


@pytest.mark.parametrize("change", ["images", "labels", "fewer"])
def test_other_samples_are_refused_when_the_clean_pass_is_gone(problem, tmp_path, change):
    model, images, labels = problem
    evaluate(*problem, out=tmp_path / "a" / "L2", **OPTIONS)
    clean = tmp_path / "a" / "L2" / "clean.safetensors"
    clean.write_bytes(clean.read_bytes()[:-5])
    others = {
        "images": (1 - images, model(1 - images).argmax(1)),
        "labels": (images, (labels + 1) % 10),
        "fewer": (images[:4], labels[:4]),
    }
    with pytest.raises(FrontierError, match="8 other samples"):
        evaluate(model, *others[change], out=tmp_path / "a" / "L2", **OPTIONS)
    same(evaluate(*problem, out=tmp_path / "a" / "L2", **OPTIONS), evaluate(*problem, **OPTIONS))


# Data that changes


class Augmented(Dataset):
    def __init__(self, images, labels):
        self.images, self.labels = images, labels

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, place):
        image = self.images[place]
        return (image + 0.05 * torch.randn(image.shape)).clamp(0, 1), int(self.labels[place])


def test_data_that_is_other_each_time_is_read_once_and_then_kept(problem, tmp_path):
    model, pixels, labels = problem
    torch.manual_seed(1)
    loader = DataLoader(Augmented(pixels, labels), batch_size=4)
    done = evaluate(model, loader, out=tmp_path / "a" / "L2", **OPTIONS)
    with torch.no_grad():
        assert torch.equal(done.clean_logits, model(done.originals))
    with pytest.raises(FrontierError, match="holds a record of 8 other samples"):
        evaluate(model, loader, out=tmp_path / "a" / "L2", **OPTIONS)
    same(Evaluation.load(tmp_path / "a" / "L2"), done)
    assert done.extend(LARGER).finished


@pytest.mark.parametrize("reads", [2, 3, 4])
def test_data_that_changes_later_is_noticed_by_whoever_reads_it(problem, tmp_path, reads, monkeypatch):
    model, images_, labels = problem
    monkeypatch.setattr(images, "_LIMIT", 0)  # nothing stays in memory, so every unit reads again
    left = iter(range(reads))

    def read(rows):
        return images_[rows] if next(left, None) is not None else 1 - images_[rows]

    with pytest.raises(FrontierError, match="turning gives other images than when the record was begun"):
        trace(model, Samples("turning", labels, read), out=tmp_path / "a" / "L2", norm="L2", runs=["fmn"], batch_size=4)


def test_an_evaluation_reads_its_header_once_and_hashes_every_image_once(problem, tmp_path, monkeypatch):
    read, hashed = [], []
    from_bytes, sample_ids = Header.from_bytes, images.sample_ids
    monkeypatch.setattr(Header, "from_bytes", lambda *a: [read.append(1), from_bytes(*a)][1])
    for module in ("advfrontier.record.images", "advfrontier.jobs.setup", "advfrontier.engine.clean"):
        monkeypatch.setattr(f"{module}.sample_ids", lambda x: [hashed.append(len(x)), sample_ids(x)][1])
    ensemble = Ensemble.of("nine", "L2", {"fmn": 20, "ddn": 20, "alma": 20, "fmn:restart1": 20, "ddn:target1": 20})
    done = evaluate(*problem, norm="L2", ensemble=ensemble, batch_size=4, out=tmp_path / "a" / "L2")
    assert len(done.distances) == 8
    assert torch.equal(done.originals, problem[1])
    assert len(done.record.units()) == 10
    assert sum(read) <= 1
    assert sum(hashed) == 8


# Other code


def edit_record(place, **changes):
    """Write another header, with the checksum that belongs to it."""
    record = Record.find(place)
    record.change(lambda _: changes)
    return record


def test_other_code_is_not_mixed_in_but_its_record_can_be_read(problem, tmp_path):
    evaluate(*problem, out=tmp_path / "a" / "L2", **OPTIONS)
    old = Record.find(tmp_path / "a" / "L2")
    contents_of = {unit: old.read_unit(unit, queries) for unit, queries in old.units().items()}
    clean = old.clean
    record = edit_record(tmp_path / "a" / "L2", code="0" * 32)
    for unit, stored in contents_of.items():  # as that code would have marked them
        solver = record.header.solvers[unit.run]
        record.write_clean(clean)
        record.write_file(unit.file(stored.queries), stored.tensors, stored.words, record.unit_mark(unit, solver))
    own = evaluate(*problem, **OPTIONS)
    same(Evaluation.load(tmp_path / "a" / "L2"), own)
    same(evaluate(*problem, out=tmp_path / "a" / "L2", **OPTIONS), own)  # nothing is to be computed
    message = "was computed by other code: advfrontier .* 00000000; here is .*choose a new folder.*still be read"
    with pytest.raises(FrontierError, match=message):
        evaluate(*problem, out=tmp_path / "a" / "L2", **OPTIONS | {"ensemble": LARGER})
    assert Evaluation.load(tmp_path / "a" / "L2").ensemble == SMALL
    same(Evaluation.load(tmp_path / "a" / "L2"), own)
    more = torch.cat([problem[1], 1 - problem[1]])
    with pytest.raises(FrontierError, match=message):
        evaluate(problem[0], more, torch.cat([problem[2], problem[2]]), out=tmp_path / "a" / "L2", **OPTIONS)
    same(Evaluation.load(tmp_path / "a" / "L2"), own)


def test_the_digest_of_the_code_is_that_of_its_files(tmp_path, monkeypatch):
    package = Path(identity.__file__).parent.parent
    shutil.copytree(package, tmp_path / "advfrontier", ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.setattr(identity, "files", lambda _: tmp_path / "advfrontier")
    digest = identity.code_digest.__wrapped__
    assert digest() == identity.code_digest()
    (tmp_path / "advfrontier" / "report" / "page.py").write_text("")
    assert digest() == identity.code_digest()
    for deciding in ("solvers/fmn.py", "pool/catalogue.py", "engine/unit.py", "threat/norms.py"):
        edited = tmp_path / "advfrontier" / deciding
        before = edited.read_text()
        edited.write_text(before + "\n")
        assert digest() != identity.code_digest()
        edited.write_text(before)


def test_a_worker_with_other_code_says_so(problem, tmp_path, monkeypatch):
    done = evaluate(*problem, out=tmp_path / "a" / "L2", **OPTIONS)
    work = pickle.loads(pickle.dumps(done._job))  # noqa: S301  # as a worker gets it
    monkeypatch.setattr("advfrontier.jobs.units.code_digest", lambda: "1" * 32)
    with pytest.raises(FrontierError, match=r"other code of advfrontier \(11111111, not"):
        work(UnitTask((UnitPart(units.UnitName("alma", 0, 4), 20),)))


def test_solvers_with_other_parameters_are_refused_and_used_ones_recorded(problem, tmp_path):
    options = {"norm": "L2", "queries": 20, "batch_size": 4, "out": tmp_path / "a" / "L2"}
    trace(*problem, runs=["ddn", "fmn:restart1"], **options)
    held = Record.find(tmp_path / "a" / "L2").header.solvers
    assert set(held) == {"ddn", "fmn"}
    assert held["fmn"] == repr(Fmn())
    refused(
        r"another solver of fmn: Fmn\(alpha=None.*, not Fmn\(alpha=1",
        tmp_path / "a" / "L2",
        lambda: trace(*problem, runs=["fmn"], solvers={"fmn": Fmn(alpha=1.0)}, **options),
    )
    edit_record(tmp_path / "a" / "L2", solvers=held | {"fmn": "Fmn(alpha=7)"})
    refused(
        r"another solver of fmn: Fmn\(alpha=7\), not Fmn\(alpha=None",
        tmp_path / "a" / "L2",
        lambda: trace(*problem, runs=["ddn"], **options),
    )


def test_another_version_of_what_rounds_is_a_flag(problem, tmp_path):
    evaluate(*problem, out=tmp_path / "a" / "L2", **OPTIONS)
    edit_record(tmp_path / "a" / "L2", versions=identity.versions().model_copy(update={"torch": "1.0"}))
    assert evaluate(*problem, out=tmp_path / "a" / "L2", **OPTIONS).flags == ()  # nothing was computed by the newer one
    done = evaluate(*problem, out=tmp_path / "a" / "L2", **OPTIONS | {"ensemble": LARGER})
    text = f"computed with several versions of torch (1.0, {torch.__version__}), which may round differently"
    assert [flag.text for flag in done.flags] == [text]
    assert doubts(done.flags) == ()  # which is no reason to rank it in brackets
    again = evaluate(*problem, out=tmp_path / "a" / "L2", **OPTIONS | {"ensemble": LARGER})
    assert again.flags == done.flags
    assert len(again.record.header.later) == 1


# What is ordinary


def test_ordinary_inputs(problem, tmp_path):
    model, images, labels = problem
    expected = evaluate(*problem, seed=3, **OPTIONS)
    asked = images.clone().requires_grad_()
    same(evaluate(model, asked, labels, seed=np.int64(3), out=tmp_path / "a" / "L2", **OPTIONS), expected)
    assert Evaluation.load(tmp_path / "a" / "L2").seed == 3
    same(evaluate(model, [(asked[:5], labels[:5]), (asked[5:], labels[5:])], seed=3, **OPTIONS), expected)
    plain = {"norm": "L2", "runs": ["fmn"], "queries": 20}
    one, two = trace(model, asked, labels, seed=np.int64(3), **plain), trace(model, images, labels, seed=3, **plain)
    assert (one.distances == two.distances).all()


# What is left behind


def test_samples_that_are_added_lose_no_count_and_leave_no_file(problem, tmp_path):
    model, images, labels = problem
    watch = Watch.on(model)
    evaluate(model, images[:6], labels[:6], out=tmp_path / "a" / "L2", **OPTIONS)
    grown = evaluate(model, images, labels, out=tmp_path / "a" / "L2", **OPTIONS)
    assert watch.total == sum(grown.counts.values())
    same(grown, evaluate(*problem, **OPTIONS))
    shards = {path.name.split("-")[0].removesuffix(".safetensors") for path in (tmp_path / "a" / "L2").rglob("*+*")}
    assert shards == {"00000+004", "00004+004"}
    spent = grown.counts
    again = evaluate(model, images, labels, out=tmp_path / "a" / "L2", **OPTIONS)
    assert again.counts == {**spent, "checks": spent["checks"] + 8}


def test_samples_added_to_a_trace_lose_no_count(problem, tmp_path):
    model, images, labels = problem
    watch = Watch.on(model)
    options = {"norm": "L2", "runs": ["fmn", "ddn"], "queries": 20, "batch_size": 4}
    for count in (6, 8):
        done = trace(model, images[:count], labels[:count], out=tmp_path / "a" / "L2", **options)
    assert watch.total == sum(done.counts.values())


@pytest.mark.parametrize("wrong", ["model", "interrupted"])
def test_what_fails_without_a_folder_leaves_none(problem, tmp_path, monkeypatch, wrong):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    model, images, labels = problem
    with pytest.raises((FrontierError, KeyboardInterrupt)):
        evaluate(model if wrong == "interrupted" else nn.Flatten(0), images, labels, machine=interrupted(1), **OPTIONS)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("damage", ["lost", "cut", "changed", "of another record"])
def test_images_that_are_damaged_are_healed_when_the_images_are_at_hand(problem, tmp_path, damage):
    model, pixels, labels = problem
    evaluate(*problem, out=tmp_path / "a" / "L2", **OPTIONS)
    evaluate(model, 1 - pixels, labels, out=tmp_path / "b" / "L2", **OPTIONS)
    victim, right = tmp_path / "a" / "L2" / "images" / "00004+004.safetensors", None
    right = victim.read_bytes()
    if damage == "lost":
        victim.unlink()
    elif damage == "cut":
        victim.write_bytes(right[:-7])
    elif damage == "changed":
        victim.write_bytes(right[:-7] + bytes([right[-7] ^ 1]) + right[-6:])
    else:
        shutil.copy(tmp_path / "b" / "L2" / "images" / victim.name, victim)
    images._KEPT.clear()
    with pytest.raises(FrontierError, match=r"does not hold the images of samples 4–7|gives other images"):
        Evaluation.load(tmp_path / "a" / "L2").adversarials  # noqa: B018
    evaluate(*problem, out=tmp_path / "a" / "L2", **OPTIONS)
    assert victim.stat().st_size == len(right)
    images._KEPT.clear()
    assert torch.equal(Evaluation.load(tmp_path / "a" / "L2").originals, pixels)


def test_a_clean_pass_of_another_record_is_not_taken_for_its_own(problem, tmp_path):
    model, pixels, _ = problem
    own = evaluate(*problem, out=tmp_path / "a" / "L2", **OPTIONS)
    evaluate(model, 1 - pixels, model(1 - pixels).argmax(1), out=tmp_path / "b" / "L2", **OPTIONS)
    shutil.copy(tmp_path / "b" / "L2" / "clean.safetensors", tmp_path / "a" / "L2" / "clean.safetensors")
    with pytest.raises(FrontierError, match=r"lacks its clean pass .*belongs to another record"):
        Evaluation.load(tmp_path / "a" / "L2").distances  # noqa: B018
    same(evaluate(*problem, out=tmp_path / "a" / "L2", **OPTIONS), own)


# What is read


def test_chosen_rows_are_read_alone(problem, tmp_path):
    evaluate(*problem, out=tmp_path / "a" / "L2", **OPTIONS)
    whole = Evaluation.load(tmp_path / "a" / "L2")
    rows = [7, 0, 3, 3]
    chosen = Evaluation.load(tmp_path / "a" / "L2")
    assert torch.equal(chosen.points(rows), whole.adversarials[rows])
    assert torch.equal(chosen.images(rows), problem[1][rows])
    assert not {"originals", "adversarials"} & set(chosen.__dict__)


def test_figures_do_not_read_points_or_states(tmp_path, monkeypatch):
    model = nn.Sequential(nn.Flatten(), nn.Linear(3 * 32 * 32, 10))
    images, labels = samples(model, 8, (3, 32, 32), seed=1)
    evaluate(model, images, labels, out=tmp_path / "a" / "L2", **OPTIONS)
    read, original = [], Record.read_unit

    def noted(self, unit, queries, names=None):
        found = original(self, unit, queries, names)
        read.append(sum(tensor.nbytes for tensor in found.tensors.values()))
        return found

    monkeypatch.setattr(Record, "read_unit", noted)
    held = Evaluation.load(tmp_path / "a" / "L2")
    assert held.curve().at(0) == 1
    assert held.counts["attack"] == 8 * SMALL.total
    assert held.predictions.shape == (8,)
    assert held.distances_at(20).shape == (8,)
    assert sum(read) < 2000
    read.clear()
    held.points([0, 1])
    assert max(read) == 4 * images[0].nbytes  # the points of one unit, and not its state
    assert len(read) <= 2
