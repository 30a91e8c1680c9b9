"""Reports: tables, pages, figures for papers, comparisons and leaderboards.

This room computes no metric: `frontier` and `evaluation` have computed everything shown here.
"""

from advfrontier.report.figures import write_figures
from advfrontier.report.html import write_comparison, write_leaderboard, write_report
from advfrontier.report.render import print_tables
from advfrontier.report.summary import comparison_table, rank_tables, ranking_csv, summary_tables
from advfrontier.report.unions import (
    UNIONS_MARK,
    union_tables,
    unions_compared,
    unions_csv,
)

__all__ = [
    "UNIONS_MARK",
    "comparison_table",
    "print_tables",
    "rank_tables",
    "ranking_csv",
    "summary_tables",
    "union_tables",
    "unions_compared",
    "unions_csv",
    "write_comparison",
    "write_figures",
    "write_leaderboard",
    "write_report",
]
