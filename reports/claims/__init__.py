"""Verdicts on the claims of the sources, and the evidence for each.

For a claim on runs, `comparison.py` compares two methods seed by seed, `findings.py` decides each comparison,
and `verdicts.py` the claim. `checked.py` has the claims that property checks decide.
"""
