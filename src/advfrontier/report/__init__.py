"""What a reader sees: tables, the HTML report, figures for papers, comparisons and leaderboards.

Nothing here computes a metric: everything shown was computed by `frontier` and `evaluation`.
"""

from advfrontier.report.figures import write_figures
from advfrontier.report.html import (
    comparison_table,
    write_comparison,
    write_leaderboard,
    write_report,
)
from advfrontier.report.render import print_tables
from advfrontier.report.summary import rank_tables, ranking_csv, summary_tables

__all__ = [
    "comparison_table", "print_tables", "rank_tables", "ranking_csv", "summary_tables", "write_comparison",
    "write_figures", "write_leaderboard", "write_report",
]  # fmt: skip
