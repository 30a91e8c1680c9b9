"""The clean pass and certified radii: read as they were written, or missing with a reason."""

import numpy as np
import pytest
import torch
from record_made import clean_of, header_of, made_record

from advfrontier import FrontierError
from advfrontier.record import HeaderChange, Record
from advfrontier.record.identity import data_digest

CLEAN = "clean.safetensors"


@pytest.fixture
def record(tmp_path):
    return made_record(tmp_path / "record")


def tensors_of(record):
    return record.read_file(CLEAN, record._mark("clean"))[0]


def forge(record, **changes):
    """Put other tensors into the clean pass; its checksums and its mark are right."""
    tensors = tensors_of(record)
    for name, tensor in changes.items():
        if tensor is None:
            del tensors[name]
        else:
            tensors[name] = tensor
    record.write_file(CLEAN, tensors, {}, record._mark("clean"))


def test_a_clean_pass_is_read_as_it_was_written(record):
    found = Record.find(record.place).clean
    expected = clean_of(6)
    assert (found.ids == expected.ids).all()
    for name in ("labels", "logits", "correct", "targets", "boundary"):
        assert torch.equal(getattr(found, name), getattr(expected, name))


WRONG = {
    "labels cut": ("labels", lambda t: t[:-1], "labels has the shape"),
    "labels out of range": ("labels", lambda t: t + 10, "labels ranges from"),
    "labels negative": ("labels", lambda t: t - 20, "labels ranges from"),
    "labels as floats": ("labels", lambda t: t.float(), "labels is float32: expected int64"),
    "other labels": ("labels", lambda t: (t + 1) % 10, "targets hold labels|of other samples"),
    "no labels": ("labels", None, "it has no labels"),
    "ids cut": ("ids", lambda t: t[:-1], "ids has the shape"),
    "other ids": ("ids", lambda t: t + 1, "it is of other samples"),
    "logits of one class": ("logits", lambda t: t[:, :1], "logits are of 1 classes: expected two"),
    "logits of no class": ("logits", lambda t: t[:, :0], "logits are of 0 classes"),
    "logits of fewer classes": ("logits", lambda t: t[:, :3], "ranges|shape"),
    "logits of fewer samples": ("logits", lambda t: t[:3], "logits has the shape"),
    "flat logits": ("logits", lambda t: t.flatten(), "logits has the shape"),
    "infinite logits": ("logits", lambda t: t * torch.inf, "logits"),
    "logits that are no numbers": ("logits", lambda t: t * torch.nan, "are no numbers"),
    "whole logits": ("logits", lambda t: t.long(), "logits is int64"),
    "correct as numbers": ("correct", lambda t: t.long(), "correct is int64: expected bool"),
    "correct of more": ("correct", lambda t: torch.cat([t, t]), "correct has the shape"),
    "targets out of range": ("targets", lambda t: t + 9, "targets ranges from"),
    "targets negative": ("targets", lambda t: t - 9, "targets ranges from"),
    "targets cut": ("targets", lambda t: t[:, :4], "targets has the shape"),
    "flat targets": ("targets", lambda t: t[:, 0], "targets has the shape"),
    "boundary negative": ("boundary", lambda t: -t, "boundary ranges from"),
    "boundary no numbers": ("boundary", lambda t: t * torch.nan, "are no numbers"),
    "boundary of one": ("boundary", lambda t: t[:1], "boundary has the shape"),
}


@pytest.mark.parametrize("what", WRONG)
def test_a_forged_clean_pass_is_one_message(record, what):
    name, change, message = WRONG[what]
    forge(record, **{name: None if change is None else change(tensors_of(record)[name])})
    reader = Record.find(record.place)
    assert reader.read_clean() is None
    text = rf"lacks its clean pass \(clean\.safetensors: (.*)({message}).*\); to resume, repeat"
    for ask in (
        lambda: reader.clean,
        reader.samples,
        lambda: reader.shards,
        lambda: reader.finished({"ensemble": 60}),
        lambda: reader.read_unit(*next(iter(reader.units().items()))),
    ):
        with pytest.raises(FrontierError, match=text):
            ask()


def test_columns_of_a_later_version_are_not_taken(record):
    forge(record, surprise=torch.zeros(3))
    assert Record.find(record.place).clean.labels.shape == (6,)


def test_a_clean_pass_of_another_record_is_named(record, tmp_path):
    other = Record.begin(tmp_path / "other", header_of(clean_of(6), gradients="none"))
    other.write_clean(clean_of(6))
    content = other.folder.read(CLEAN)
    record.folder.write(CLEAN, content)
    with pytest.raises(FrontierError, match=r"lacks its clean pass .*belongs to another record"):
        _ = Record.find(record.place).clean


def test_more_samples_end_what_was_finished(record):
    grown = clean_of(8)
    record.write_clean(grown)
    found = Record.find(record.place)
    assert found.header.data.samples == 8
    assert found.header.data.digest == data_digest(grown.ids, grown.labels)
    assert found.header.finished is None
    assert found.shards == [(0, 4), (4, 4)]
    assert found.finished({"ensemble": 60}) == (1, 2)
    assert not found.why(CLEAN)


def test_passes_that_no_unit_counts(record):
    record.change(HeaderChange(add_counts={"checks": 5}, replaced={"a": {"attack": 2}}))
    record.change(
        HeaderChange(add_counts={"checks": 1, "setup": 12}, replaced={"b": {"attack": 3}})
    )
    assert record.spent() == {"checks": 6, "setup": 12, "attack": 5}


# Certified radii


def test_certified_radii_are_read_as_they_were_written(record):
    assert record.read_certified() is None
    radii = np.linspace(0, 1, 6)
    record.write_certified(radii)
    assert (Record.find(record.place).read_certified() == radii).all()
    record.write_clean(clean_of(8))
    assert record.read_certified() is None  # of other samples


@pytest.mark.parametrize(
    "radii",
    [
        torch.zeros(5).double(),
        torch.zeros(6),
        -torch.ones(6).double(),
        torch.full((6,), torch.nan).double(),
        torch.full((6,), torch.inf).double(),
        torch.zeros(6, 1).double(),
        None,
    ],
)
def test_forged_radii_are_not_read(record, radii):
    tensors = {"other": torch.zeros(6)} if radii is None else {"radii": radii}
    record.write_file("certified.safetensors", tensors, {}, record._mark("certified"))
    assert record.read_certified() is None
    assert "radii" in record.why("certified.safetensors")
