"""Verdicts on the claims of the sources, and the evidence for each."""
