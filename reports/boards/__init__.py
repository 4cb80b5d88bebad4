"""Scores and ranks of methods over problem instances.

A board compares methods that ran on the same problems: a method is an optimizer in a basis, and a problem is
a workload of a study on one backend. `leaderboard.py` makes the boards of a report. `scoring.py` scores a
table of runs. `submission.py` compares a submission (one method that its author adds to a published study)
with the field (the methods of the published study).
"""
