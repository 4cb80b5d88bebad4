"""Studies, property claims and kernel benchmarks: everything that the project measures.

Studies are YAML files in `studies/`, one question per file; `claims/` has property claims, mathematical
statements that are tested on random instances; `kernels/` has the computations that are timed over commits.
"""
