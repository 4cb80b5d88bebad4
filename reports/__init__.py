"""From tables to pages: statistics, verdicts, figures, leaderboard and the static site.

A report reads a plan (`plan.json`) and tables, and imports nothing that executes runs. `measures.py` computes
values per run; `statistics`, `claims`, `boards` and `figures` build on them; `pages` fills the templates;
`sets` publishes the tables.
"""
