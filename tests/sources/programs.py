"""Exported programs, and the same with changes."""

import json
import zipfile

import torch
import torch.nn.functional as F  # noqa: N812
from torch import nn

BATCH = ({0: torch.export.Dim("batch")},)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.norm, self.out = (
            nn.Conv2d(3, 4, 3, padding=1),
            nn.BatchNorm2d(4),
            nn.Linear(4, 10),
        )
        self.attention = nn.MultiheadAttention(4, 2, batch_first=True)
        self.register_buffer("mean", torch.full((1, 3, 1, 1), 0.4))
        self.constant = torch.ones(1)

    def forward(self, x):
        x = F.gelu(self.norm(self.conv(x - self.mean)), approximate="tanh")
        x = F.adaptive_avg_pool2d(F.max_pool2d(x, 2), 2).flatten(2).transpose(1, 2)
        x = self.attention(x, x, x, need_weights=False)[0].mean(1)
        return (
            self.out(x.reshape(x.shape[0], -1))
            + self.constant * torch.einsum("bi,bi->b", x, x)[:, None]
        )


def save(path, model=None, images=None, dynamic_shapes=BATCH):
    torch.manual_seed(0)
    program = torch.export.export(
        (model or Net()).eval(),
        (torch.rand(2, 3, 8, 8) if images is None else images,),
        dynamic_shapes=dynamic_shapes,
    )
    torch.export.save(program, path)
    return path


def altered(source, target, change):
    """Copy an archive with its entries changed: `change(name, content)` returns the new content, None to drop it."""
    with zipfile.ZipFile(source) as old, zipfile.ZipFile(target, "w") as new:
        root = old.namelist()[0].partition("/")[0]
        extra = change(None, None) or {}
        for name in old.namelist():
            short = name.partition("/")[2]
            content = change(short, old.read(name))
            if content is not None and short not in extra:
                new.writestr(name, content)
        for name, content in extra.items():
            new.writestr(f"{root}/{name}", content)
    return target


def program_with(honest, target, change):
    """Change the program of an archive in place."""

    def entry(name, content):
        if name == "models/model.json":
            program = json.loads(content)
            change(program)
            return json.dumps(program).encode()
        return content

    return altered(honest, target, entry)


def graph(program):
    return program["graph_module"]["graph"]
