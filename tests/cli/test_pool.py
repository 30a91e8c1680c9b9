"""`advfrontier trace`: it stops in time and resumes."""

SOON = ["--max-minutes", "1e-9"]


def test_trace_stops_and_resumes(folder, run, capsys):
    words = [
        "trace",
        "nets.py:net",
        "-d",
        "npz:data.npz",
        "--norm",
        "L2",
        "--runs",
        "fmn,ddn",
        "--queries",
        "100",
    ]
    words += ["--workers", "0", "-o", "t"]
    assert run(*words, *SOON) == 75
    assert "50% of the queries (1 of 2 units)" in capsys.readouterr().err
    assert run(*words, *SOON) == 0
