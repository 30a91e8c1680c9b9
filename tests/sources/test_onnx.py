"""ONNX graphs: read, converted, refused."""

import io
import pickle

import numpy as np
import pytest
import torch
from torch import nn

from advfrontier.errors import FrontierError
from advfrontier.sources import load_model

pytestmark = pytest.mark.filterwarnings(
    "ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::UserWarning"
)


@pytest.fixture(scope="module")
def onnx(library):
    library("onnx2torch")
    return library("onnx")


WEIGHTS = {
    "kernel": torch.randn(4, 3, 3, 3, generator=torch.Generator().manual_seed(1)),
    "matrix": torch.randn(10, 4, generator=torch.Generator().manual_seed(2)),
    "bias": torch.randn(10, generator=torch.Generator().manual_seed(3)),
}


OUTPUTS = (("logits", [10]), ("c", [4, 1, 1]))


def network(onnx, *, batch="batch", flat=0, outputs=1):
    helper = onnx.helper
    nodes = [
        helper.make_node("Conv", ["images", "kernel"], ["a"], pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["a"], ["b"]),
        helper.make_node("GlobalAveragePool", ["b"], ["c"]),
        helper.make_node("Reshape", ["c", "shape"], ["d"]),
        helper.make_node("Gemm", ["d", "matrix", "bias"], ["logits"], transB=1),
    ]
    tensors = [onnx.numpy_helper.from_array(value.numpy(), name) for name, value in WEIGHTS.items()]
    tensors.append(onnx.numpy_helper.from_array(np.array([flat, 4] if flat else [0, -1]), "shape"))
    float_ = onnx.TensorProto.FLOAT
    images = helper.make_tensor_value_info("images", float_, [batch, 3, 8, 8])
    results = []
    for name, sizes in OUTPUTS[:outputs]:
        results.append(helper.make_tensor_value_info(name, float_, ["n", *sizes]))
    graph = helper.make_graph(nodes, "net", [images], results, tensors)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)


def test_load_has_gradients(onnx, tmp_path):
    onnx.save(network(onnx), tmp_path / "net.onnx")
    onnx.save(
        network(onnx),
        tmp_path / "external.onnx",
        save_as_external_data=True,
        location="weights.bin",
        size_threshold=0,
    )
    images = torch.rand(5, 3, 8, 8)
    pooled = nn.functional.conv2d(images, WEIGHTS["kernel"], padding=1).relu().mean((2, 3))
    expected = pooled @ WEIGHTS["matrix"].T + WEIGHTS["bias"]
    for source in ("onnx:net.onnx", "net.onnx", "onnx:external.onnx"):
        kind, _, file = source.rpartition(":")
        model = load_model(f"{kind}:{tmp_path / file}" if kind else str(tmp_path / file))
        x = images.clone().requires_grad_()
        torch.testing.assert_close(model(x), expected)
        (gradient,) = torch.autograd.grad(model(x).logsumexp(1).sum(), x)
        assert gradient.isfinite().all()
        assert (gradient.flatten(1).norm(dim=1) > 0).all()


def test_wrong_graph_is_refused(onnx, tmp_path):
    onnx.save(network(onnx, batch=1, flat=1), tmp_path / "one.onnx")
    with pytest.raises(
        FrontierError, match=r"works only with batches of 1, or not at all .*: expected any"
    ):
        load_model(f"onnx:{tmp_path / 'one.onnx'}")
    onnx.save(network(onnx, outputs=2), tmp_path / "two.onnx")
    with pytest.raises(FrontierError, match="has 1 inputs and 2 outputs"):
        load_model(f"onnx:{tmp_path / 'two.onnx'}")


def test_pickle_is_refused_and_does_not_run(onnx, tmp_path, payload):
    buffer = io.BytesIO()
    torch.save(payload, buffer)
    for content in (pickle.dumps(payload), buffer.getvalue(), b""):
        (tmp_path / "net.onnx").write_bytes(content)
        with pytest.raises(FrontierError, match="not an ONNX file"):
            load_model(f"onnx:{tmp_path / 'net.onnx'}")


@pytest.mark.parametrize("where", ["initializer", "constant"])
@pytest.mark.parametrize(
    "location", ["../secret.bin", "{folder}/secret.bin", "link/secret.bin", "link.bin"]
)
def test_weights_outside_the_folder_are_refused(onnx, tmp_path, location, where):
    inside = tmp_path / "inside"
    inside.mkdir()
    (tmp_path / "secret.bin").write_bytes(WEIGHTS["bias"].numpy().tobytes())
    (inside / "link").symlink_to(tmp_path)
    (inside / "link.bin").symlink_to(tmp_path / "secret.bin")
    model = network(onnx)
    tensor = next(entry for entry in model.graph.initializer if entry.name == "bias")
    onnx.external_data_helper.set_external_data(tensor, location.format(folder=tmp_path))
    tensor.ClearField("raw_data")
    if where == "constant":
        node = onnx.helper.make_node("Constant", [], ["bias"], value=tensor)
        model.graph.initializer.remove(tensor)
        model.graph.node.insert(0, node)
    (inside / "net.onnx").write_bytes(model.SerializeToString())
    with pytest.raises(FrontierError, match=r"wants to read weights from .*: refused"):
        load_model(f"onnx:{inside / 'net.onnx'}")
