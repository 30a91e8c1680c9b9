"""What a reader sees: terminal tables, the HTML report, figures for papers, comparisons and leaderboards.

Nothing here computes a metric: everything shown was computed by `evaluation` and arrives as plain data.
"""

from advfrontier.report.comparison import comparison_text, print_comparison, write_comparison
from advfrontier.report.figures import write_comparison_figure, write_figures
from advfrontier.report.html import write_report
from advfrontier.report.leaderboard import print_ranking, ranking_csv, ranking_text, write_leaderboard
from advfrontier.report.terminal import print_summaries, summaries_text

__all__ = [
    "comparison_text",
    "print_comparison",
    "print_ranking",
    "print_summaries",
    "ranking_csv",
    "ranking_text",
    "summaries_text",
    "write_comparison",
    "write_comparison_figure",
    "write_figures",
    "write_leaderboard",
    "write_report",
]
