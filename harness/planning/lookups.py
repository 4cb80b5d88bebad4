"""What Python files find by name at run time, read from their syntax trees: imports do not tell it."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import optimizers
import workloads
from harness import ENTRIES
from harness.backends import BACKENDS
from harness.backends import module_of as module_of_backend
from optimizers import bases


@dataclass(frozen=True)
class Registry:
    """What can be found by name.

    Args:
        all: the function that gives them, by name; called without a name behind it, it gives all.
        module_of: the module that defines one.
        also: what else, besides `all`, finds one when it is handed a name.
        where_named: what finds one where it is handed a name, and none of them where it is not.
    """

    all: Callable[[], Mapping[str, object]]
    module_of: Callable[[str], str]
    also: tuple[str, ...] = ()
    where_named: tuple[str, ...] = ()


def engines() -> Mapping[str, object]:
    """The backends whose engines `harness.backends.engine.engine` finds by name."""
    return dict.fromkeys(BACKENDS)


REGISTRIES = (
    Registry(optimizers.rules, optimizers.module_of, (*ENTRIES, "find_rule")),
    Registry(workloads.workloads, workloads.module_of, ("find_workload",)),
    Registry(bases.bases, bases.module_of),
    Registry(engines, module_of_backend, ("engine",), tuple(ENTRIES)),
)


def looked_up(paths: Iterable[Path]) -> tuple[str, ...]:
    """The modules of all that the files, which share their names, may find by name.

    A name counts where it is a string of its own in any of the files; where a file finds things and none is
    named so, or it asks for all, all count. An entry of `harness` counts with its module.
    """
    nodes = [node for path in paths for node in ast.walk(ast.parse(path.read_bytes()))]
    strings = {node.value for node in nodes if isinstance(node, ast.Constant)}
    used = {alias.name for node in nodes if isinstance(node, ast.ImportFrom) for alias in node.names}
    used |= {node.attr for node in nodes if isinstance(node, ast.Attribute)}
    subscripted = [node.value for node in nodes if isinstance(node, ast.Subscript)]
    called = {
        getattr(node.func, "attr", getattr(node.func, "id", ""))
        for node in nodes
        if isinstance(node, ast.Call) and node not in subscripted
    }
    modules = [module for entry, module in ENTRIES.items() if entry in used]
    for registry in REGISTRIES:
        finds = used.intersection({registry.all.__name__, *registry.also})
        if finds or used.intersection(registry.where_named):
            known = registry.all()
            named = [name for name in known if name in strings]
            everything = bool(finds) and (not named or registry.all.__name__ in called)
            modules += [registry.module_of(name) for name in (known if everything else named)]
    return tuple(dict.fromkeys(modules))
