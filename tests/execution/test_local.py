"""Tasks in this process and in worker processes."""

import os
import pickle
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from execution_work import Nasty, pid_after, square, steps, threads, visible_gpu

from advfrontier.errors import FrontierError
from advfrontier.execution import Machine, execute, local
from advfrontier.execution.tasks import attempt_packed

HERE = Path(__file__).parent


def by_task(outcomes):
    return {outcome.task: outcome for outcome in outcomes}


def test_every_task_is_done_once_and_an_error_is_reported_by_its_task(tmp_path):
    outcomes = list(execute(Nasty(tmp_path), [0, 1, 2, 4], Machine()))
    assert sorted(outcome.task for outcome in outcomes) == [0, 1, 2, 4]
    found = by_task(outcomes)
    assert found[2].result is None
    assert found[2].error.startswith("ValueError: two is not liked (execution_work.py, line ")
    assert all(
        found[task].error is None and torch.equal(found[task].result, steps(task))
        for task in (0, 1, 4)
    )


def test_killed_worker_costs_a_retry_and_a_task_that_always_kills_is_reported_alone(tmp_path):
    work = Nasty(tmp_path)
    outcomes = list(execute(work, range(10), Machine(workers=2), retries=1))
    assert sorted(outcome.task for outcome in outcomes) == list(range(10))
    found = by_task(outcomes)
    assert found[2].error.startswith("ValueError: two is not liked (execution_work.py, line ")
    assert [
        task
        for task, outcome in found.items()
        if outcome.error and "process died 2 times" in outcome.error
    ] == [3]
    assert all(torch.equal(found[task].result, steps(task)) for task in (0, 1, 4, 5, 6, 7, 8, 9))
    assert [len(work.attempts(task)) for task in (0, 3, 5)] == [1, 2, 2]


def test_outcomes_come_as_they_finish():
    began = time.monotonic()
    outcomes = execute(pid_after, [300.0, 0.0], Machine(workers=2))
    assert next(outcomes).task == 0.0
    outcomes.close()  # and stopping does not wait for the long one
    assert time.monotonic() - began < 200


def test_work_that_ends_the_program_while_it_is_loaded_is_an_outcome():
    content = attempt_packed(sys.exit, pickle.dumps(1))
    assert pickle.loads(content)[1].startswith("SystemExit")  # noqa: S301


@pytest.mark.parametrize("option", [{"workers": 1.5}, {"workers": "2"}, {"threads": 2.0}])
def test_numbers_of_a_machine_are_whole(option):
    with pytest.raises(FrontierError, match=f"{next(iter(option))} is .*: expected a whole number"):
        Machine(**option)


def test_workers_share_the_cores(monkeypatch):
    assert {outcome.result for outcome in execute(threads, [0], Machine(workers=1, threads=3))} == {
        3
    }
    monkeypatch.setattr(local, "cores", lambda: 8)
    assert {outcome.result for outcome in execute(threads, [0, 1], Machine(workers=2))} == {4}
    before = torch.get_num_threads()
    assert {outcome.result for outcome in execute(threads, [0], Machine(threads=before + 1))} == {
        before + 1
    }
    assert torch.get_num_threads() == before


def test_workers_take_turns_at_the_gpus(monkeypatch):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,6")
    assert {
        outcome.result for outcome in execute(visible_gpu, range(6), Machine("cuda", workers=2))
    } == {"4", "6"}


def test_work_that_cannot_be_pickled_is_refused(tmp_path):
    with pytest.raises(FrontierError, match="cannot be sent to worker processes"):
        list(execute(lambda task: task, [1], Machine(workers=1)))
    with pytest.raises(FrontierError, match="workers is -1"):
        execute(square, [1], Machine(workers=-1))
    (good, bad) = sorted(
        execute(square, [2, lambda: 0], Machine(workers=1)),
        key=lambda outcome: outcome.result is None,
    )
    assert good.result == 4
    assert "pickle" in bad.error


def test_script_without_a_guard_is_one_message(tmp_path):
    script = tmp_path / "unguarded.py"
    script.write_text(
        f"import sys; sys.path.insert(0, {str(HERE)!r})\n"
        "from execution_work import square\n"
        "from advfrontier.execution import Machine, execute\n"
        "list(execute(square, [1, 2], Machine(workers=1), retries=0))\n"
    )
    command = [sys.executable, script]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)  # noqa: S603
    assert ended.returncode == 1
    assert "FrontierError: worker processes die before their first task" in ended.stderr


SLEEPY = """
import signal, sys
# A shell in the background has it ignored, and all it starts.
signal.signal(signal.SIGINT, signal.default_int_handler)
sys.path.insert(0, {here!r})
from execution_work import pid_after
from advfrontier.execution import Machine, execute
if __name__ == "__main__":
    for outcome in execute(pid_after, [0.0, 300.0], Machine(workers=1)):
        print(outcome.result, flush=True)
"""


@pytest.mark.skipif(
    not Path("/proc").is_dir(), reason="needs /proc to see whether processes are alive"
)
@pytest.mark.parametrize(
    "stop", [signal.SIGKILL, pytest.param(signal.SIGINT, marks=pytest.mark.slow)]
)
def test_workers_end_with_their_parent(tmp_path, stop):
    script = tmp_path / "sleepy.py"
    script.write_text(SLEEPY.format(here=str(HERE)))
    parent = subprocess.Popen(  # noqa: S603
        [sys.executable, script],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    worker = int(parent.stdout.readline())
    time.sleep(0.3)
    if stop == signal.SIGINT:
        os.killpg(parent.pid, stop)  # as the terminal does: workers get it too
    else:
        parent.kill()
    _, errors = parent.communicate(timeout=60)
    ended = time.monotonic()
    while alive(worker):
        assert time.monotonic() - ended < 10
        time.sleep(0.05)
    if stop == signal.SIGINT:
        assert errors.count("Traceback") == 1  # the parent's own
        assert errors.rstrip().endswith("KeyboardInterrupt")


def alive(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False
