"""One optimization step, as pure functions that every backend shares, and the interface of an engine.

A bundle is a set of runs that one program computes together. The runs are called lanes: one lane for each of
S seeds and K settings of the hyperparameters, so that arrays have the leading axes (S, K). A step consists of
`point` (where the gradient is taken), `evaluate` (loss, gradient, and other values that the update rule
needs) and `apply` (the update); `program.py` defines all three. `layout.py` puts the parameters into one flat
buffer, and `update.py` calls the update rule on groups of entries of this buffer. An engine (`engine.py`)
executes the steps with the library of a backend, JAX or PyTorch.
"""
