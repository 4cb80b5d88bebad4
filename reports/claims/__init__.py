"""Verdicts on the claims of the sources, and what they rest on."""
