"""Published sets: how they are written, checked, compared and reproduced.

A published set is a folder of tables with their plan, verdicts and checksums. `publish.py` writes one,
`checking.py` accepts or refuses one, and `reproduce.py` runs one of its claims again.
"""
