"""A record keeps the terms it began with: others are refused, with what to type."""

import pytest
from record_cases import OPTIONS, SMALL, edit_record, refused, same

from advfrontier import FrontierError, evaluate
from advfrontier.record import Record


def test_a_record_of_another_device_says_what_to_type(problem, tmp_path):
    place = tmp_path / "a" / "L2"
    evaluate(*problem, out=place, norm="L2", ensemble=SMALL)
    terms = Record.find(place).header.terms
    edit_record(place, terms=terms.model_copy(update={"device": "cuda", "shard": 100}))
    refused(
        r"another batch size: 100, not 50; another device: cuda, not cpu\. .*to resume it, add "
        r"--batch-size 100 "
        r"--device cuda \(in Python batch_size=100, machine='cuda'\)$",
        place,
        lambda: evaluate(*problem, out=place, norm="L2", ensemble=SMALL),
    )


def test_other_terms_are_no_way_on_where_the_model_differs_too(problem, tmp_path):
    place, (model, images, labels) = tmp_path / "a" / "L2", problem
    own = evaluate(*problem, out=place, **OPTIONS)
    with pytest.raises(FrontierError, match=r"another model.*another seed: 42, not 3") as error:
        evaluate(lambda x: 2 * model(x), images, labels, out=place, seed=3, **OPTIONS)
    assert "to resume" not in str(error.value)
    same(evaluate(*problem, out=place, **OPTIONS), own)
