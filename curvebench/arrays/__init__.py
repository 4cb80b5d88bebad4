"""Array functions with equal meaning on NumPy, JAX and PyTorch, for models and update rules.

`ops.py` defines the functions; the other modules implement them. Workloads and rules receive the functions as
an argument and use no others, so that one definition runs on every backend. NumPy in float64 is the reference
that tests compare with.
"""
