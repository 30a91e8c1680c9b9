"""Units of ensembles: finished without a state, and never replaced by shorter ones."""

import pytest
from support.ensembles import small_ensemble
from support.models import conv_net, samples

from advfrontier import Evaluation, Machine, evaluate, trace
from advfrontier.errors import Unfinished


def calls(work):
    """Call until nothing is left; return the messages on the way, and the result."""
    messages = []
    for _ in range(20):
        try:
            return messages, work()
        except Unfinished as left:
            messages.append(str(left))
    pytest.fail(f"no call finishes: {messages[-1]}")


NET = conv_net((1, 6, 6), classes=10, seed=5)


DATA = samples(NET, 4, (1, 6, 6), seed=5)


UP = {"threads": 1, "until": 0.0}  # over before it began


def test_units_without_a_state_are_finished(tmp_path):
    """A trace keeps no states: half of a unit would be repeated."""
    options = {"norm": "L2", "runs": ["fmn", "ddn"], "queries": 300, "out": tmp_path}
    messages, done = calls(lambda: trace(NET, *DATA, **options, machine=Machine(**UP)))
    assert len(messages) == 1
    assert "50% of the queries (1 of 2 units)" in messages[0]
    assert done.runs == ("fmn", "ddn")


def test_finished_unit_without_a_state_is_not_replaced_by_a_shorter_one(tmp_path):
    """Time is up at once, but nothing that could be resumed can be stored on the way."""
    ensemble = small_ensemble("L2")
    machine = Machine(threads=1, keep_state=False)
    common = {"norm": "L2", "out": tmp_path, "machine": machine}
    first = evaluate(NET, *DATA, ensemble=ensemble.at(300), **common)
    longer = first.extend(ensemble, machine=Machine(**UP))
    assert longer.finished
    assert longer.ensemble.total == ensemble.total
    assert (longer.distances <= first.distances).all()
    assert (Evaluation.load(tmp_path).distances_at(300) == first.distances).all()
