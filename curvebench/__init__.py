"""How a run happens: studies, the plan of jobs, execution on backends, tuning and timing."""

from __future__ import annotations

import importlib
from typing import Any

ENTRIES = {
    "Online": "curvebench.engine.replaying",
    "replay": "curvebench.engine.replaying",
    "as_optax": "curvebench.interop.optax_transformation",
    "as_torch": "curvebench.interop.torch_export",
}
__all__ = ["Online", "as_optax", "as_torch", "replay"]


def __getattr__(name: str) -> Any:
    """Import the public entries late, so that `import harness` stays cheap for the Snakefile."""
    if name in ENTRIES:
        return getattr(importlib.import_module(ENTRIES[name]), name)
    raise AttributeError(f"module 'harness' has no attribute {name!r}")
