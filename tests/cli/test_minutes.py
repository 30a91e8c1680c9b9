"""--max-minutes: exit code 75, one sentence, and the same command resumes."""

import re

from advfrontier import Evaluation

SOON = ["--max-minutes", "1e-9"]


def test_evaluate_and_extend_stop_and_resume(folder, run, evaluate, capsys):
    words = ["nets.py:net", "--norm", "L2,Linf", "--queries", "200", "-o", "a", "--no-report"]
    codes, said = [], []
    for _ in range(3):
        codes.append(evaluate(*words, *SOON))
        said.append(capsys.readouterr().err)
    assert codes == [75, 75, 0]  # half of L2, the other half and half of Linf, the rest
    assert re.match(
        r"advfrontier: time is up: 50% of the queries \(0 of 1 units\) of nets.py:net in L2 are "
        r"done and stored "
        r"in \S+/a/L2; to resume, type advfrontier evaluate nets.py:net .* --max-minutes 1e-9 "
        r"--workers 0\n",
        said[0][said[0].index("advfrontier: ") :],
    )
    before = Evaluation.load("a/L2").distances
    more = [
        "extend",
        "a",
        "--model",
        "nets.py:net",
        "--queries",
        "500",
        "--workers",
        "0",
        "--no-report",
    ]
    assert run(*more, *SOON) == 75
    assert (Evaluation.load("a/L2").distances == before).all()
    assert run(*more) == 0
    assert (
        evaluate("nets.py:net", "--norm", "L2", "--queries", "500", "-o", "b", "--no-report") == 0
    )
    assert (Evaluation.load("a/L2").distances == Evaluation.load("b/L2").distances).all()


def test_zero_minutes_are_refused(folder, evaluate, capsys):
    assert evaluate("nets.py:net", "--max-minutes", "0") == 2
    assert "--max-minutes is 0: expected more than 0" in capsys.readouterr().err
