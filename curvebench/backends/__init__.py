"""The engines of JAX and PyTorch, which differentiate losses, and compile and execute the steps of runs.

A bundle is a set of runs (lanes) that are computed together, S seeds x K settings; the arrays of all lanes
have the leading axes (S, K). A segment is a stretch of steps that one call takes, and the carry is the state
that steps change. The interface of an engine is in `curvebench.steps.engine`. JAX has one module. For
PyTorch, `torch_engine` is the entry; `torch_segment` takes the steps, `torch_replay` records the evaluation
of a loss, `torch_compiled` compiles updates and losses, `torch_native` has fused kernels, and
`torch_lane_optimizers` calls optimizer classes of PyTorch.
"""

BACKENDS = ("jax", "torch")


def module_of(backend: str) -> str:
    """Return the dotted name of the module with a backend's engine."""
    return f"curvebench.backends.{backend}_engine"
