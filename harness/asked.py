"""What property checks ask as far as their source says it: quantities, relations, limits and tolerances.

Nothing is drawn for it. A measure is read from its call, such as `Measure("loss", value, "<=", BOUND)`; what
is computed for each instance, such as a limit or a part of a quantity's name, stays open.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

from harness.checks import Check, Measure
from results.set_plan import OPEN

FIELDS = tuple(Measure.__dataclass_fields__)  # in the order in which they are given
ARITHMETIC: Mapping[type[ast.AST], Callable[..., Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.Pow: operator.pow,
    ast.USub: operator.neg,
}
BRANCHING = (  # what lies inside may not happen, or happen later
    ast.If,
    ast.IfExp,
    ast.BoolOp,
    ast.Match,
    ast.Try,
    ast.For,
    ast.While,
    ast.comprehension,
    ast.ListComp,
    ast.SetComp,
    ast.DictComp,
    ast.GeneratorExp,
    ast.Lambda,
    ast.FunctionDef,
    ast.ClassDef,
)
LEAVING = (ast.Return, ast.Continue, ast.Break)
Function = ast.FunctionDef | ast.ClassDef


def described(check: Check, scale: str) -> dict[str, Any]:
    """A part of a claim as plan.json has it, for whoever checks a published set."""
    return {
        "part": check.part,
        "variant": check.variant,
        "source": check.source,
        "instances": check.count(scale),
        "asks": asks(check, scale),
    }


def asks(check: Check, scale: str) -> list[dict[str, Any]]:
    """The measures that a part may give: `quantity` (with `OPEN` in it), `relation`, `limit`, `tolerance`.

    What the source does not say is None. `always` is whether every instance gives it. They are those of the
    function that measures the part, and of all in its file that it reaches by name; of the whole file where
    it is not defined at the file's top.
    """
    given = check.at(scale)
    function = getattr(given, "func", given)  # of a partial
    defined = _functions(function.__module__)
    start = defined.get(getattr(function, "__name__", ""))  # an object that is called has no name
    waiting = list(defined) if start is None else [start.name]
    always = set() if start is None else {id(node) for node in _calls(start) if _is_straight(start, node)}
    reached: set[str] = set()
    found: dict[str, dict[str, Any]] = {}
    while waiting:
        name = waiting.pop()
        if name in reached:
            continue
        reached.add(name)
        names = {node.id for node in ast.walk(defined[name]) if isinstance(node, ast.Name)}
        waiting.extend(names & defined.keys())
        for call in _calls(defined[name]):
            said = _said(call, _known(defined[name], function.__module__))
            before = found.get(repr(said), said | {"always": False})
            found[repr(said)] = said | {"always": before["always"] or id(call) in always}
    return [found[key] for key in sorted(found)]


def _functions(module: str) -> Mapping[str, Function]:
    """What is defined at the top of a module's file."""
    path = import_module(module).__file__
    assert path is not None, "claims are read from files"
    return {node.name: node for node in _body(Path(path).read_bytes()) if isinstance(node, Function)}


@cache
def _body(source: bytes) -> list[ast.stmt]:
    return ast.parse(source).body


def _calls(node: ast.AST) -> Iterator[ast.Call]:
    for inner in ast.walk(node):
        if (
            isinstance(inner, ast.Call)
            and isinstance(inner.func, ast.Name)
            and inner.func.id == Measure.__name__
        ):
            yield inner


def _is_straight(function: Function, call: ast.Call) -> bool:
    """Whether a function comes by one of its calls whenever it runs: it is in no branch, loop or lambda."""
    leaving = [node for node in ast.walk(function) if isinstance(node, LEAVING)]
    if any(node is not function.body[-1] for node in leaving):
        return False
    waiting: list[ast.AST] = [*function.body]
    while waiting:
        node = waiting.pop()
        if node is call:
            return True
        if not isinstance(node, BRANCHING):
            waiting += ast.iter_child_nodes(node)
    return False


def _known(function: Function, module: str) -> Mapping[str, Any]:
    """What names mean in a function, of those that it does not give itself."""
    nodes = list(ast.walk(function))
    own = {node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    own |= {node.arg for node in nodes if isinstance(node, ast.arg)}
    return {name: value for name, value in vars(import_module(module)).items() if name not in own}


def _said(call: ast.Call, known: Mapping[str, Any]) -> dict[str, Any]:
    given = dict(zip(FIELDS, call.args, strict=False))
    given |= {each.arg: each.value for each in call.keywords if each.arg is not None}
    relation = _value(given.get("relation"), known)
    limit = _value(given.get("limit"), known)
    tolerance = _value(given["tolerance"], known) if "tolerance" in given else 0.0
    return {
        "quantity": _text(given.get("quantity"), known),
        "relation": relation,
        "limit": None if limit is None else float(limit),
        "tolerance": None if tolerance is None else float(tolerance),
    }


def _text(node: ast.expr | None, known: Mapping[str, Any]) -> str:
    if isinstance(node, ast.JoinedStr):
        return "".join(_text(part, known) for part in node.values)
    found = _value(node, known)
    return found if isinstance(found, str) else OPEN


def _value(node: ast.expr | None, known: Mapping[str, Any]) -> Any:
    """A number or text that is written out, named at the file's top, or computed from such; else None."""
    found: Any = None
    if isinstance(node, ast.Constant):
        found = node.value
    elif isinstance(node, ast.Name):
        found = known.get(node.id)
    elif isinstance(node, ast.UnaryOp | ast.BinOp) and type(node.op) in ARITHMETIC:
        parts = [node.operand] if isinstance(node, ast.UnaryOp) else [node.left, node.right]
        values = [_value(part, known) for part in parts]
        if all(isinstance(each, int | float) for each in values):
            found = ARITHMETIC[type(node.op)](*values)
    return found if isinstance(found, int | float | str) else None
