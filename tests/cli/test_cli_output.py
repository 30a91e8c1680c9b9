"""What is shown of an evaluation: where it stands among the embedded models, or why it does not."""

import json
import sys
from io import BytesIO, TextIOWrapper

import pytest
from support.records import record

from advfrontier import Evaluation
from advfrontier.cli.options import Output
from advfrontier.cli.output import show_evaluations
from advfrontier.errors import FrontierError
from advfrontier.evaluation.compare import common_pool, reference_pool
from advfrontier.evaluation.summary import summarise_all
from advfrontier.flags import Flag
from advfrontier.pool import Ensemble, paper_ensemble
from advfrontier.report import summary_tables
from advfrontier.report.render import as_text
from advfrontier.zoo import images_and_labels

KNOWN = reference_pool("Linf", 4000).samples


def evaluated(queries, *, shared=20, others=0, ensemble=None):
    """An evaluation after so many queries, on samples of the reference pool and on others."""
    one = record("mine", n=shared + others)
    one.ensemble = ensemble or paper_ensemble("paper-12k", "Linf").at(queries)
    one.samples = (*KNOWN[:shared], *one.samples[shared:])
    one.labels[:shared] = images_and_labels()[1][:shared]
    return one


def text_of(summary):
    return as_text(*summary_tables([summary]))


def test_the_shipped_flags_have_kinds():
    for norm in ("L0", "L1", "L2", "Linf"):
        flags = reference_pool(norm, 12000).flags
        assert list(flags) == ["F16"]
        assert all(isinstance(flag, Flag) for flag in flags["F16"])
        # In ℓ0 a search without gradients is nearer than surrogate ones on most samples.
        assert [flag.kind for flag in flags["F16"]] == ["no-gradients", "beaten"][
            : 2 if norm == "L0" else 1
        ]


@pytest.mark.parametrize(
    ("queries", "tier"), [(4000, 4000), (4100, 4000), (9000, 8000), (12000, 12000)]
)
def test_a_record_stands_at_the_largest_tier_it_went_through(queries, tier):
    (found,) = summarise_all([evaluated(queries)])
    assert found.standing.table.queries == tier
    assert found.no_standing is None
    assert ("DOI and rank in Linf after" in text_of(found)) == (queries != tier)


@pytest.mark.parametrize(
    ("evaluation", "why"),
    [
        (
            evaluated(4000, shared=100, others=900),
            r"first 100 samples .* 900 of the 1000 of mine .* --samples 100",
        ),
        (
            evaluated(3000),
            "with 4k, 8k, 12k queries per sample, mine with 3k: expected tiers in common",
        ),
        (
            evaluated(200, ensemble=Ensemble.of("own", "Linf", {"fmn": 200})),
            "mine with 200: expected tiers in common; type --tier 4k",
        ),
    ],
    ids=["samples", "queries", "ensemble"],
)
def test_no_standing_has_a_reason(evaluation, why):
    (found,) = summarise_all([evaluation])
    assert found.standing is None
    with pytest.raises(FrontierError, match=why):
        common_pool([evaluation], "Linf", name="fashion-mnist")
    assert f"no DOI in Linf: {found.no_standing}" in text_of(found)


def test_other_data_needs_no_reason():
    (found,) = summarise_all([evaluated(4000, shared=0, others=20)])
    assert (found.standing, found.no_standing) == (None, None)


def test_several_records_stand_at_the_tier_they_share():
    both = [evaluated(12000), evaluated(4100)]
    assert common_pool(both, "Linf", name="fashion-mnist").queries == 4000
    assert common_pool([], "Linf", name="fashion-mnist").queries == 12000
    with pytest.raises(FrontierError, match="no reference pool 'mnist'"):
        common_pool(both, "Linf", name="mnist")


def test_json_is_all_that_is_printed(tmp_path, capsys):
    show_evaluations([evaluated(4100)], str(tmp_path), Output(json=True))
    (found,) = json.loads(capsys.readouterr().out)
    assert found["standing"]["table"]["queries"] == 4000
    assert (tmp_path / "report.html").exists()


def test_a_pipe_without_greek_letters_gets_all_the_rest(folder, evaluate, monkeypatch):
    pipe = TextIOWrapper(BytesIO(), "cp1252")
    monkeypatch.setattr(sys, "stdout", pipe)
    assert evaluate("nets.py:net", "-o", "a", "--radii", "0.1") == 0
    assert (folder / "a" / "report.html").exists()
    pipe.flush()
    assert b"at ?" in pipe.buffer.getvalue()


def test_a_report_of_somebody_else_is_told_before_anything_is_extended(
    folder, evaluate, run, capsys
):
    assert evaluate("nets.py:net", "-o", "a", "--no-report") == 0
    (folder / "a" / "report.html").write_text("mine")
    assert run("extend", "a", "--model", "nets.py:net", "--queries", "200", "--workers", "0") == 2
    assert "was not written by advfrontier" in capsys.readouterr().err
    assert Evaluation.load("a/Linf").ensemble.total == 100


def test_bytes_that_are_no_text_are_refused(folder, evaluate, capsys):
    assert evaluate("nets.py:net", "-o", "a", "--name", "\udcff") == 2
    assert "an argument is not UTF-8" in capsys.readouterr().err


def test_a_card_is_called_a_card(folder, evaluate, capsys):
    assert evaluate("nets.py:net", "-o", "a", "--export", "card", "--no-report") == 0
    assert "\ncard: a/Linf.json\n" in capsys.readouterr().out
