"""Commands about what comes with the program: zoo, pool."""

# ruff: noqa: PLC0415  # torch and the report are imported when a command runs, not for --help

from __future__ import annotations

from cyclopts import App

zoo_command = App(name="zoo", help="The embedded models.")


@zoo_command.command(name="list")
def list_models() -> None:
    """List the models."""
    from advfrontier.report import print_tables
    from advfrontier.table import Column, Table
    from advfrontier.zoo import MODELS

    columns = (
        Column("name"),
        Column("description", folds=True),
        Column("norm"),
        Column("radius", "number"),
        Column("clean accuracy (%)", "percent"),
        Column("split"),
    )
    rows = []
    for card in MODELS.values():
        radius = "" if card.radius is None else card.radius
        accuracy = card.clean_accuracy
        rows.append((card.name, card.title, card.norm or "", radius, accuracy, card.split))
    print_tables(Table("", columns, tuple(rows)))


@zoo_command.command(name="card")
def show_card(model: str, /) -> None:
    """Show the facts about one model.

    Args:
        model: Name of a model: F1 to F18.
    """
    from advfrontier.zoo import find_card

    card = find_card(model)
    lines = {
        "name": card.name,
        "description": card.title,
        "architecture": f"{card.architecture}, {card.parameters} parameters",
        "recipe": card.recipe.words(),
        "clean accuracy": f"{card.clean_accuracy:.1%}",
    }
    for norm, share in card.pgd_accuracy.items():
        lines[f"accuracy under PGD in {norm} at {card.radii[norm]:g}"] = f"{share:.1%}"
    lines["split"] = card.split
    lines["training"] = f"{card.minutes:.1f} minutes of one core"
    lines["SHA-256 of the weights"] = card.sha256
    for name, value in lines.items():
        print(f"{name}: {value}")


@zoo_command.command(name="train")
def train_model(model: str, /, *, data: str | None = None, out: str | None = None) -> None:
    """Train one of the models again, by its recipe.

    Interrupted? Run the same command again to resume.

    Args:
        model: Name of a model: F1 to F18.
        data: Folder of the four IDX files of Fashion-MNIST (default: where the Debian package puts
            them).
        out: Output folder of the weights (default: the current folder).
    """
    from advfrontier.errors import printable
    from advfrontier.zoo import train

    print(f"weights: {printable(train(model, data, out))}")


def pool_command(*, norm: str = "Linf", classes: int = 10, pool: str = "paper") -> None:
    """List the runs of a pool.

    Args:
        norm: L0, L1, L2 or Linf.
        classes: Number of classes of the model.
        pool: Name of the pool: paper, extended (with attacks beyond it), or black-box.
    """
    from advfrontier.pool import pool as runs_of_pool

    for run in runs_of_pool(norm, classes=classes, name=pool):
        print(run)
