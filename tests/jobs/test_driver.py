"""A time limit: work stops at the next hundred queries, is stored, and resumes bit for bit."""

import re
from importlib.util import find_spec

import numpy as np
import pytest
from small_evaluation import same
from support.ensembles import small_ensemble
from support.models import conv_net, samples

from advfrontier import Evaluation, Machine, evaluate, trace
from advfrontier.errors import Unfinished
from advfrontier.flags import Kind

NET = conv_net((1, 6, 6), classes=10, seed=5)
DATA = samples(NET, 4, (1, 6, 6), seed=5)
UP = {"threads": 1, "until": 0.0}  # over before it began


def calls(work):
    """Call until nothing is left; return the messages on the way, and the result."""
    messages = []
    for _ in range(20):
        try:
            return messages, work()
        except Unfinished as left:
            messages.append(str(left))
    pytest.fail(f"no call finishes: {messages[-1]}")


@pytest.mark.parametrize(
    "ensemble", ["fmn,ddn@300", small_ensemble("L2").at(300)], ids=["runs", "refinement"]
)
def test_every_call_advances_and_the_end_is_the_same(ensemble, tmp_path):
    common = {"norm": "L2", "ensemble": ensemble, "batch_size": 2}
    at_once = evaluate(NET, *DATA, **common, machine=Machine(threads=1))
    messages, done = calls(
        lambda: evaluate(NET, *DATA, **common, out=tmp_path, machine=Machine(**UP))
    )
    assert len(messages) == 5  # a hundred queries of one unit each time, of two units with 300
    assert messages[0] == (
        "time is up: 17% of the queries (0 of 2 units) of Sequential in L2 are done and stored in "
        f"{tmp_path / 'L2'}; to resume, repeat the same call"
    )
    same(done, at_once)
    assert done.counts["attack"] == at_once.counts["attack"]


def test_without_a_folder_the_message_says_that_nothing_is_kept():
    message = (
        "time is up: 12% of the queries (0 of 2 units) of Sequential in L2 are done and not kept, "
        "because no folder was given: give out=FOLDER (on the command line --out), so that the "
        "same call resumes"
    )
    with pytest.raises(Unfinished, match=f"^{re.escape(message)}$"):
        evaluate(NET, *DATA, norm="L2", ensemble="fmn,ddn@400", batch_size=2, machine=Machine(**UP))
    with pytest.raises(Unfinished, match="are done and not kept"):
        trace(NET, *DATA, norm="L2", runs=["fmn", "ddn"], queries=300, machine=Machine(**UP))


def test_interrupted_extension_shows_the_budget_before(tmp_path):
    one_thread = Machine(threads=1)
    common = {"norm": "L2", "batch_size": 2, "out": tmp_path, "machine": one_thread}
    first = evaluate(NET, *DATA, ensemble="fmn,ddn@200", **common)
    with pytest.raises(Unfinished, match=r"time is up: 62% of the queries \(0 of 2 units\)"):
        first.extend("fmn,ddn@400", model=NET, machine=Machine(**UP))
    halfway = Evaluation.load(tmp_path)
    assert not halfway.finished
    assert halfway.ensemble.total == 200
    assert (halfway.distances == first.distances).all()
    (flag,) = [flag for flag in halfway.flags if flag.kind is Kind.INTERRUPTED]
    assert "an extension to 400 queries was interrupted (0 of 2 units are done)" in flag.text


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
def test_time_limit_in_other_processes(where, tmp_path):
    common = {"norm": "L2", "ensemble": "fmn,ddn@400", "batch_size": 1, "out": tmp_path}
    with pytest.raises(Unfinished, match="time is up") as left:
        evaluate(NET, *DATA, **common, machine=Machine(**UP, **where))
    share = int(re.search(r"(\d+)% of the queries", str(left.value))[1])
    assert share in {6, 12}  # a hundred of 400 queries of two of four units; of Ray's two or one
    done = evaluate(NET, *DATA, **common, machine=Machine(threads=1))
    at_once = evaluate(NET, *DATA, **(common | {"out": None}), machine=Machine(threads=1))
    assert np.array_equal(done.distances, at_once.distances)
