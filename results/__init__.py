"""The record of runs: typed Parquet tables, their provenance, and how machines' tables are put together."""
