"""Command about unions of norms."""

# ruff: noqa: PLC0415  # torch and the report are imported when a command runs, not for --help

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter

from advfrontier.cli.options import Json

_RADII = Parameter(
    name=("--radii", "--eps"),
    help="Radius of each norm, as in L1=12,L2=0.5,Linf=8/255; without names in the order of the "
    "records.",
)
_AT = Parameter(help="Shares of the radii at which robust accuracy is read, several with commas.")


def union_command(
    *records: str,
    radii: Annotated[str, _RADII],
    at: Annotated[str, _AT] = "1",
    html: str | None = None,
    csv: str | None = None,
    json: Json = False,
) -> None:
    """Measure models against several norms at once, from their records.

    A sample counts as broken at t if any of the norms breaks it within t times its radius, so t = 1
    stands for all radii at once. Nothing is attacked. Two models are compared, and two or more are
    ranked.

    Args:
        records: Folders of evaluations on the same samples, in each of the norms.
        html: HTML file of the curves and ranks (default: none).
        csv: CSV file with a row per model and sample (default: none).
    """
    from advfrontier import report
    from advfrontier.cli.output import say, show
    from advfrontier.errors import FrontierError
    from advfrontier.evaluation.radii import parse_radii
    from advfrontier.evaluation.union import compare_unions, rank_unions, unions
    from advfrontier.jsonable import jsonable
    from advfrontier.record import write_file

    if not records:
        raise FrontierError(
            "nothing to unite: expected folders of evaluations, such as runs/mine/L1 runs/mine/L2"
        )
    shares = parse_radii(at)
    if not shares or "=" in at:
        raise FrontierError(f"{at!r} are no shares: expected numbers such as 0.5,1,2")
    found = unions(records, radii=radii)
    sizes = [size for _, size in shares]
    facts = [union.to_dict(sizes) for union in found]
    tables = report.union_tables(found, shares)
    ranking = rank_unions(found, dict(shares))
    if len(found) == 2:
        tables.append(report.unions_compared(compare_unions(*found)))
    if len(found) > 1:
        tables += report.rank_tables(ranking)
    show(*tables, facts={"models": facts, "ranking": jsonable(ranking)}, as_json=json)
    if csv is not None:
        content = report.unions_csv(found).encode()
        say(f"table: {write_file(csv, content, mark=report.UNIONS_MARK)}", as_json=json)
    if html is not None:
        title = "Robustness against several norms at once"
        say(f"page: {report.write_leaderboard(html, ranking, title=title)}", as_json=json)
