"""Array functions with equal meaning on NumPy, JAX and PyTorch, for models and update rules.

`ops.py` defines the functions; the other modules implement them. Workloads and rules receive the functions as
an argument and use no other array functions, so that one definition of a workload or rule runs on every
backend. NumPy in float64 is the reference that tests compare with.
"""
