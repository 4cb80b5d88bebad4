"""The array functions that workloads, models and update rules are written in, on NumPy, JAX and PyTorch."""
