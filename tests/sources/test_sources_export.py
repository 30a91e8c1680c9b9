"""Exported programs: honest ones compute what the model computes; no place in the file can run code."""

import contextlib
import io
import json
import pickle
import zipfile

import pytest
import torch
from sources.programs import BATCH, Net, altered, graph, program_with, save
from torch import nn

from advfrontier.errors import FrontierError
from advfrontier.sources import load_model

pytest.importorskip(
    "torch.export.pt2_archive", reason="the archives of torch.export.save need torch 2.9"
)


@pytest.fixture(scope="module")
def honest(tmp_path_factory):
    return save(tmp_path_factory.mktemp("export") / "net.pt2")


def test_a_program_computes_what_its_model_does_at_any_batch_size(honest):
    torch.manual_seed(0)
    torch.rand(0)
    net = Net().eval()
    model = load_model(f"export:{honest}")
    for rows in (1, 2, 7):
        x = torch.rand(rows, 3, 8, 8, requires_grad=True)
        torch.testing.assert_close(model(x), net(x))
        (gradient,) = torch.autograd.grad(model(x).square().sum(), x)
        (expected,) = torch.autograd.grad(net(x).square().sum(), x)
        torch.testing.assert_close(gradient, expected)
    assert not model.training
    assert model.train().eval() is model


def test_a_program_for_one_batch_size_or_with_two_inputs_is_refused(tmp_path):
    with pytest.raises(
        FrontierError,
        match=r"exported for batches of 2: expected any size; export it with\s+dynamic",
    ):
        load_model(f"export:{save(tmp_path / 'one.pt2', dynamic_shapes=None)}")

    class Two(nn.Module):
        def forward(self, x, y):
            return x.flatten(1) + y.flatten(1)

    images = torch.rand(2, 3, 8, 8)
    torch.export.save(
        torch.export.export(Two(), (images, images), dynamic_shapes=BATCH * 2), tmp_path / "two.pt2"
    )
    with pytest.raises(
        FrontierError, match="has 2 inputs and 1 outputs: expected images and logits"
    ):
        load_model(f"export:{tmp_path / 'two.pt2'}")


def test_what_is_no_archive_is_refused(tmp_path, payload):
    (tmp_path / "a.pt2").write_bytes(pickle.dumps(payload))
    torch.save(payload, tmp_path / "b.pt2")
    with zipfile.ZipFile(tmp_path / "c.pt2", "w") as archive:  # the format before torch 2.9
        buffer = io.BytesIO()
        torch.save(payload, buffer)
        archive.writestr("version", "8.1")
        archive.writestr("serialized_exported_program.json", "{}")
        for name in ("state_dict", "constants", "example_inputs"):
            archive.writestr(f"serialized_{name}.pt", buffer.getvalue())
    for name in "abc":
        with pytest.raises(FrontierError, match=r"not an archive of torch\.export\.save|has no "):
            load_model(f"export:{tmp_path / name}.pt2")
    with pytest.raises(FrontierError, match="found nothing"):
        load_model(f"export:{tmp_path / 'd.pt2'}")


def pickled(payload, how):
    if how is pickle.dumps:
        return pickle.dumps(payload)
    buffer = io.BytesIO()
    torch.save(payload, buffer)
    return buffer.getvalue()


@pytest.mark.parametrize("how", [pickle.dumps, torch.save])
def test_pickled_sample_inputs_are_never_read(honest, tmp_path, payload, how):
    evil = altered(
        honest,
        tmp_path / "evil.pt2",
        lambda name, content: (
            pickled(payload, how) if name == "data/sample_inputs/model.pt" else content
        ),
    )
    assert load_model(f"export:{evil}")(torch.rand(2, 3, 8, 8)).shape == (2, 10)


@pytest.mark.parametrize("folder", ["weights", "constants"])
def test_legacy_pickled_tensors_are_refused(honest, tmp_path, payload, folder):
    extra = {f"data/{folder}/model.pt": pickled(payload, torch.save)}
    evil = altered(
        honest, tmp_path / "evil.pt2", lambda name, content: extra if name is None else content
    )
    with pytest.raises(FrontierError, match=rf"pickled in data/{folder}/model\.pt.*refused"):
        load_model(f"export:{evil}")


@pytest.mark.parametrize(
    ("table", "entry"),
    [
        ("data/weights/model_weights_config.json", ("weight_0", True)),
        ("data/weights/model_weights_config.json", ("weight_0", 1)),
        ("data/weights/model_weights_config.json", ("../../evil", False)),
        ("data/constants/model_constants_config.json", ("tensor_0", True)),
        ("data/constants/model_constants_config.json", ("custom_obj_0", False)),
        ("data/constants/model_constants_config.json", ("opaque_obj_0", False)),
        ("data/constants/model_constants_config.json", ("opaque_obj_0", True)),
    ],
)
def test_single_tensors_stored_as_pickles_are_refused(honest, tmp_path, payload, table, entry):
    file, use_pickle = entry
    folder = table.rpartition("/")[0]

    def change(name, content):
        if name is None:
            return {
                f"{folder}/{file}": pickled(payload, pickle.dumps if "obj" in file else torch.save)
            }
        if name == table:
            config = json.loads(content)
            next(iter(config["config"].values())).update(path_name=file, use_pickle=use_pickle)
            return json.dumps(config).encode()
        return content

    with pytest.raises(
        FrontierError, match=r"is stored as a pickle .*refused|could run code when it is loaded"
    ):
        load_model(f"export:{altered(honest, tmp_path / 'evil.pt2', change)}")


def test_compiled_code_is_refused(honest, tmp_path):
    extra = {"data/aotinductor/model/model.so": b"\x7fELF"}
    evil = altered(
        honest, tmp_path / "evil.pt2", lambda name, content: extra if name is None else content
    )
    with pytest.raises(FrontierError, match="holds compiled code"):
        load_model(f"export:{evil}")


def call(target, *arguments):
    inputs = [{"name": "", "arg": {"as_string": text}, "kind": 1} for text in arguments]
    return {
        "target": target, "inputs": inputs, "outputs": [{"as_none": True}], "metadata": {}, "name": "evil",
        "is_hop_single_tensor_return": None,
    }  # fmt: skip


@pytest.mark.parametrize(
    "target",
    [
        "torch.os.system",
        "torch.ops.load_library",
        "torch.ops.aten.from_file.default",
        "torch.ops.aten.save.default",
        "torch.ops.aten.add.__class__",
        "torch.load",
        "torch.serialization.pickle.loads",
        "_operator.methodcaller",
        "_operator.attrgetter",
        "_operator.__builtins__",
        "#extension:op",
        "math.__loader__.load_module",
    ],
)
def test_operators_that_reach_beyond_tensors_are_refused(honest, tmp_path, payload, target):
    evil = program_with(
        honest,
        tmp_path / "e.pt2",
        lambda p: graph(p)["nodes"].insert(0, call(target, f"touch {payload.file}")),
    )
    with pytest.raises(
        FrontierError,
        match=r"the operator .* could run code when it is loaded, or run forever: refused",
    ):
        load_model(f"export:{evil}")


def test_archives_that_are_damaged_compressed_or_overlap_are_refused(honest, tmp_path):
    content = honest.read_bytes()
    with zipfile.ZipFile(honest) as archive:
        weight = archive.read("net/data/weights/weight_0")
    place = content.index(weight)
    (tmp_path / "damaged.pt2").write_bytes(
        content[: place + 9] + bytes([content[place + 9] ^ 1]) + content[place + 10 :]
    )
    with pytest.raises(FrontierError, match="Bad CRC-32 for file 'net/data/weights/weight_0'"):
        load_model(f"export:{tmp_path / 'damaged.pt2'}")
    with (
        zipfile.ZipFile(honest) as old,
        zipfile.ZipFile(tmp_path / "small.pt2", "w", zipfile.ZIP_DEFLATED) as new,
    ):
        for name in old.namelist():
            new.writestr(name, old.read(name))
    with pytest.raises(FrontierError, match="is compressed: expected"):
        load_model(f"export:{tmp_path / 'small.pt2'}")
    big = altered(
        honest,
        tmp_path / "big.pt2",
        lambda name, content: b"big" if name == "byteorder" else content,
    )
    with pytest.raises(FrontierError, match="byte order"):
        load_model(f"export:{big}")


def test_a_program_that_does_not_compute_is_refused(honest, tmp_path):
    def change(program):
        node = next(node for node in graph(program)["nodes"] if "max_pool2d" in node["target"])
        node["inputs"][1]["arg"] = {"as_ints": [50, 50]}

    with pytest.raises(FrontierError, match="or not at all"):
        load_model(f"export:{program_with(honest, tmp_path / 'e.pt2', change)}")


def test_names_that_would_become_source_code_are_refused(honest, tmp_path, payload):
    name = f"x): open({payload.file!r}, 'w')\ndef forward(self, y"

    def rename(value):
        if isinstance(value, dict):
            return {name if key == "x" else key: rename(part) for key, part in value.items()}
        if isinstance(value, list):
            return [rename(part) for part in value]
        return name if value == "x" else value

    def everywhere(program):
        program["graph_module"] = rename(program["graph_module"])

    def parameter(program):
        program["graph_module"]["signature"]["input_specs"][0]["parameter"]["parameter_name"] = (
            'a"); print("b'
        )

    def special(program):
        graph(program)["nodes"][0]["name"] = "self.__class__"

    def text(program):
        graph(program)["nodes"][0]["inputs"][0]["arg"] = {"as_string": "a' + print('b') + '"}

    for number, change in enumerate((everywhere, parameter, special, text)):
        with pytest.raises(
            FrontierError, match="could run code when it is loaded, or run forever: refused"
        ):
            load_model(f"export:{program_with(honest, tmp_path / f'{number}.pt2', change)}")


def test_structures_that_import_are_refused(honest, tmp_path):
    tree = {
        "type": "collections.defaultdict",
        "context": '{"default_factory_module": "os"}',
        "children_spec": [],
    }
    enum = {
        "type": "builtins.dict",
        "context": '[{"__enum__": true, "fqn": "os:name", "name": "x"}]',
        "children_spec": [],
    }
    for number, node in enumerate((tree, enum, {"type": "torch.Size"})):

        def change(program, node=node):
            program["graph_module"]["module_call_graph"][0]["signature"]["out_spec"] = json.dumps(
                [1, node]
            )

        with pytest.raises(
            FrontierError,
            match=r"the structure .* could run code when it is loaded, or run forever: refused",
        ):
            load_model(f"export:{program_with(honest, tmp_path / f'{number}.pt2', change)}")


def test_guards_and_comments_are_dropped(honest, tmp_path, payload):
    evil = f"open({payload.file!r}, 'w')"

    def change(program):
        program["guards_code"] = [evil]
        for node in graph(program)["nodes"]:
            node["metadata"] = {
                "stack_trace": f"\n{evil}\n",
                "torch_fn": f"a;\n{evil}",
                "nn_module_stack": evil,
            }

    model = load_model(f"export:{program_with(honest, tmp_path / 'e.pt2', change)}")
    assert model(torch.rand(3, 3, 8, 8)).shape == (3, 10)


def test_the_attack_on_operators_is_real(honest, tmp_path):
    """Torch itself does run what this source refuses; should that change, the checks above can be made simpler."""
    trace = tmp_path / "ran"
    evil = program_with(
        honest, tmp_path / "e.pt2", lambda p: graph(p)["tensor_values"]["x"]["sizes"][0]["as_expr"].update(
            expr_str=f"__import__('pathlib').Path('{trace}').touch()"
        )
    )  # fmt: skip
    with contextlib.suppress(Exception):  # whatever it stumbles over afterwards
        torch.export.load(evil)
    assert trace.exists()
