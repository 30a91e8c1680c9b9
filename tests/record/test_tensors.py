"""Tensors in files: what is read is what was written, or the file is called damaged; nothing is
unpickled.
"""

import io
import json
import pickle

import pytest
import torch

from advfrontier.record.folder import LocalFolder
from advfrontier.record.tensors import Damaged, pack, require, seal, unpack

TENSORS = {
    "a": torch.arange(6.0).view(2, 3),
    "b": torch.tensor([True, False]),
    "c": torch.tensor(7),
}


def test_what_is_packed_comes_back():
    tensors, words = unpack(pack(TENSORS, {"run": "fmn", "note": "ε ≤ 1"}))
    assert words == {"run": "fmn", "note": "ε ≤ 1"}
    assert set(tensors) == set(TENSORS)
    for name, tensor in TENSORS.items():
        assert torch.equal(tensors[name], tensor)
        assert tensors[name].dtype == tensor.dtype


def test_tensors_that_share_memory_are_packed():
    one = torch.arange(6)
    content = pack({"a": one, "b": one, "c": one[2:4], "d": one.view(2, 3).T})
    tensors, _ = unpack(content)
    assert torch.equal(tensors["a"], one)
    assert torch.equal(tensors["b"], one)
    assert tensors["c"].tolist() == [2, 3]
    assert tensors["d"].tolist() == [[0, 3], [1, 4], [2, 5]]


def test_every_flipped_byte_is_noticed():
    content = pack(TENSORS, {"run": "fmn"})
    for place in range(len(content)):
        changed = bytearray(content)
        changed[place] ^= 0x10
        try:
            tensors, words = unpack(bytes(changed))
        except Damaged:
            continue
        # The header may be written in more than one way: then nothing it says has changed.
        assert words == {"run": "fmn"}
        assert all(torch.equal(tensors[name], TENSORS[name]) for name in TENSORS)


@pytest.mark.parametrize("keep", [0, 1, 7, 8, 9, 60, -1])
@pytest.mark.parametrize("names", [None, ("b",), ()])
def test_a_file_cut_short_is_noticed_whatever_is_read_of_it(keep, names):
    with pytest.raises(Damaged, match=r"not a whole safetensors file|it is cut short"):
        unpack(io.BytesIO(pack(TENSORS)[:keep]), names)


class Counting(io.BytesIO):
    passed = 0

    def read(self, size=-1):
        found = super().read(size)
        self.passed += len(found)
        return found


def test_a_part_is_read_alone_and_is_as_sure_as_the_whole():
    large = {"points": torch.rand(100, 1000), **TENSORS}
    content = pack(large, {"run": "fmn"})
    file = Counting(content)
    tensors, words = unpack(file, ("a", "c", "nowhere"))
    assert words == {"run": "fmn"}
    assert set(tensors) == {"a", "c"}
    assert all(torch.equal(tensors[name], TENSORS[name]) for name in tensors)
    assert file.passed < 1500
    changed = bytearray(content)
    changed[content.index(large["points"].numpy().tobytes()) + 77] ^= 1
    assert set(unpack(io.BytesIO(changed), ("a",))[0]) == {"a"}  # what was changed is not read
    with pytest.raises(Damaged, match="the checksum of points does not match"):
        unpack(io.BytesIO(changed), ("points",))
    with pytest.raises(Damaged, match="the checksum of points does not match"):
        unpack(bytes(changed))


def forged(entry, checksums):
    """A file whose seal is right, of one tensor of four bytes."""
    words = {"checksums": checksums, "seal": seal({}, checksums)}
    header = json.dumps(
        {"__metadata__": words, "a": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]} | entry}
    )
    return len(header).to_bytes(8, "little") + header.encode() + bytes(4)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (forged({"data_offsets": [float("inf"), 4]}, '{"a": ""}'), "OverflowError"),
        (forged({"data_offsets": [0]}, '{"a": ""}'), "not a whole safetensors file"),
        (forged({"data_offsets": [-4, 4]}, '{"a": ""}'), "its tensors have no place in it"),
        (forged({"data_offsets": [0, 2**70]}, '{"a": ""}'), "cut short, or longer than it says"),
        (forged({}, "5"), "not a whole safetensors file"),
        (forged({}, '["a"]'), "not a whole safetensors file"),
        (forged({}, '{"a": "", "b": ""}'), "its checksum does not match its words"),
        (forged({}, '{"a": ""}'), "the checksum of a does not match its content"),
        (forged({"dtype": "BF16", "shape": [2]}, '{"a": ""}'), "the checksum of a does not"),
        (forged({"shape": [2**62]}, '{"a": ""}'), "a is no whole tensor"),
        (forged({"dtype": "X"}, '{"a": ""}'), "a is no whole tensor"),
        ((200_000).to_bytes(8, "little") + b"[" * 200_000, "RecursionError"),
        ((2**63).to_bytes(8, "little"), "not a whole safetensors file"),
    ],
)
def test_a_forged_file_is_damaged_whatever_it_says(content, message):
    with pytest.raises(Damaged, match=message):
        unpack(content)


def test_a_name_with_a_dot_stands_for_all_that_begin_so():
    many = {"state.a": torch.zeros(1), "state.b.c": torch.ones(1), "states": torch.ones(2)}
    assert unpack(pack(many), ("state.",))[0].keys() == {"state.a", "state.b.c"}
    assert unpack(pack(many), ("state.a",))[0].keys() == {"state.a"}


@pytest.mark.parametrize(
    ("form", "message"),
    [
        ({"shape": (2, 2)}, r"its a has the shape \(2, 3\): expected \(2, 2\)"),
        ({"shape": (None, 4)}, r"expected \(any, 4\)"),
        ({"shape": (6,)}, r"expected \(6,\)"),
        ({"low": 1}, "its a ranges from 0 to 5: expected 1 to 5"),
        ({"low": None, "high": 4}, "its a ranges from 0 to 5: expected anything to 4"),
        ({"high": 4}, "its a ranges from 0 to 5: expected 0 to 4"),
        ({"dtype": torch.int64}, "its a is float32: expected int64"),
        ({"name": "z"}, "it has no z"),
    ],
)
def test_a_tensor_of_another_form_is_damaged(form, message):
    whole = {"name": "a", "shape": (2, 3), "dtype": torch.float32, "low": 0, "high": 5} | form
    name, shape, dtype = (whole.pop(key) for key in ("name", "shape", "dtype"))
    with pytest.raises(Damaged, match=message):
        require(TENSORS, name, shape, dtype, **whole)
    assert require(TENSORS, "a", (None, 3), torch.float32, low=0, high=5) is TENSORS["a"]
    assert require(TENSORS, "b", (2,), torch.bool) is TENSORS["b"]


def test_values_that_are_no_numbers_are_damaged_unless_they_may_be():
    tensors = {"x": torch.tensor([1.0, torch.nan]), "none": torch.full((2,), torch.nan)}
    with pytest.raises(Damaged, match="its x holds values that are no numbers"):
        require(tensors, "x", (2,), torch.float32)
    with pytest.raises(Damaged, match="its x ranges from 1 to 1: expected 2 to anything"):
        require(tensors, "x", (2,), torch.float32, low=2, nan=True)
    assert require(tensors, "x", (2,), torch.float32, low=1, nan=True) is tensors["x"]
    assert require(tensors, "none", (2,), torch.float32, low=1, nan=True) is tensors["none"]


def test_a_pickle_is_not_loaded(tmp_path):
    class Payload:
        def __reduce__(self):
            return (LocalFolder(tmp_path).write, ("ran", b""))

    with pytest.raises(Damaged, match="not a whole safetensors file"):
        unpack(pickle.dumps(Payload()))
    assert not (tmp_path / "ran").exists()
