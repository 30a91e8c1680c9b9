"""Time that is up: work ends at the next hundred queries, is stored, and goes on from there bit for bit."""

import re
from importlib.util import find_spec

import numpy as np
import pytest
from support.models import conv_net, samples
from support.races import small_race

from advfrontier import Evaluation, Machine, evaluate, trace
from advfrontier.errors import Unfinished
from advfrontier.jobs import units

NET = conv_net((1, 6, 6), classes=10, seed=5)
DATA = samples(NET, 4, (1, 6, 6), seed=5)
UP = {"threads": 1, "until": 0.0}  # over before it began


def calls(go):
    """Call until nothing is left; what was said on the way."""
    said = []
    for _ in range(20):
        try:
            return said, go()
        except Unfinished as left:
            said.append(str(left))
    pytest.fail(f"does not get on: {said[-1]}")


@pytest.mark.parametrize(
    "ensemble", ["fmn,ddn@600", small_race("L2", total=300)], ids=["ensemble", "race"]
)
def test_every_call_gets_on_and_the_end_is_the_same(ensemble, tmp_path):
    common = {"norm": "L2", "ensemble": ensemble, "batch_size": 2}
    at_once = evaluate(NET, *DATA, **common, machine=Machine(threads=1))
    said, done = calls(lambda: evaluate(NET, *DATA, **common, out=tmp_path, machine=Machine(**UP)))
    units = at_once.record.finished(at_once.ensemble.queries)[1]
    assert (
        len(said) == 3 * units - 1
    )  # a hundred queries of one unit each time, three hundred of each
    assert said[0] == (
        f"time is up: {1 / 3 / units:.0%} of the queries (0 of {units} units) of Sequential in L2 are done and stored "
        f"in {tmp_path / 'L2'}; the same call as before goes on"
    )
    assert (done.distances == at_once.distances).all()
    assert (done.adversarials == at_once.adversarials).all()
    assert done.counts["attack"] == at_once.counts["attack"]


def test_without_a_folder_nothing_is_said_to_be_stored():
    with pytest.raises(Unfinished) as left:
        evaluate(NET, *DATA, norm="L2", ensemble="fmn,ddn@400", machine=Machine(**UP))
    assert str(left.value) == (
        "time is up: 25% of the queries (0 of 2 units) of Sequential in L2 are done and not kept, because no folder "
        "was given: give out=FOLDER (on the command line --out), so that the same call goes on"
    )
    with pytest.raises(Unfinished, match="are done and not kept"):
        trace(NET, *DATA, norm="L2", runs=["fmn", "ddn"], queries=300, machine=Machine(**UP))


def test_an_extension_shows_the_tier_before(tmp_path):
    first = evaluate(
        NET, *DATA, norm="L2", ensemble="fmn,ddn@200", out=tmp_path, machine=Machine(threads=1)
    )
    with pytest.raises(Unfinished, match=r"time is up: 75% of the queries \(1 of 2 units\)"):
        first.extend("fmn,ddn@400", model=NET, machine=Machine(**UP))
    halfway = Evaluation.load(tmp_path)
    assert not halfway.finished
    assert (halfway.distances == first.distances).all()


def test_units_without_a_state_are_finished(tmp_path):
    """A trace keeps no states: half of a unit would be done again."""
    go = lambda: trace(  # noqa: E731
        NET, *DATA, norm="L2", runs=["fmn", "ddn"], queries=300, out=tmp_path, machine=Machine(**UP)
    )
    said, done = calls(go)
    assert len(said) == 1
    assert "50% of the queries (1 of 2 units)" in said[0]
    assert done.runs == ("fmn", "ddn")


@pytest.mark.parametrize(
    "where",
    [
        {"workers": 2},
        pytest.param(
            {"ray": "local", "workers": 1},
            marks=[
                pytest.mark.slow,
                pytest.mark.skipif(find_spec("ray") is None, reason="needs Ray"),
            ],
        ),
    ],
    ids=["workers", "ray"],
)
def test_other_processes(where, tmp_path):
    common = {"norm": "L2", "ensemble": "fmn,ddn@400", "batch_size": 1, "out": tmp_path}
    with pytest.raises(Unfinished, match="time is up") as left:
        evaluate(NET, *DATA, **common, machine=Machine(**UP, **where))
    share = int(re.search(r"(\d+)% of the queries", str(left.value))[1])
    assert share in {
        12,
        25,
    }  # two of eight units begun, a hundred of two hundred queries each; of Ray's two or one
    done = evaluate(NET, *DATA, **common, machine=Machine(threads=1))
    at_once = evaluate(NET, *DATA, **(common | {"out": None}), machine=Machine(threads=1))
    assert np.array_equal(done.distances, at_once.distances)


def test_a_finished_race_without_a_state_is_not_replaced_by_a_shorter_one(tmp_path, monkeypatch):
    """States grow with the runs begun: those of the first hundred queries are kept where later ones were too large."""
    race = small_race("L2", total=600)
    monkeypatch.setattr(units, "_RACE_LIMIT", 12_000)
    first = evaluate(NET, *DATA, norm="L2", ensemble=race, out=tmp_path, machine=Machine(threads=1))
    (unit,) = first.record.units()
    assert not [
        name for name in first.record.read_unit(unit, 600).tensors if name.startswith("state.")
    ]
    early = evaluate(NET, *DATA, norm="L2", ensemble=race.at(100), machine=Machine(threads=1))
    assert [name for name in early.record.read_unit(unit, 100).tensors if name.startswith("state.")]
    longer = first.extend(
        900, machine=Machine(**UP)
    )  # time is up at once, but nothing can be stored on the way
    assert longer.ensemble.total == 900
    assert (longer.distances <= first.distances).all()
    assert (Evaluation.load(tmp_path).distances_at(600) == first.distances).all()
