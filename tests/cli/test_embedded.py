"""Lists of the models and runs that come with the package."""

import re


def test_pools_and_models_are_listed(run, capsys):
    assert run("pool", "--norm", "L0") == 0
    assert len(capsys.readouterr().out.splitlines()) == 45
    assert run("pool", "--norm", "Linf", "--pool", "extended") == 0
    assert "square_min" in capsys.readouterr().out.splitlines()
    assert run("zoo", "list") == 0
    listed = capsys.readouterr().out
    assert [word for word in listed.split() if re.fullmatch(r"F\d+", word)] == [
        f"F{k}" for k in range(1, 19)
    ]
    assert run("zoo", "card", "F3") == 0
    assert "accuracy under PGD in Linf at 0.06: 77.6%" in capsys.readouterr().out
