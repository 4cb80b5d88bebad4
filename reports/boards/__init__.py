"""Scores and ranks of methods over problem instances.

A board compares methods that ran on the same problems. `leaderboard.py` makes the boards of a report,
`scoring.py` scores a table of runs, and `newcomer.py` compares one submission with a published field.
"""
