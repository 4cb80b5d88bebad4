"""Array functions with equal meaning on NumPy, JAX and PyTorch, for models and update rules."""
