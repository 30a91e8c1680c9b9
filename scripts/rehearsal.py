"""A rehearsal of the benchmark `paper`: the real architectures with random weights.

    make rehearsal                                      # all models; interrupted, it resumes
    python scripts/rehearsal.py --models C1 I7          # some of them
    python scripts/rehearsal.py --cached                # the page of what is there

For every model of the benchmark that RobustBench has, a checkpoint with random weights is written
where RobustBench would have put its download, in the form that it publishes: plain tensors, without
the prefix of its wrapper. `advfrontier bench run` then loads the source that the benchmark names,
and runs on two made images in four norms. It is interrupted (SIGINT) in the third norm, and the
same command resumes. Passes of the model are timed, and their operations and memory are counted.
From the counts follows what the whole benchmark costs on a GPU.

The file of the rehearsal is that of the paper but for its data, samples, budgets, pool and
baseline. Everything is kept in build/rehearsal; checkpoints are deleted after use.
"""

from __future__ import annotations

import argparse
import csv
import gc
import json
import os
import shutil
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import torch
from bench_nets import HERE
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.profiler import ProfilerActivity, profile
from torch.utils.flop_counter import FlopCounterMode

from advfrontier.bench.benchmark import Benchmark, BenchmarkModel, load_benchmark
from advfrontier.engine import Oracle
from advfrontier.errors import FrontierError
from advfrontier.evaluation.evaluation import Evaluation
from advfrontier.evaluation.trace import load_traces
from advfrontier.jsonable import jsonable
from advfrontier.pool import MAX_QUERIES, TIERS, pool
from advfrontier.record import Record, find_records
from advfrontier.report.render import as_markdown, print_tables
from advfrontier.sources import load_data, load_model
from advfrontier.sources.libraries import robustbench_entry, robustbench_utils
from advfrontier.sources.reading import Spec
from advfrontier.table import Column, Table
from advfrontier.threat.names import NORMS, norm_symbol

QUERIES = 20  # per run, and of the evaluated ensemble
RUN = "fmn"  # the traced run: it exists in all norms
EXPENSIVE = 8e9  # operations of a pass above which all norms are traced and only one is evaluated
LARGE = 20e9  # operations of a pass above which a single sample is attacked
LABELS = (1, 2)  # classes of the two made images
SIDES = {"cifar10": (32, 32), "imagenet": (320, 288)}  # of the made pictures
CLASSES = {"cifar10": 10, "imagenet": 1000}
SHAPES = {"cifar10": (3, 32, 32), "imagenet": (3, 224, 224)}  # of the models' inputs
REPEATS = 5  # of timed passes, fewer if one takes seconds
INTERRUPTED = 130  # exit code of a command that was stopped by SIGINT

# The GPU that the paper names, and what is assumed of it.
GPU = "NVIDIA H100 NVL"
PEAK = 60e12  # operations per second in float32
SUSTAINED = 0.4  # share of the peak
GPU_MEMORY = 94e9  # bytes
AUTOATTACK_RADII = 10  # nine percentiles and the reference radius
LIKE = "C1"  # the model that those without a source are counted like

WORK = HERE / "build" / "rehearsal"
DOCS = HERE / "docs"
STORED = DOCS / "results" / "rehearsal.json"

OPENING = """
`make rehearsal` runs the benchmark [`paper`](bench.md) on the architectures that it names, at their
real input size, with random weights: {done} of its {named} models that RobustBench has. It needs no
download of weights or data, and no GPU. Interrupted, the same command resumes with the next model.

For every model, the script writes a checkpoint with random weights where RobustBench would have put
its download. `advfrontier bench run` then reads the source that the benchmark names, such as
`robustbench:cifar10/Linf/Addepalli2021Towards_RN18`, and runs on two made images: it traces one run
(`{run}`, {queries} queries) in four norms, allocates, evaluates the first {queries} queries of the
default ensemble, and writes its page. The command is interrupted when it reaches the third norm;
the same command then resumes. Figures of robustness would mean nothing here, and are not shown.

`python scripts/rehearsal.py --cached` prints the tables of this page again;
[one file](results/rehearsal.json) has all figures.
"""

RAN = """
Every weight that the source loaded was compared with the checkpoint and is equal to it. Models of
more than {expensive:.0f} GFLOP per pass are traced in four norms and evaluated in one; models of
more than {large:.0f} GFLOP are attacked on one image.
"""

COSTS = """
Memory and operations are counted on passes that attacks make: the parameters are frozen, and
gradients go to the image. Attacks add up to 12 tensors of the size of the images
(`scripts/bench_memory.py`), which is little beside the activations below.
"""

GPUS = """
The paper names this GPU. The sustained share of its peak is an assumption: with twice the share,
all hours halve. PyTorch lets cuDNN convolve in TF32 on such a GPU unless that is switched off,
which is faster and coarser; the estimate does not assume it. The experiment has three parts: a
trace of the whole pool (1000 queries of every run), the default ensemble `12k`, and AutoAttack. To
measure these models with the existing ensembles, the second part is enough (`--only evaluate`).
"""

ABSENT_TEXT = """
Five of the paper's thirty models are not in RobustBench. Each needs its authors' code for the
architecture and their checkpoint, wrapped in a function that returns the network with its
normalisation (`--source C8=mine.py:c8`). None of them was rehearsed.
"""

# Id to the model, and what its authors publish.
ABSENT = {
    "C8": (
        "Jiang et al. 2023, fast-EG-ℓ1: a PreActResNet-18 with softplus",
        (
            "code at github.com/IVRL/FastAdvL1, which links two checkpoints for CIFAR-10, with and "
            "without NuAT; which of them the paper used is not published"
        ),
    ),
    "C9": (
        "Maini et al. 2020, MSD: a PreActResNet-18",
        "code at github.com/locuslab/robust_union, whose CIFAR10/README.md links the checkpoints",
    ),
    "C14": (
        "Stutz et al. 2020, CCAT: a ResNet",
        (
            "code at github.com/davidstutz/confidence-calibrated-adversarial-training, which links "
            "the checkpoint; its own loader is needed to read it; the benchmark attacks it as a "
            "plain classifier, without its rejection"
        ),
    ),
    "C15": (
        "Zhong et al. 2024, sparse adversarial training, k = 120: a PreActResNet-18",
        "code at github.com/CityU-MLO/sPGD, which links a folder of checkpoints",
    ),
    "C16": (
        "Zhong et al. 2024, sparse TRADES, k = 120: a PreActResNet-18",
        "code and checkpoints at the same place",
    ),
}

CLOSING = """
## What a rehearsal cannot show

- **Published checkpoints.** The made ones have the published form: the names of the weights lack
  the prefix of the wrapper that normalises, and its mean and standard deviation are left out.
  Published files may hold other names, or objects beside tensors, which the source
  [refuses to unpickle](sources.md).
- **Downloads.** Nothing was fetched.
- **Data.** The images are made, in class folders. The source `cifar10:` reads only the published
  files, by their checksums. RobustBench's list of ImageNet images names files that a rehearsal
  lacks.
- **Length.** One run of {queries} queries stands for the pool, and AutoAttack is left out. Both run
  in full on the [embedded models](results.md).
- **GPU.** Everything ran on a CPU. Memory on a GPU also depends on the workspaces of its libraries.
"""


# A model with random weights, as RobustBench finds it


def spec_of(source: str) -> Spec:
    """Return a `robustbench:` source taken apart."""
    kind, _, place = source.partition(":")
    return Spec(source, kind, place, {}, download=False)


def build(source: str, classes: int) -> tuple[nn.Module, Path]:
    """Return an architecture with its initial weights, and where its checkpoint is looked for.

    Args:
        source: The source that the benchmark names.
        classes: Number of classes.
    """
    spec = spec_of(source)
    utils = robustbench_utils(spec)
    dataset, threat, name = robustbench_entry(spec, utils)
    timm_name = f"{name.lower().replace('-', '_')}_{dataset}_{threat.lower()}"
    torch.manual_seed(0)
    if utils.timm.is_model(timm_name):  # these are fetched by timm, into the cache of torch
        url = utils.timm.get_pretrained_cfg(timm_name).url
        model = utils.timm.create_model(timm_name, num_classes=classes, pretrained=False)
        return model, Path(torch.hub.get_dir(), "checkpoints", Path(url).name)
    models = utils.all_models[utils.BenchmarkDataset(dataset)][utils.ThreatModel(threat)]
    return models[name]["model"](), WORK / "models" / dataset / threat / f"{name}.pt"


@torch.no_grad()
def fit(model: nn.Module, images: Tensor, classes: int) -> None:
    """Make random weights usable: statistics of the images, and the labels that images have.

    A deep network with initial weights answers almost the same to every image. Batch normalisation
    takes its statistics from the images. The bias of the last layer is chosen so that the first
    image is of the first label and the second of the second one.

    Args:
        model: The network; it is changed in place.
        images: (2, …), in [0, 1].
        classes: Number of classes.
    """
    model.eval()
    for module in model.modules():
        if isinstance(module, nn.modules.batchnorm._BatchNorm):  # noqa: SLF001
            module.train()
            module.momentum = None  # the mean of all batches: here, of one
    model(images)
    model.eval()
    last = None
    for module in model.modules():
        if isinstance(module, nn.Linear) and module.out_features == classes:
            last = module
    assert last is not None  # noqa: S101
    assert last.bias is not None  # noqa: S101
    logits = model(images)
    last.bias.sub_(logits.mean(0))
    apart = logits[0] - logits[1]
    order = torch.arange(classes)
    for label, row in zip(LABELS, (apart.argmax(), apart.argmin()), strict=True):
        here = int((order == row).nonzero())
        order[[label, here]] = order[[here, label]]
    last.weight.copy_(last.weight[order])
    last.bias.copy_(last.bias[order])


def published(model: nn.Module) -> dict[str, Tensor]:
    """Return the weights as RobustBench publishes them: without its wrapper that normalises."""
    found = {}
    for name, tensor in model.state_dict().items():
        if not name.startswith("normalize."):
            found[name.removeprefix("model.")] = tensor
    return found


@contextmanager
def checkpoint(model: nn.Module, path: Path) -> Iterator[int]:
    """Write a checkpoint, yield its bytes, and delete it afterwards."""
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        torch.save(published(model), path)
        yield path.stat().st_size
    finally:
        path.unlink(missing_ok=True)


def check_loaded(source: str, model: nn.Module) -> None:
    """Raise if a weight that the source loads is not that of the checkpoint."""
    loaded = load_model(source).state_dict()
    wanted = model.state_dict()
    assert loaded.keys() == wanted.keys(), f"{source}: other names of weights"  # noqa: S101
    for name, tensor in wanted.items():
        assert torch.equal(tensor, loaded[name]), f"{source}: {name} differs"  # noqa: S101


# What a query of a model costs


def measure(model: nn.Module, images: Tensor) -> dict[str, Any]:
    """Return operations, memory and time of passes, as attacks make them, per sample.

    Args:
        model: The network.
        images: (2, …), in [0, 1].
    """
    inner = model.model if isinstance(model, nn.Sequential) else model
    with Oracle(model) as oracle:
        forward, backward = operations(oracle, images[:1])
        one, two = (peak_bytes(oracle, images[:n]) for n in (1, 2))
        seconds = pass_seconds(oracle, images)
    weights = sum(p.numel() for p in model.parameters())
    return {
        "architecture": type(inner).__name__,
        "parameters": weights,
        "forward_operations": forward,
        "backward_operations": backward,
        "bytes_per_sample": two - one,
        "forward_seconds": seconds[0],
        "backward_seconds": seconds[1],
    }


def query(oracle: Oracle, images: Tensor) -> Iterator[Tensor]:
    """Yield after a forward pass, and after the backward pass to the images."""
    x = images.clone().requires_grad_()
    logits = oracle.logits(x)
    yield logits
    yield oracle.gradient(logits.logsumexp(1), x)


def operations(oracle: Oracle, images: Tensor) -> list[int]:
    """Return the floating-point operations of a forward and of a backward pass."""
    counts: list[int] = []
    with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
        for _ in query(oracle, images):
            counts.append(counter.get_total_flops() - sum(counts))
    return counts


def peak_bytes(oracle: Oracle, images: Tensor) -> int:
    """Return the most bytes that a forward and a backward pass have allocated at a time."""
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as found:
        for _ in query(oracle, images):
            pass
    now = most = 0
    for event in found.profiler.kineto_results.events():
        if event.name() == "[memory]":
            now += event.nbytes()
            most = max(most, now)
    return most


def pass_seconds(oracle: Oracle, images: Tensor) -> list[float]:
    """Return the least CPU seconds per sample of a forward and of a backward pass."""
    best = [float("inf")] * 2
    began = time.process_time()
    for _ in range(REPEATS):
        last = time.process_time()
        for i, _ in enumerate(query(oracle, images)):
            now = time.process_time()
            best[i] = min(best[i], (now - last) / len(images))
            last = now
        if time.process_time() - began > REPEATS:
            break
    return best


# The benchmark


def make_data(name: str) -> str:
    """Write two made pictures, one folder per class; return their source.

    Args:
        name: Name of a data set of the benchmark.
    """
    from PIL import Image  # noqa: PLC0415  # only the environment of the rehearsal has it

    folder = WORK / "data" / name
    for label in range(CLASSES[name]):
        (folder / f"{label:04}").mkdir(parents=True, exist_ok=True)
    generator = torch.Generator().manual_seed(0)
    width, height = SIDES[name]
    names = []
    for label in LABELS:
        coarse = torch.rand(1, 3, 4, 4, generator=generator)
        smooth = nn.functional.interpolate(coarse, (height, width), mode="bicubic")[0]
        noisy = smooth + 0.1 * torch.randn(smooth.shape, generator=generator)
        pixels = (noisy.clamp(0, 1) * 255).byte().permute(1, 2, 0)
        names.append(f"{label:04}/made.png")
        Image.fromarray(pixels.numpy()).save(folder / names[-1])
    if name != "imagenet":
        return f"imagefolder:data/{name}"
    (WORK / "data" / f"{name}.txt").write_text("\n".join(names) + "\n", encoding="utf-8")
    return f"imagefolder:data/{name}?list=data/{name}.txt&preprocessing=Res256Crop224"


def rehearsed(paper: Benchmark, sources: Mapping[str, str]) -> Benchmark:
    """Return the benchmark on two made images, with few queries; AutoAttack is left out."""
    data = {}
    for name, entry in paper.data.items():
        data[name] = entry.model_copy(update={"source": sources[name]})
    models = tuple(model for model in paper.models if model.source is not None)
    change = {
        "samples": len(LABELS),
        "budgets": (QUERIES,),
        "pool": (RUN,),
        "baseline": None,
        "data": data,
        "models": models,
    }
    return paper.model_copy(update=change)


def write_benchmark(benchmark: Benchmark, path: Path) -> None:
    """Write a benchmark as a TOML file."""
    content = benchmark.model_dump(exclude_none=True, mode="json")
    models, data = content.pop("models"), content.pop("data")
    lines = [f"{key} = {json.dumps(value)}" for key, value in content.items()]
    for name, entry in data.items():
        radii = ", ".join(f"{norm} = {radius!r}" for norm, radius in entry["radii"].items())
        lines += [f"\n[data.{name}]", f"source = {json.dumps(entry['source'])}"]
        lines.append(f"radii = {{ {radii} }}")
    for model in models:
        lines.append("\n[[models]]")
        lines += [f"{key} = {json.dumps(value)}" for key, value in model.items()]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def command(*words: str) -> list[str]:
    """Return a command of advfrontier in this environment."""
    return [sys.executable, "-m", "advfrontier", *words]


def run(words: Sequence[str], log: Path, *, until: str = "") -> dict[str, Any]:
    """Run a command in the folder of the rehearsal; return its exit code, time and memory.

    Args:
        words: The command.
        log: File to which its output is added.
        until: Text of a line of its output after which it is interrupted; "" for never.
    """
    began = time.perf_counter()
    with log.open("a", encoding="utf-8") as out:
        out.write(f"$ {' '.join(words)}\n")
        process = subprocess.Popen(
            words, cwd=WORK, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        assert process.stdout is not None  # noqa: S101
        for line in process.stdout:
            out.write(line)
            out.flush()
            if until and until in line:
                process.send_signal(signal.SIGINT)
        _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    return {
        "exit": process.returncode,
        "seconds": time.perf_counter() - began,
        "cpu_seconds": usage.ru_utime + usage.ru_stime,
        "peak_bytes": usage.ru_maxrss * 1024,
    }


def unit_files(name: str) -> dict[Path, tuple[int, int]]:
    """Return the stored units of a model: path to time and size."""
    found = {}
    for kind in ("traces", "evaluations"):
        for path in (WORK / "records" / kind / name).rglob("*.safetensors"):
            if "units" in path.parts:
                stat = path.stat()
                found[path] = (stat.st_mtime_ns, stat.st_size)
    return found


def run_benchmark(benchmark: Benchmark, name: str, *, cheap: bool) -> dict[str, Any]:
    """Run the benchmark on one model, interrupted once, and return what came out.

    Args:
        benchmark: The rehearsal of this model.
        name: Id of the model.
        cheap: Whether to evaluate in all norms, or in the last one only.
    """
    file = WORK / f"{name}.toml"
    write_benchmark(benchmark, file)
    log = WORK / "logs" / f"{name}.log"
    log.parent.mkdir(exist_ok=True)
    log.unlink(missing_ok=True)
    for kind in ("traces", "evaluations"):
        shutil.rmtree(WORK / "records" / kind / name, ignore_errors=True)
    base = command("bench", "run", file.name, "--out", "records", "--page", f"pages/{name}.md")
    base += ["--device", "cpu", "--workers", "0"]
    asked = base if cheap else [*base, "--only", "trace"]
    first = run(asked, log, until=f"trace {name} in {NORMS[2]}")
    before = unit_files(name)
    runs = [first, run(asked, log)]
    after = unit_files(name)
    if not cheap:
        runs.append(run([*base, "--only", "evaluate", "--norm", NORMS[-1]], log))
    kept = sum(after.get(path) == stat for path, stat in before.items())
    return {
        "interrupted": first["exit"] == INTERRUPTED,
        "finished": all(each["exit"] == 0 for each in runs[1:]),
        "units_before": len(before),
        "units_kept": kept,
        "units": len(unit_files(name)),
        "seconds": sum(each["seconds"] for each in runs),
        "cpu_seconds": sum(each["cpu_seconds"] for each in runs),
        "peak_bytes": max(each["peak_bytes"] for each in runs),
        "records": records_of(name),
    }


def records_of(name: str) -> list[dict[str, Any]]:
    """Return counts, clean accuracy and flags of every record of a model."""
    found = []
    for kind in ("trace", "evaluation"):
        for record in find_records(str(WORK / "records" / f"{kind}s" / name), kind=kind):
            found.append(summary_of(record))
    return found


def summary_of(record: Record) -> dict[str, Any]:
    """Return what the table needs of a record."""
    clean = record.clean
    if record.header.kind == "trace":
        distances = load_traces(record.place).frontier()
    else:
        distances = Evaluation.load(record.place).distances
    return {
        "kind": record.header.kind,
        "norm": record.header.terms.norm,
        "correct": int((clean.logits.argmax(1) == clean.labels).sum()),
        "broken": int(((distances > 0) & np.isfinite(distances)).sum()),
        "flags": sorted(flag.kind.value for flag in record.header.flags),
    }


def made_images(benchmark: Benchmark, entry: BenchmarkModel) -> Tensor:
    """Return the images of a model, as the benchmark reads them."""
    samples = load_data(benchmark.data[entry.data].source)
    return samples.read(torch.arange(len(samples)))


def cost_of(benchmark: Benchmark, entry: BenchmarkModel) -> dict[str, Any]:
    """Build a model and measure what a query of it costs.

    Args:
        benchmark: The rehearsal.
        entry: The model.
    """
    images, classes = made_images(benchmark, entry), CLASSES[entry.data]
    model, _ = build(str(entry.source), classes)
    fit(model, images, classes)
    return {
        "id": entry.id,
        "source": str(entry.source),
        "shape": list(images.shape[1:]),
        "batch": entry.batch,
        **measure(model, images),
    }


def rehearse(benchmark: Benchmark, entry: BenchmarkModel) -> dict[str, Any]:
    """Write a checkpoint of a model, check what is loaded of it, and run the benchmark on it.

    Args:
        benchmark: The rehearsal.
        entry: The model.
    """
    source, classes = str(entry.source), CLASSES[entry.data]
    passes = operations_per_query(read_row("costs", entry.id))
    samples, cheap = 1 if passes > LARGE else 2, passes < EXPENSIVE
    alone = {
        "samples": samples,
        "models": (entry,),
        "data": {entry.data: benchmark.data[entry.data]},
    }
    model, path = build(source, classes)
    fit(model, made_images(benchmark, entry), classes)
    with checkpoint(model, path) as size:
        check_loaded(source, model)
        del model
        gc.collect()
        found = run_benchmark(benchmark.model_copy(update=alone), entry.id, cheap=cheap)
    if not (found["interrupted"] and found["finished"]):
        raise FrontierError(f"{entry.id} was not resumed or not finished: see {WORK}/logs")
    if found["units_kept"] != found["units_before"]:
        raise FrontierError(f"{entry.id}: the second run changed units of the first one")
    return {
        "id": entry.id,
        "samples": samples,
        "checkpoint_bytes": size,
        "evaluated": list(NORMS if cheap else NORMS[-1:]),
        **found,
    }


def row_file(kind: str, name: str) -> Path:
    """Return the file that holds what is known of a model.

    Args:
        kind: `costs` or `runs`.
        name: Id of the model.
    """
    return WORK / kind / f"{name}.json"


def read_row(kind: str, name: str) -> dict[str, Any]:
    """Return what is known of a model; an empty dictionary if nothing is.

    Args:
        kind: `costs` or `runs`.
        name: Id of the model.
    """
    file = row_file(kind, name)
    found: dict[str, Any] = {}
    if file.exists():
        found = json.loads(file.read_text(encoding="utf-8"))
    return found


def do_missing(kind: str, benchmark: Benchmark, name: str) -> bool:
    """Measure or run a model unless that was done; tell whether it is done.

    Args:
        kind: `costs` or `runs`.
        benchmark: The rehearsal.
        name: Id of the model.
    """
    file = row_file(kind, name)
    if file.exists():
        return True
    began = time.perf_counter()
    try:
        row = {"costs": cost_of, "runs": rehearse}[kind](benchmark, benchmark[name])
    except Exception:  # noqa: BLE001  # the other models are rehearsed
        print(f"{kind} of {name}:\n{traceback.format_exc()}", file=sys.stderr)
        return False
    file.parent.mkdir(exist_ok=True)
    file.write_text(json.dumps(jsonable(row), indent=1) + "\n", encoding="utf-8")
    seconds = time.perf_counter() - began
    print(f"{kind} of {name}: {seconds:.0f} s", file=sys.stderr, flush=True)
    return True


# What the whole benchmark costs


def gpu_seconds(row: Mapping[str, Any], queries: float, samples: int) -> float:
    """Return the assumed time of so many queries per sample on the GPU.

    Args:
        row: The measured model.
        queries: Forward and backward passes per sample.
        samples: Number of samples.
    """
    return samples * queries * operations_per_query(row) / (PEAK * SUSTAINED)


def operations_per_query(row: Mapping[str, Any]) -> float:
    """Return the operations of a query: half of a forward and a backward pass."""
    return float(row["forward_operations"] + row["backward_operations"]) / 2


def traced_queries(classes: int) -> dict[str, int]:
    """Return norm to the queries per sample of a whole trace."""
    return {norm: MAX_QUERIES * len(pool(norm, classes=classes, name="paper")) for norm in NORMS}


def autoattack_queries() -> dict[str, float]:
    """Return norm to AutoAttack's mean queries per sample and radius on the embedded models."""
    found: dict[str, list[float]] = {}
    with (DOCS / "results" / "autoattack.csv").open(encoding="utf-8") as file:
        for line in csv.DictReader(file):
            found.setdefault(line["norm"], []).append(float(line["queries"]))
    return {norm: float(np.mean(queries)) for norm, queries in found.items()}


def costs(row: Mapping[str, Any], samples: int) -> tuple[float, float, float]:
    """Return the seconds of tracing, of the default ensemble and of AutoAttack on the GPU.

    Args:
        row: The measured model.
        samples: Number of samples.
    """
    traced = sum(traced_queries(1000 if row["shape"][1] > 32 else 10).values())
    radii = AUTOATTACK_RADII * sum(autoattack_queries().values())
    queries = (traced, TIERS[-1] * len(NORMS), radii)
    first, second, third = (gpu_seconds(row, each, samples) for each in queries)
    return first, second, third


def rehearsal_table(rows: Sequence[Mapping[str, Any]]) -> Table:
    """Return what was run."""
    columns = (
        Column("model"),
        Column("RobustBench"),
        Column("architecture"),
        Column("parameters", "count"),
        Column("checkpoint", "bytes"),
        Column("images", "integer"),
        Column("traced", "integer"),
        Column("evaluated", "integer"),
        Column("units kept"),
        Column("broken"),
        Column("flags", folds=True),
        Column("CPU time", "duration"),
        Column("memory", "bytes"),
    )
    cells = []
    for row in rows:
        traces = [record for record in row["records"] if record["kind"] == "trace"]
        evaluations = [record for record in row["records"] if record["kind"] != "trace"]
        broken = sum(record["broken"] for record in row["records"])
        attacked = sum(record["correct"] for record in row["records"])
        flags: set[str] = set()
        for record in row["records"]:
            flags.update(record["flags"])
        cells.append(
            (
                row["id"],
                row["source"].partition(":")[2],
                row["architecture"],
                row["parameters"],
                row["checkpoint_bytes"],
                row["samples"],
                len(traces),
                len(evaluations),
                f"{row['units_kept']} of {row['units_before']}",
                f"{broken} of {attacked}",
                ", ".join(sorted(flags)) or None,
                row["cpu_seconds"],
                row["peak_bytes"],
            )
        )
    notes = (
        "traced, evaluated: norms in which `bench run` finished",
        (
            "units kept: units that were stored when the run was interrupted, and that the second "
            "run left untouched"
        ),
        "broken: attacked images whose label changed, over all records",
        (
            "flags: of all records; they are to be expected of random weights whose margins are "
            f"small, and of {QUERIES} queries"
        ),
        (
            "CPU time, memory: of all commands of a model together, imports and figures included; "
            "the largest resident set of one of them"
        ),
    )
    return Table("What was run", columns, tuple(cells), notes)


def query_table(rows: Sequence[Mapping[str, Any]]) -> Table:
    """Return what a query costs."""
    columns = (
        Column("model"),
        Column("input"),
        Column("forward, GFLOP", "size", key="forward"),
        Column("backward, GFLOP", "size", key="backward"),
        Column("seconds per query", "number"),
        Column("memory per sample", "bytes"),
        Column("batch", "integer"),
        Column("memory of a batch", "bytes"),
    )
    cells = []
    for row in rows:
        channels, height, width = row["shape"]
        cells.append(
            (
                row["id"],
                f"{channels}×{height}×{width}",
                row["forward_operations"] / 1e9,
                row["backward_operations"] / 1e9,
                float(f"{(row['forward_seconds'] + row['backward_seconds']) / 2:.3g}"),
                row["bytes_per_sample"],
                row["batch"],
                batch_bytes(row),
            )
        )
    notes = (
        (
            "GFLOP: 10⁹ floating-point operations of products and convolutions per sample, a "
            "multiplication and an addition being two; the backward pass is to the image only"
        ),
        (
            "seconds per query: per sample, the mean of a forward and a backward pass, on one "
            "thread of the processor at hand"
        ),
        (
            "memory per sample: what two images allocate beyond one, at the peak of both passes; "
            "memory of a batch: that times the batch of the paper, and the weights"
        ),
    )
    return Table("What a query costs", columns, tuple(cells), notes)


def batch_bytes(row: Mapping[str, Any]) -> int:
    """Return the device memory of the weights and of a batch of the benchmark."""
    return int(row["batch"] * row["bytes_per_sample"] + 4 * row["parameters"])


def cost_table(rows: Sequence[Mapping[str, Any]], absent: Sequence[str], samples: int) -> Table:
    """Return the hours of the whole benchmark on the GPU.

    Args:
        rows: The measured models.
        absent: Ids of models without a source, which are counted like C1.
        samples: Number of samples.
    """
    columns = (
        Column("model"),
        Column("trace, h", "number", key="trace"),
        Column("12k, h", "number", key="ensemble"),
        Column("AutoAttack, h", "number", key="autoattack"),
        Column("all, h", "number", key="all"),
    )
    named = [(row["id"], row) for row in rows]
    for row in rows:
        if row["id"] == LIKE:
            named += [(f"{name} (as {LIKE})", row) for name in absent]
    cells: list[tuple[Any, ...]] = []
    total = np.zeros(3)
    for name, row in named:
        hours = np.array(costs(row, samples)) / 3600
        total += hours
        cells.append((name, *hours.round(1), round(hours.sum(), 1)))
    cells.append(("all", *total.round(0), round(total.sum(), 0)))
    passes = traced_queries(10)
    radii = {norm: round(queries) for norm, queries in autoattack_queries().items()}
    notes = (
        (
            f"{GPU}: {PEAK / 1e12:.0f} TFLOP/s in float32 at its peak, {SUSTAINED:.0%} of it "
            f"assumed to be sustained; {total.sum() / 24:.0f} days in all"
        ),
        (
            f"{samples} samples, none of them misclassified from the start; queries per sample: "
            f"trace {listed(passes)}; 12k in four norms; AutoAttack at {AUTOATTACK_RADII} radii, "
            f"each {listed(radii)}, its means on the embedded models"
        ),
        "passes only: the work of the solvers, of the clean passes and of the files is not counted",
    )
    return Table("What the benchmark costs", columns, tuple(cells), notes)


def listed(numbers: Mapping[str, float]) -> str:
    """Return numbers by norm as text."""
    return ", ".join(f"{value:,} in {norm_symbol(norm)}" for norm, value in numbers.items())


def absent_table(names: Sequence[str]) -> Table:
    """Return what is missing for the models that RobustBench does not have.

    Args:
        names: Their ids.
    """
    columns = (Column("model"), Column("what it is", folds=True), Column("missing", folds=True))
    rows = tuple((name, *ABSENT[name]) for name in names)
    return Table("Models without a source", columns, rows)


def write_page(rows: Sequence[Mapping[str, Any]], paper: Benchmark) -> None:
    """Print the tables, and write them to docs/rehearsal.md and docs/results/rehearsal.json.

    Args:
        rows: The measured models, in the order of the benchmark; those that were run have records.
        paper: The benchmark.
    """
    absent = [model.id for model in paper.models if model.source is None]
    done = [row for row in rows if "records" in row]
    tables = (
        rehearsal_table(done),
        query_table(rows),
        cost_table(rows, absent, paper.samples),
        absent_table(absent),
    )
    print_tables(*tables)
    named = len(paper.models) - len(absent)
    missing = {model.id for model in paper.models} - {*absent, *(row["id"] for row in done)}
    opening = OPENING.format(done=len(done), named=named, run=RUN, queries=QUERIES)
    if missing:
        opening += f"\nBuilt and measured, but not run yet: {', '.join(sorted(missing))}.\n"
    ran = RAN.format(expensive=EXPENSIVE / 1e9, large=LARGE / 1e9)
    parts = ["# A rehearsal of the paper's benchmark", opening]
    for table, text in zip(tables, (ran, COSTS, GPUS, ABSENT_TEXT), strict=True):
        parts += [f"## {table.title}", text, as_markdown(replace(table, title=""))]
    parts.append(CLOSING.format(queries=QUERIES))
    page = "\n\n".join(part.strip() for part in parts) + "\n"
    (DOCS / "rehearsal.md").write_text(page, encoding="utf-8")
    content = {
        "versions": {name: version(name) for name in ("robustbench", "timm", "torch")},
        "queries": QUERIES,
        "run": RUN,
        "gpu": {"name": GPU, "peak": PEAK, "sustained": SUSTAINED},
        "missing": sorted(missing),
        "tables": {table.title: jsonable(table.records()) for table in tables},
        "models": list(rows),
    }
    STORED.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def main() -> int:
    """Rehearse what is missing, then write the page; exit with 1 if a model failed."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--models", nargs="*", help="ids of models (default: all)")
    parser.add_argument("--cached", action="store_true", help="rehearse nothing, write the page")
    options = parser.parse_args()
    torch.set_num_threads(1)
    signal.signal(signal.SIGINT, signal.default_int_handler)  # also where a shell had it ignored
    paper = load_benchmark("paper")
    named = [model.id for model in paper.models if model.source is not None]
    failed = []
    if not options.cached:
        WORK.mkdir(parents=True, exist_ok=True)
        os.chdir(WORK)  # where the sources of the benchmark look for their files
        os.environ["TORCH_HOME"] = str(WORK / "torch")
        benchmark = rehearsed(paper, {name: make_data(name) for name in paper.data})
        for kind in ("costs", "runs"):
            for name in options.models or named:
                if name not in failed and not do_missing(kind, benchmark, name):
                    failed.append(name)
    stored: dict[str, dict[str, Any]] = {}
    if STORED.exists():
        for row in json.loads(STORED.read_text(encoding="utf-8"))["models"]:
            stored[row["id"]] = row
    rows = []
    for name in named:
        row = stored.get(name, {}) | read_row("costs", name) | read_row("runs", name)
        if "shape" in row:
            rows.append(row)
    if rows:
        write_page(rows, paper)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
