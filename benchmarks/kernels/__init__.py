"""Kernel benchmarks: pieces of work that are timed over commits and compared with other libraries."""
