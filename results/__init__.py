"""Typed Parquet tables of runs and verdicts, their provenance, and functions that write, read and merge them.

`schema.py` defines the tables. This package also has the pure functions on tables that jobs and reports
share, such as the choice of a setting by tuning (`tuning.py`).
"""
