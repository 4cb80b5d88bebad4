"""curvebench: benchmarks of adaptive and curvature-aware optimizers.

The names for writing update rules, workloads, property claims and analyses are imported from this package,
for example `from curvebench import Rule, as_torch, load`. The imports below list the public names. Only type
checkers execute these imports. At run time a name is imported at its first use, so that `import curvebench`
is fast and imports neither PyTorch nor JAX before they are needed.
"""

from __future__ import annotations

import ast
import importlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from curvebench.arrays.numpy_ops import numpy_ops as numpy_ops
    from curvebench.backends.engine import engine as make_engine
    from curvebench.commands.comparing import ComparedModel as ComparedModel
    from curvebench.commands.comparing import compare as compare
    from curvebench.engine.bundle import Bundle as Bundle
    from curvebench.engine.execution import execute as execute
    from curvebench.interop.optax_transformation import as_optax as as_optax
    from curvebench.interop.replaying import Online as Online
    from curvebench.interop.replaying import replay as replay
    from curvebench.interop.torch_layer_optimizer import as_torch as as_torch
    from curvebench.loading import LoadedResults as LoadedResults
    from curvebench.loading import load as load
    from curvebench.loading import published as published
    from curvebench.optimizers.arrays import Array as Array
    from curvebench.optimizers.arrays import Ops as Ops
    from curvebench.optimizers.needs import LossAtPoint as LossAtPoint
    from curvebench.optimizers.needs import Need as Need
    from curvebench.optimizers.rule import LEARNING_RATE as LEARNING_RATE
    from curvebench.optimizers.rule import Hyperparameter as Hyperparameter
    from curvebench.optimizers.rule import Rule as Rule
    from curvebench.property_checks.checks import CORRECTED as CORRECTED
    from curvebench.property_checks.checks import PRINTED as PRINTED
    from curvebench.property_checks.checks import Check as Check
    from curvebench.property_checks.checks import Measure as Measure
    from curvebench.property_checks.checks import PropertyClaim as PropertyClaim
    from curvebench.property_checks.checks import Series as Series
    from curvebench.registry import find_rule as find_rule
    from curvebench.registry import find_workload as find_workload
    from curvebench.reports.statistics.profiles import score_intervals as score_intervals
    from curvebench.results.reading import named as named
    from curvebench.seeding import WorkloadRandom as WorkloadRandom
    from curvebench.spec.errors import InputError as InputError
    from curvebench.workloads.arguments import Arrays as Arrays
    from curvebench.workloads.arguments import Random as Random
    from curvebench.workloads.arguments import Settings as Settings
    from curvebench.workloads.workload import Likelihood as Likelihood
    from curvebench.workloads.workload import Metric as Metric
    from curvebench.workloads.workload import Problem as Problem
    from curvebench.workloads.workload import Role as Role
    from curvebench.workloads.workload import Setting as Setting
    from curvebench.workloads.workload import Start as Start
    from curvebench.workloads.workload import Workload as Workload

__version__ = "0.2.0"


def _public() -> dict[str, tuple[str, str]]:
    """Return, for each public name, the module that defines it and its name in that module.

    Both are read from the source of the imports above.
    """
    tree = ast.parse(Path(__file__).read_text(encoding="utf-8"))
    (block,) = (node for node in tree.body if isinstance(node, ast.If))
    nodes = (node for node in block.body if isinstance(node, ast.ImportFrom))
    return {str(name.asname): (str(node.module), name.name) for node in nodes for name in node.names}


_PUBLIC = _public()
EXPORTS = {name: module for name, (module, _) in _PUBLIC.items()}
__all__ = [*EXPORTS]  # noqa: PLE0604  # all strings


def __getattr__(name: str) -> Any:
    """Import a public name from the module that defines it (PEP 562)."""
    if name in _PUBLIC:
        module, attribute = _PUBLIC[name]
        return getattr(importlib.import_module(module), attribute)
    raise AttributeError(f"module 'curvebench' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *EXPORTS})
