"""Claims that are tested on random instances instead of runs.

`checks.py` defines such a claim and evaluates it; `benchmarks/claims` has the claims. `searching.py` looks
for the instance that comes nearest to breaking a bound.
"""
