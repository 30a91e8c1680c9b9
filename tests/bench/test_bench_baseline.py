"""AutoAttack as the baseline of a benchmark: its radii, its batches, and what is stored of it."""

from pathlib import Path

import numpy as np
import pytest
import torch
from bench_nets import FILE as NETS
from bench_running import files, with_baseline

from advfrontier.attacks.autoattack import AtRadius
from advfrontier.bench import Bench, baselines, run_autoattack, run_benchmark, status
from advfrontier.bench.baselines import radii_of
from advfrontier.bench.benchmark import load_benchmark
from advfrontier.errors import FrontierError
from advfrontier.jobs import autoattack as autoattack_job
from advfrontier.jobs.autoattack import read_points
from advfrontier.record import Record
from advfrontier.sources import load_data


def test_autoattack_is_stored_radius_by_radius_and_goes_on(tmp_path, passes):
    samples = load_data("fashion-mnist", samples=4)
    options = {"norm": "Linf", "batch_size": 2}
    place = str(tmp_path / "baseline")
    first = run_autoattack(place, f"{NETS}:plain", samples, radii=[0.5], **options)
    assert first.radii == (0.5,)
    assert first.accuracies == (0.0,)
    assert first.queries[0] > 0
    spent = len(passes)
    written = files(tmp_path)
    both = run_autoattack(place, f"{NETS}:plain", samples, radii=[0.5, 0.6], **options)
    assert both.at(0.5) == first.at(0.5)
    assert both.at(0.55) is None
    assert radii_of(place) == (0.5, 0.6)
    assert read_points(Record.open(place, "baseline")) == both
    kept = {name for name in written if "0.5" in name.parts}
    assert len(kept) == 2
    assert all(files(tmp_path)[name] == written[name] for name in kept)
    assert (
        len(passes) == spent + 1
    )  # AutoAttack passes the model by another way; it is recognised by its answers
    victim = next(Path(place).rglob("0.6/*.safetensors"))
    victim.write_bytes(victim.read_bytes()[:-4])
    with pytest.raises(FrontierError, match=r"lacks AutoAttack at 0\.6 on samples"):
        read_points(Record.open(place, "baseline"))


def test_more_samples_and_damaged_files_do_only_what_is_missing(tmp_path, monkeypatch):
    monkeypatch.setattr(autoattack_job, "attack_at", fast_attack)
    place, options = str(tmp_path / "b"), {"norm": "L2", "batch_size": 2}
    few, more = load_data("fashion-mnist", samples=4), load_data("fashion-mnist", samples=6)
    first = run_autoattack(place, f"{NETS}:plain", few, radii=[0.3], **options)
    written = {name: content for name, content in files(tmp_path).items() if "radii" in name.parts}
    grown = run_autoattack(
        place, f"{NETS}:plain", more, radii=[0.6], **options
    )  # the first radius on the new ones too
    assert grown == run_autoattack(
        str(tmp_path / "c"), f"{NETS}:plain", more, radii=[0.3, 0.6], **options
    )
    assert first.radii == (0.3,)
    assert all(files(tmp_path)[name] == content for name, content in written.items())
    victim = next(Path(place).rglob("0.6/*.safetensors"))
    whole = victim.read_bytes()
    for damaged in (whole[:-4], whole[:-1] + bytes([whole[-1] ^ 1])):
        victim.write_bytes(damaged)
        assert run_autoattack(place, f"{NETS}:plain", more, radii=[0.6], **options) == grown


@pytest.mark.parametrize("radius", [0.0, -1.0, float("inf"), float("nan")])
def test_a_radius_that_is_none_is_refused_before_the_record_keeps_it(tmp_path, monkeypatch, radius):
    monkeypatch.setattr(autoattack_job, "attack_at", fast_attack)
    place, samples = str(tmp_path / "b"), load_data("fashion-mnist", samples=2)
    with pytest.raises(
        FrontierError, match=r"a radius of .*: expected one that is finite and above 0"
    ):
        run_autoattack(place, f"{NETS}:plain", samples, norm="L2", radii=[0.3, radius])
    assert run_autoattack(place, f"{NETS}:plain", samples, norm="L2", radii=[0.3]).radii == (0.3,)


def fast_attack(model, images, labels, *, norm, radius, **_):
    """In place of AutoAttack: breaks whom a step along the gradient of the margin breaks, for ten queries each."""
    x = images.clone().requires_grad_()
    logits = model(x)
    own = logits.gather(1, labels[:, None])[:, 0]
    other = logits.scatter(1, labels[:, None], -torch.inf).amax(1)
    (gradient,) = torch.autograd.grad((own - other).sum(), x)
    unit = gradient / gradient.flatten(1).norm(dim=1)[:, None, None, None]
    robust = (model((images - radius * unit).clamp(0, 1)).argmax(1) == labels) & (
        logits.argmax(1) == labels
    )
    spent = np.full(len(images), 5)
    counts, warned = {"attack": 10 * len(images), "checks": 0}, (f"a warning of {radius:g}",)
    return AtRadius(radius, robust.numpy(), spent, spent, counts, 0.1, warned)


def test_baseline_keeps_its_radii_when_the_frontier_moves(finished, tiny, monkeypatch):
    calls = []
    monkeypatch.setattr(
        autoattack_job,
        "attack_at",
        lambda *a, **k: calls.append(k["radius"]) or fast_attack(*a, **k),
    )
    bench = with_baseline(finished)
    assert sum(part.units for part in status(bench).parts if part.stage == "baseline") == 2 * 10 * 2
    found = run_benchmark(bench)
    assert found.failures == ()
    tables = found.norms["L2"].tables()
    rows = {row["model"]: row for row in tables["robust_accuracy"].records()}
    assert rows["plain"]["epsilon"] == 1.1
    assert rows["plain"]["AutoAttack queries"] == 10
    for row in tables["aoi"].records():
        assert row["AutoAttack"].low <= row["AutoAttack"].value <= row["AutoAttack"].high
    assert set(found.tables()) == {"glance", "pool", "totals", "cases"}
    (told,) = [
        note
        for note in found.norms["L2"].notes
        if note.startswith("AutoAttack on plain: a warning of ")
    ]
    radii = {
        model: radii_of(bench.baseline(bench.benchmark[model], "L2"))
        for model in ("plain", "noisy")
    }
    assert all(1.1 in found_radii for found_radii in radii.values())
    assert told.endswith(f"(and {len(radii['plain']) - 1} more like it)")
    assert len(calls) == 2 * sum(len(found_radii) for found_radii in radii.values())
    assert not [part for part in status(bench).parts if part.left]
    calls.clear()
    more = with_baseline(tiny(pool=("fmn", "ddn", "pdgd", "alma")))
    run_benchmark(more)
    assert calls == []  # another attack moves the frontier, but AutoAttack's points stay true
    assert radii_of(bench.baseline(bench.benchmark["plain"], "L2")) == radii["plain"]


def test_where_nothing_was_broken_the_reference_radius_is_left(tiny, monkeypatch):
    def attack(model, images, labels, *, radius, **_):
        robust, spent = (model(images).argmax(1) == labels).numpy(), np.full(len(images), 5)
        return AtRadius(
            radius, robust, spent, spent, {"attack": 10 * len(images), "checks": 0}, 0.1, ()
        )

    monkeypatch.setattr(autoattack_job, "attack_at", attack)
    bench = with_baseline(tiny(models=("stone",)))
    found = run_benchmark(bench)
    assert found.failures == ()
    assert radii_of(bench.baseline(bench.benchmark["stone"], "L2")) == (1.1,)
    (row,) = found.norms["L2"].tables()["robust_accuracy"].records()
    assert row["AutoAttack"] == row["greedy-80"] > 0
    assert not [part for part in status(bench).parts if part.left]


def test_autoattack_may_have_a_batch_of_its_own(finished, tmp_path, monkeypatch):
    sizes = []
    monkeypatch.setattr(
        autoattack_job,
        "attack_at",
        lambda m, images, *a, **k: sizes.append(len(images)) or fast_attack(m, images, *a, **k),
    )
    with (tmp_path / "tiny.toml").open("a") as file:
        file.write("baseline_batch = 3\n")  # of the last model
    bench = with_baseline(Bench(load_benchmark(tmp_path / "tiny.toml"), str(tmp_path / "out")))
    assert [model.baseline_batch for model in bench.benchmark.models] == [6, 3]
    before = {part.model: part.units for part in status(bench).parts if part.stage == "baseline"}
    assert before == {"plain": 2 * 10, "noisy": 3 * 10}
    found = run_benchmark(bench)
    assert found.failures == ()
    (table,) = found.model_tables().values()
    assert [(row["batch"], row["AutoAttack's batch"]) for row in table.records()] == [
        (6, 6),
        (6, 3),
    ]
    radii = {
        model: len(radii_of(bench.baseline(bench.benchmark[model], "L2")))
        for model in ("plain", "noisy")
    }
    assert sorted(sizes) == sorted([6, 2] * radii["plain"] + [3, 3, 2] * radii["noisy"])
    assert not [part for part in status(bench).parts if part.left]
    assert load_benchmark("paper")["I10"].baseline_batch == 100
    assert load_benchmark("paper")["I9"].baseline_batch == load_benchmark("paper")["I9"].batch


def test_baseline_that_is_not_installed_is_said_to_be_missing(finished, monkeypatch):
    monkeypatch.setattr(baselines, "_EXTRA", "no_such_package")
    found = run_benchmark(with_baseline(finished))
    assert found.failures == ()
    (note,) = found.norms["L2"].notes
    assert "advfrontier[autoattack]" in note
    told = status(with_baseline(finished))
    assert told.queries == 0
    assert "advfrontier[autoattack]" in told.notes[0]
    assert all(subject.baseline is None for subject in found.norms["L2"].subjects)
