"""Recomputation of a published set: `curvebench sets check --rerun`.

`sample.py` draws runs, and `runs.py` recomputes them. `checks.py` draws and recomputes instances of property
checks.
"""
