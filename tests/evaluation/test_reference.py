"""Reference sets of one's own: made of records, shared as a file, ranked with."""

import json

import numpy as np
import pytest
import torch
from support.models import samples, tanh_mlp

from advfrontier import evaluate, rank
from advfrontier.errors import FrontierError
from advfrontier.evaluation.reference import ReferenceSet, make_reference
from advfrontier.evaluation.summary import summarise_all

SHAPE = (1, 4, 4)


def evaluation(name, seed, *, queries=40, labels=None):
    """Evaluate a net of its own on images that all share."""
    images, own = samples(tanh_mlp(SHAPE, classes=4, seed=0), 10, SHAPE, seed=1)
    model = tanh_mlp(SHAPE, classes=4, seed=seed)
    torch.manual_seed(0)
    if seed:
        weights = tanh_mlp(SHAPE, classes=4, seed=0).state_dict()
        for key, value in weights.items():
            weights[key] = value + 0.02 * seed * torch.randn_like(value)
        model.load_state_dict(weights)
    labels = own if labels is None else labels(own)
    return evaluate(model, images, labels, norm="L2", ensemble=f"fmn@{queries}", name=name)


@pytest.fixture(scope="module")
def known():
    return [evaluation("a", 0), evaluation("b", 1)]


@pytest.fixture(scope="module")
def made(known):
    return make_reference(known, data="noise")


def test_set_is_saved_and_loaded(made, known, tmp_path):
    path = made.save(tmp_path / "noise.ref")
    loaded = ReferenceSet.load(path)
    assert loaded == made
    (pool,) = loaded.pools(known).values()
    assert pool.dataset == "noise"
    assert pool.queries == 40
    for one in known:
        assert np.array_equal(pool.distances[one.model], one.distances)
    fields = json.loads((tmp_path / "noise.ref").read_text("utf-8"))
    assert (fields["format"], fields["version"]) == ("advfrontier reference set", 1)


def test_models_are_ranked_with_the_set_as_with_the_records(made, known):
    mine = evaluation("mine", 2)
    ranked = rank([mine], reference=made.pools([mine]))
    expected = rank([mine, *known])
    for table, other in zip(ranked.norms, expected.norms, strict=True):
        ours = {row.model: (row.doi.estimate, row.rank) for row in table.rows}
        theirs = {row.model: (row.doi.estimate, row.rank) for row in other.rows}
        assert ours == theirs
    assert made.notes([mine]) == []
    (summary,) = summarise_all([mine], reference=made.pools([mine]), gallery=0)
    assert summary.standing is not None
    assert summary.standing.row.doi.estimate == ours["mine"][0]


def test_other_ensembles_samples_and_norms_are_named(made):
    longer = evaluation("mine", 2, queries=60)
    assert made.notes([longer]) == []
    images, labels = samples(tanh_mlp(SHAPE, classes=4), 10, SHAPE, seed=1)
    other = evaluate(tanh_mlp(SHAPE, classes=4), images, labels, norm="L2", ensemble="ddn@40")
    (note,) = made.notes([other])
    assert "was evaluated in L2 with another ensemble" in note
    linf = evaluate(tanh_mlp(SHAPE, classes=4), images, labels, norm="Linf", ensemble="fmn@40")
    with pytest.raises(FrontierError, match="has no models in Linf: expected evaluations in L2"):
        made.pools([linf])
    wrong = evaluation("mine", 2, labels=lambda own: (own + 1) % 4)
    with pytest.raises(FrontierError, match="other labels than the reference models"):
        made.pools([wrong])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"version": 2}, r"of version 2, written by advfrontier .*: expected version 1"),
        ({"format": "other"}, "is no reference set: "),
        ({"norms": {}, "extra": 1}, "is no reference set: "),
    ],
)
def test_other_files_are_refused(made, tmp_path, change, message):
    fields = made.model_dump(mode="json") | change
    (tmp_path / "x.ref").write_text(json.dumps(fields), encoding="utf-8")
    with pytest.raises(FrontierError, match=message):
        ReferenceSet.load(tmp_path / "x.ref")


def test_distances_that_do_not_fit_are_refused(made, tmp_path):
    fields = made.model_dump(mode="json")
    fields["norms"]["L2"]["models"]["a"]["distances"].pop()
    (tmp_path / "x.ref").write_text(json.dumps(fields), encoding="utf-8")
    with pytest.raises(FrontierError, match="expected one label and one distance per sample"):
        ReferenceSet.load(tmp_path / "x.ref")
    with pytest.raises(FrontierError, match="no reference set"):
        ReferenceSet.load(tmp_path / "nothing.ref")
    (tmp_path / "x.ref").write_text("[", encoding="utf-8")
    with pytest.raises(FrontierError, match="it is not JSON"):
        ReferenceSet.load(tmp_path / "x.ref")
    with pytest.raises(FrontierError, match="no evaluation to make a reference set of"):
        make_reference([])
