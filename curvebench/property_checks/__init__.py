"""Property claims: claims that are tested on random instances instead of runs.

`checks.py` defines the type of a property claim and evaluates claims; the claims themselves are in
`benchmarks/claims`. `searching.py` looks for the instance that comes nearest to violating a bound.
`check_rules.py` computes the hash of a claim's checks.
"""
