"""Commands about what comes with the program: zoo, pool."""

from __future__ import annotations

from cyclopts import App

from advfrontier.pool import pool as pool_of
from advfrontier.table import Column, Table

zoo_command = App(name="zoo", help="The embedded models.")


@zoo_command.command(name="list")
def list_models() -> None:
    """Show the models."""
    from advfrontier.report import print_tables  # noqa: PLC0415
    from advfrontier.zoo import MODELS  # noqa: PLC0415

    columns = (
        Column("name"), Column("what it is", folds=True), Column("norm"), Column("radius", "number"),
        Column("clean accuracy %", "percent"), Column("split"),
    )  # fmt: skip
    rows = [(c.name, c.title, c.norm or "", "" if c.radius is None else c.radius, c.clean_accuracy, c.split)
            for c in MODELS.values()]  # fmt: skip
    print_tables(Table("", columns, tuple(rows)))


@zoo_command.command
def card(model: str, /) -> None:
    """Show what is known of one model.

    Args:
        model: F1 to F17.
    """
    from advfrontier.zoo import find_card  # noqa: PLC0415

    about = find_card(model)
    shares = {
        f"accuracy under PGD in {norm} at {about.radii[norm]:g}": v
        for norm, v in about.pgd_accuracy.items()
    }
    lines = {
        "name": about.name,
        "what it is": about.title,
        "architecture": f"{about.architecture}, {about.parameters} parameters",
        "recipe": about.recipe.words(),
        "clean accuracy": f"{about.clean_accuracy:.1%}",
        **{what: f"{share:.1%}" for what, share in shares.items()},
        "split": about.split,
        "training": f"{about.minutes:.1f} minutes of one core",
        "SHA-256 of the weights": about.sha256,
    }
    for what, value in lines.items():
        print(f"{what}: {value}")


@zoo_command.command
def train(model: str, /, *, data: str | None = None, out: str | None = None) -> None:
    """Train one of the models anew, by its recipe. Killed, the same command goes on.

    Args:
        model: F1 to F17.
        data: Folder of the four IDX files of Fashion-MNIST; by default where the Debian package puts them.
        out: Folder for the weights.
    """
    from advfrontier.zoo import train as train_model  # noqa: PLC0415

    print(f"weights: {train_model(model, data, out)}")


def pool_command(*, norm: str = "Linf", classes: int = 10, pool: str = "paper") -> None:
    """List the runs of a pool.

    Args:
        norm: L0, L1, L2 or Linf.
        classes: How many classes the model has.
        pool: paper, or extended with attacks beyond it.
    """
    for run in pool_of(norm, classes=classes, name=pool):
        print(run)
