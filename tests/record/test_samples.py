"""A record is of one set of samples: others are refused, more are added, and images are read no
more than needed.
"""

import tempfile

import numpy as np
import pytest
import torch
from record_cases import LARGER, OPTIONS, SMALL, same
from support.faults import interrupted
from support.models import Watch, samples
from torch import nn
from torch.utils.data import DataLoader, Dataset

from advfrontier import Ensemble, Evaluation, FrontierError, evaluate, trace
from advfrontier.jobs import setup
from advfrontier.record import Header, Record, images


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
        assert torch.equal(done.clean_logits, model(done.images()))
    with pytest.raises(FrontierError, match="holds a record of 8 other samples"):
        evaluate(model, loader, out=tmp_path / "a" / "L2", **OPTIONS)
    same(Evaluation.load(tmp_path / "a" / "L2"), done)
    assert done.extend(LARGER).finished


def test_an_evaluation_reads_its_header_once_and_hashes_every_image_once(
    problem, tmp_path, monkeypatch
):
    read, hashed = [], []
    from_bytes, sample_ids = Header.from_bytes, images.sample_ids
    monkeypatch.setattr(Header, "from_bytes", lambda *a: [read.append(1), from_bytes(*a)][1])
    for module in ("advfrontier.record.images", "advfrontier.engine.clean"):
        monkeypatch.setattr(
            f"{module}.sample_ids", lambda x: [hashed.append(len(x)), sample_ids(x)][1]
        )
    ensemble = Ensemble.of(
        "nine", "L2", {"fmn": 20, "ddn": 20, "alma": 20, "fmn:restart1": 20, "ddn:target1": 20}
    )
    done = evaluate(*problem, norm="L2", ensemble=ensemble, batch_size=4, out=tmp_path / "a" / "L2")
    assert len(done.distances) == 8
    assert len(done.record.units()) == 2
    assert sum(read) <= 1
    assert sum(hashed) == 8
    assert torch.equal(done.images(), problem[1])


def test_ordinary_inputs(problem, tmp_path):
    model, images, labels = problem
    expected = evaluate(*problem, seed=3, **OPTIONS)
    asked = images.clone().requires_grad_()
    same(
        evaluate(model, asked, labels, seed=np.int64(3), out=tmp_path / "a" / "L2", **OPTIONS),
        expected,
    )
    assert Evaluation.load(tmp_path / "a" / "L2").seed == 3
    same(
        evaluate(model, [(asked[:5], labels[:5]), (asked[5:], labels[5:])], seed=3, **OPTIONS),
        expected,
    )
    plain = {"norm": "L2", "runs": ["fmn"], "queries": 20}
    one, two = (
        trace(model, asked, labels, seed=np.int64(3), **plain),
        trace(model, images, labels, seed=3, **plain),
    )
    assert (one.distances == two.distances).all()


def test_samples_that_are_added_lose_no_count_and_leave_no_file(problem, tmp_path):
    model, images, labels = problem
    watch = Watch.on(model)
    evaluate(model, images[:6], labels[:6], out=tmp_path / "a" / "L2", **OPTIONS)
    grown = evaluate(model, images, labels, out=tmp_path / "a" / "L2", **OPTIONS)
    assert watch.total == sum(grown.counts.values())
    same(grown, evaluate(*problem, **OPTIONS))
    shards = {
        path.name.split("-")[0].removesuffix(".safetensors")
        for path in (tmp_path / "a" / "L2").rglob("*+*")
    }
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
    message = "^$" if wrong == "interrupted" else "."
    with pytest.raises((FrontierError, KeyboardInterrupt), match=message):
        evaluate(
            model if wrong == "interrupted" else nn.Flatten(0),
            images,
            labels,
            machine=interrupted(1),
            **OPTIONS,
        )
    assert list(tmp_path.iterdir()) == []


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
        read.append(sum(tensor.nbytes for tensor in found.tensors().values()))
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
    points = 4 * images[0].nbytes  # of one unit, without its state
    assert points <= max(read) < points + 2000
    assert len(read) <= 2


def test_a_record_that_another_process_begins_meanwhile_is_gone_on_with(
    problem, tmp_path, monkeypatch
):
    tried = setup.try_model

    def slowly(*about):
        monkeypatch.setattr(setup, "try_model", tried)
        evaluate(*problem, out=tmp_path, **OPTIONS)
        return tried(*about)

    monkeypatch.setattr(setup, "try_model", slowly)
    assert evaluate(*problem, out=tmp_path, **OPTIONS).finished
