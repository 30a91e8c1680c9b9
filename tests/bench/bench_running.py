"""What tests of running a benchmark look at, and how they change one."""

from pathlib import Path

from advfrontier.bench import Bench


def units_of(tasks):
    """The units that were done, by the names of the record's folder and the run."""
    done = [(place, part.unit) for place, task in tasks for part in getattr(task, "parts", ())]
    return [(*Path(place).parts[-2:], unit.run, unit.first) for place, unit in done]


def files(folder):
    return {
        path.relative_to(folder): path.read_bytes()
        for path in Path(folder).rglob("*")
        if path.is_file()
    }


def with_budgets(bench, *budgets):
    return Bench(bench.benchmark.model_copy(update={"budgets": budgets}), bench.out)


def with_baseline(bench):
    return Bench(bench.benchmark.model_copy(update={"baseline": "autoattack"}), bench.out)
