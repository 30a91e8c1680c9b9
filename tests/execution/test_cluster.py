"""Tasks on Ray: on this machine, and on a cluster of two nodes that loses one."""

import os
import signal
import time
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch
from execution_work import Nasty, square, steps, threads
from support.models import conv_net, samples

from advfrontier import Ensemble, evaluate
from advfrontier.errors import FrontierError
from advfrontier.execution import Machine, cluster, execute

TESTS = str(Path(__file__).parent.parent)
LOOPBACK = {
    "node_ip_address": "127.0.0.1"
}  # another test may have imported Ray before, with its own defaults
pytestmark = [
    pytest.mark.skipif(
        find_spec("ray") is None, reason="Ray is not installed: pip install 'advfrontier[ray]'"
    ),
    pytest.mark.filterwarnings("ignore"),  # Ray's own
]


@pytest.fixture
def two_nodes():
    """A head without slots and two nodes with one each, all on the loopback interface."""
    ray = cluster.import_ray("local")
    nodes = import_module("ray.cluster_utils").Cluster(
        initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False, **LOOPBACK}
    )
    assert nodes.address.startswith("127.0.0.1")
    nodes.workers = [nodes.add_node(num_cpus=1, **LOOPBACK) for _ in range(2)]
    nodes.wait_for_nodes()
    yield nodes
    ray.shutdown()
    nodes.shutdown()


def private_folders():
    """The modes of Ray's own folders in the temporary folder."""
    return [path.stat().st_mode & 0o777 for path in Path("/tmp").glob("ray-????????")]  # noqa: S108


@pytest.mark.slow  # the lost node below has tasks, errors and a dead worker too
def test_tasks_errors_and_dead_workers(tmp_path, capfd):
    work, found, modes = Nasty(tmp_path), {}, []
    for outcome in execute(work, (0, 2, 3), Machine(ray="local", workers=2), retries=1):
        found[outcome.task] = outcome
        modes += private_folders()
    assert set(modes) == {0o700}  # nobody else gets at what Ray opens to everybody
    assert private_folders() == []
    assert len(found) == 3
    assert found[2].error.startswith("ValueError: two is not liked")
    assert "process died 2 times" in found[3].error
    assert torch.equal(found[0].result, steps(0))
    assert [len(work.attempts(task)) for task in (0, 2, 3)] == [1, 1, 2]
    assert capfd.readouterr().out == ""


@pytest.mark.slow
def test_overhead_is_small():
    tasks = range(200)
    results, times = [], []
    for outcome in execute(threads, tasks, Machine(ray="local", workers=2, threads=2)):
        results.append(outcome.result)
        times.append(time.monotonic())
    assert results == [2] * len(tasks)
    quickest = min(
        last - first for first, last in zip(times, times[50:], strict=False)
    )  # not while others work
    assert quickest / 50 < 0.02


@pytest.mark.slow  # it takes a cluster of its own
def test_names_of_files_mean_the_same_on_workers_that_began_elsewhere(
    two_nodes, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    Path("nets.py").write_text(
        f"import sys; sys.path.append({TESTS!r})\nfrom support.models import conv_net as net\n"
    )
    model = conv_net()
    images, labels = samples(model, 4, (1, 8, 8))
    ensemble = Ensemble.of("tiny", "L2", {"fmn": 20, "ddn": 20})
    found = evaluate(
        "nets.py:net",
        images,
        labels,
        norm="L2",
        ensemble=ensemble,
        out="mine",
        machine=Machine(threads=1, ray=two_nodes.address),
    )
    assert Path(tmp_path, "mine", "L2", "record.json").exists()
    here = evaluate(model, images, labels, norm="L2", ensemble=ensemble, machine=Machine(threads=1))
    assert (found.distances == here.distances).all()


@pytest.mark.slow
def test_lost_node_loses_nothing(two_nodes, tmp_path):
    work, tasks = Nasty(tmp_path, seconds=0.3), [task for task in range(12) if task != 3]
    found, lost = {}, None
    for outcome in execute(work, tasks, Machine(ray=two_nodes.address), retries=3):
        found[outcome.task] = outcome
        if lost is None and len(found) >= 4:
            lost, worker, node = busy(
                two_nodes, work, [task for task in tasks if task not in found]
            )
            os.kill(
                worker, signal.SIGSTOP
            )  # or it would hand its result over before it sees that its node is gone
            two_nodes.remove_node(node, allow_graceful=False)
            os.kill(worker, signal.SIGKILL)
    assert sorted(found) == tasks
    assert found[2].error.startswith("ValueError")
    assert all(torch.equal(found[task].result, steps(task)) for task in tasks if task != 2)
    assert len(pids(work, 5)) >= 2  # its worker was killed
    assert len(pids(work, lost)) >= 2  # its node was lost


def busy(nodes, work, tasks):
    """A task that is being done, the process that does it and the node that this runs on."""
    while True:
        homes = {node.all_processes["raylet"][0].process.pid: node for node in nodes.workers}
        for task in tasks:
            for pid in pids(work, task):
                if (home := homes.get(parent(pid))) is not None:
                    return task, pid, home


def pids(work, task):
    """The processes that began a task."""
    return [int(path.suffix[1:]) for path in work.attempts(task)]


def parent(pid):
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except FileNotFoundError:
        return None


def test_wrong_address_is_refused_at_once():
    with pytest.raises(FrontierError, match=r"no Ray cluster at '127.0.0.1:1'"):
        list(execute(square, [0], Machine(ray="127.0.0.1:1")))
