"""Shape expressions of exported programs: arithmetic of a bounded size, and nothing else."""

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from sources.programs import graph, program_with, save
from torch import nn

from advfrontier.errors import FrontierError
from advfrontier.sources import load_model

pytest.importorskip(
    "torch.export.pt2_archive", reason="the archives of torch.export.save need torch 2.9"
)
PAIR = "Add(Symbol('a'), Symbol('b'))"


@pytest.fixture(scope="module")
def honest(tmp_path_factory):
    return save(tmp_path_factory.mktemp("export") / "net.pt2")


@pytest.mark.parametrize(
    "expression",
    [
        "__import__('pathlib').Path('{file}').touch()",
        "Symbol('s0').__class__",
        "(lambda: 1)()",
        "[print(1) for i in range(3)][0]",
        "FloorDiv('print(1)', 2)",
        "eval('1')",
        "s0.free_symbols",
        "Symbol(",
        "9**9**9",
        "1<<99999999999",
        "Pow(Integer(9), Pow(Integer(9), Integer(9)))",
        "Pow(Pow(Integer(9), Integer(4)), Integer(4))",
        "PowByNatural(Integer(9), Integer(387420489))",
        "Pow(Integer(9), Mul(Integer(4), Integer(4), Integer(4), Integer(4), Integer(4), Integer(4), Integer(4)))",
        "Pow(Integer(2), Symbol('s0', integer=True))",
        "IntTrueDiv(Float(1, 1000000000), Integer(3))",
        f"Integer({'9' * 4000})",
        f"Integer(0x{'f' * 1000})",
        f"{'Not(' * 400}Integer(1){')' * 400}",
        f"Mod(Mul({', '.join([PAIR] * 5)}), Mul({', '.join([PAIR] * 5)}))",
        f"FloorDiv(Pow({PAIR}, Integer(4)), Pow({PAIR}, Integer(3)))",
        f"{'FloorDiv(' * 8}{PAIR}{f', {PAIR})' * 8}",
        "Symbol('s0', **{{}})",
        "Add(*Symbol('s0'))",
        "-" * 1500 + "1",
    ],
)
def test_shape_expressions_that_are_more_than_arithmetic_are_refused(
    honest, tmp_path, payload, expression
):
    def change(program):
        sizes = graph(program)["tensor_values"]["x"]["sizes"]
        sizes[0]["as_expr"]["expr_str"] = expression.format(file=payload.file)

    with pytest.raises(
        FrontierError,
        match=r"the expression .* could run code when it is loaded, or run forever: refused",
    ):
        load_model(f"export:{program_with(honest, tmp_path / 'e.pt2', change)}")


def test_sizes_that_vary_are_computed(tmp_path):
    class Varying(nn.Module):
        def forward(self, x):
            x = F.max_pool2d(F.max_pool2d(x, 2), 2, padding=1)
            return x.mean((2, 3)) * x.shape[2] ** 2 + x.shape[3] / 2

    sizes = (
        {
            0: torch.export.Dim("batch"),
            2: torch.export.Dim("h", min=8),
            3: torch.export.Dim("w", min=8),
        },
    )
    model = load_model(
        f"export:{save(tmp_path / 'varying.pt2', Varying(), torch.rand(2, 3, 32, 32), sizes)}"
    )
    images = torch.rand(5, 3, 16, 20)
    torch.testing.assert_close(model(images), Varying()(images))
