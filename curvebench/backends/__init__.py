"""The engines of JAX and PyTorch, which differentiate losses, and compile and execute the steps of runs.

A bundle is a set of runs (lanes) that are computed together, S seeds x K settings; the arrays of all lanes
have the leading axes (S, K). A segment is a number of steps that one call computes, and the carry is the
state that steps change. `curvebench.steps.engine` defines the interface of an engine. The engine of JAX is
one module, `jax_engine`. The engine of PyTorch is in `torch_engine`, with helper modules: `torch_segment`
executes the steps, `torch_replay` records the evaluation of a loss, `torch_compiled` compiles updates and
losses, `torch_native` has fused kernels, and `torch_lane_optimizers` calls optimizer classes of PyTorch.
"""

BACKENDS = ("jax", "torch")


def module_of(backend: str) -> str:
    """Return the dotted name of the module that defines the engine of a backend."""
    return f"curvebench.backends.{backend}_engine"
