"""curvebench: benchmarks of adaptive and curvature-aware optimizers.

Everything that rules, workloads, property claims and analyses are written with is imported from here, for
instance `from curvebench import replay`. Names are loaded at first use, so that `import curvebench` is cheap.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from curvebench.engine.replaying import Online as Online
    from curvebench.engine.replaying import replay as replay
    from curvebench.interop.optax_transformation import as_optax as as_optax
    from curvebench.interop.torch_export import as_torch as as_torch

__version__ = "0.1.0"

EXPORTS = {  # public names and the modules that define them
    "Online": "curvebench.engine.replaying",
    "as_optax": "curvebench.interop.optax_transformation",
    "as_torch": "curvebench.interop.torch_export",
    "replay": "curvebench.engine.replaying",
}
__all__ = ["Online", "as_optax", "as_torch", "replay"]


def __getattr__(name: str) -> Any:
    """Import a public name from the module that defines it (PEP 562)."""
    if name in EXPORTS:
        return getattr(importlib.import_module(EXPORTS[name]), name)
    raise AttributeError(f"module 'curvebench' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *EXPORTS})
