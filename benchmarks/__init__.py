"""Studies, property claims and kernel benchmarks: everything that the project measures.

Studies are YAML files in `studies/`, one question per file; `claims/` has property claims, which random
instances decide; `kernels/` has the pieces of work that are timed over commits.
"""
