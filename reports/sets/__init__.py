"""Published sets: how they are written, checked, compared and reproduced.

A published set is a folder with the tables of a report, their plan, verdicts and checksums. `publish.py`
writes a set, `checking.py` accepts or refuses a set, `comparing.py` compares two sets, and `reproduce.py`
runs a claim of a set again. The plan of a set lists its studies and property checks.
"""
