"""Kernel benchmarks: computations that are timed over commits and compared with other libraries."""
