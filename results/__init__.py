"""The record of runs: typed Parquet tables, their provenance, and how they are written, read and merged.

`schema.py` defines the tables. This package also has the few pure functions on tables that jobs and reports
share, such as the choice of a setting by tuning (`tuning.py`).
"""
