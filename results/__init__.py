"""The record of runs: typed Parquet tables, their provenance, and the merging of tables from several
machines.
"""
