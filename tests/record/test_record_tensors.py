"""Tensors in files: what is read is what was written, or the file is called damaged; nothing is unpickled."""

import io
import json
import pickle

import pytest
import torch

from advfrontier.record import tensors as tensors_module
from advfrontier.record.folder import LocalFolder
from advfrontier.record.tensors import Damaged, pack, unpack

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
    with pytest.raises(Damaged):
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
    words = {"checksums": checksums, "seal": tensors_module._seal({}, checksums)}
    header = json.dumps(
        {"__metadata__": words, "a": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]} | entry}
    )
    return len(header).to_bytes(8, "little") + header.encode() + bytes(4)


@pytest.mark.parametrize(
    "content",
    [
        forged({"data_offsets": [float("inf"), 4]}, '{"a": ""}'),
        forged({}, "5"),
        forged({}, '["a"]'),
        forged({"dtype": "BF16", "shape": [2]}, '{"a": ""}'),
        (200_000).to_bytes(8, "little") + b"[" * 200_000,
    ],
)
def test_a_forged_file_is_damaged_whatever_it_says(content):
    with pytest.raises(Damaged):
        unpack(content)


def test_a_pickle_is_not_loaded(tmp_path):
    class Payload:
        def __reduce__(self):
            return (LocalFolder(tmp_path).write, ("ran", b""))

    with pytest.raises(Damaged):
        unpack(pickle.dumps(Payload()))
    assert not (tmp_path / "ran").exists()
