"""One optimization step of a bundle, as pure functions that every backend shares, and the interface of an
engine.

A step is `point` (where the gradient is taken), `evaluate` (loss, gradient and needs) and `apply` (the
update); `program.py` has all three. `layout.py` puts parameters into one flat buffer, and `update.py` calls
the rule on the parts of the buffer.
"""
