"""How a run happens: studies, the plan of jobs, execution on backends, tuning and timing."""

from __future__ import annotations

import importlib
from typing import Any

__all__ = ["Online", "replay"]


def __getattr__(name: str) -> Any:
    """Import the public entries late, so that `import harness` stays cheap for the Snakefile."""
    if name in ("Online", "replay"):
        return getattr(importlib.import_module("harness.replaying"), name)
    raise AttributeError(f"module 'harness' has no attribute {name!r}")
