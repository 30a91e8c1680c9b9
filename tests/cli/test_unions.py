"""`union`: printed, compared, written, and what is refused."""

import json


def test_a_union_is_printed_compared_and_written(folder, evaluate, run, capsys):
    for model in ("net", "weaker"):
        words = ["--norm", "L1,Linf", "--out", f"runs/{model}"]
        assert evaluate(f"nets.py:{model}", *words) == 0
    capsys.readouterr()
    words = ["runs/net", "runs/weaker", "--radii", "L1=2,Linf=8/255", "--at", "0.5,1"]
    assert run("union", *words, "--html", "u.html", "--csv", "u.csv") == 0
    out = capsys.readouterr().out
    assert "nets.py:net on npz:data.npz against L1=2,Linf=8/255 at once: 8 samples" in out
    assert "broken by L1 only" in out.replace("\n", " ")
    assert "AUREC up to" in out  # two models are compared
    assert out.endswith("table: u.csv\npage: u.html\n")
    rows = (folder / "u.csv").read_text().splitlines()
    assert rows[0] == "model,sample,t,weakest,L1,Linf"
    assert len(rows) == 1 + 2 * 8
    for row in rows[1:]:
        t, first, second = (float(row.split(",")[k]) for k in (2, 4, 5))
        assert t == min(first / 2, second / (8 / 255))
    assert "min(ℓ" in (folder / "u.html").read_text(encoding="utf-8")
    assert run("union", "runs/net/L1", "runs/net/Linf", "--radii", "2,8/255", "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert found["models"][0]["radii"] == {"L1": 2.0, "Linf": 8 / 255}


def test_a_union_without_records_or_norms_is_refused(folder, evaluate, run, capsys):
    assert run("union", "--radii", "L1=2,Linf=1") == 2
    assert "expected folders of evaluations" in capsys.readouterr().err
    assert evaluate("nets.py:net", "--norm", "L1", "--out", "runs/net") == 0
    assert run("union", "runs/net", "--radii", "L1=2,Linf=1") == 2
    assert "has no evaluation in Linf" in capsys.readouterr().err
    assert run("union", "runs/net", "--radii", "L1=2,Linf=1", "--at", "L1=3") == 2
    assert "expected numbers such as 0.5,1,2" in capsys.readouterr().err


def test_table_of_a_union_replaces_no_other_file(folder, evaluate, run, capsys):
    assert evaluate("nets.py:net", "--norm", "L1,Linf", "--out", "runs/net") == 0
    (folder / "mine.csv").write_text("a,b\n1,2\n")
    words = ["union", "runs/net", "--radii", "L1=2,Linf=8/255"]
    assert run(*words, "--csv", "mine.csv") == 2
    assert "mine.csv" in capsys.readouterr().err
    assert (folder / "mine.csv").read_text() == "a,b\n1,2\n"
    assert run(*words, "--csv", "mine2.csv") == run(*words, "--csv", "mine2.csv") == 0  # its own
