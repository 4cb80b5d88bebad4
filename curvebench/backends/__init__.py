"""The engines of JAX and PyTorch, which differentiate losses, compile the steps of a bundle and execute them.

The interface of an engine is in `curvebench.steps.engine`. JAX has one module. For PyTorch, `torch_engine` is
the
entry: it compiles a general step (`torch_compiled`), or uses a fused kernel of PyTorch (`torch_native`), and
`torch_lane_optimizers` takes the steps of an optimizer class of PyTorch.
"""

BACKENDS = ("jax", "torch")


def module_of(backend: str) -> str:
    """Return the dotted name of the module with a backend's engine."""
    return f"curvebench.backends.{backend}_engine"
