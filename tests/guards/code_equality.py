"""Guard of the code: which Python files of two trees are equal without docstrings, comments and local names.

`python -m tests.guards.code_equality OLD [NEW]` compares two git revisions, or OLD with the working tree, of
which git must know new files (`git add`). Git finds renamed files. It prints the definitions that differ; the
status is then 1.

Two definitions are equal when the compiler makes the same instructions of their syntax trees, once docstrings
and positions are removed and local names are numbered in the order of their use. A local name is one that no
code outside of a function can use: a variable, a nested function, a parameter that has no annotation and
cannot be passed by keyword. Annotations of local variables are not compared, and names in a text that `eval`
reads are not numbered.
"""

from __future__ import annotations
import __future__

import ast
import dis
import subprocess
import sys
from collections.abc import Hashable, Iterator, Sequence
from pathlib import Path
from types import CodeType

CLOSURES = {"MAKE_CELL", "LOAD_CLOSURE"}  # in alphabetical order, and implied by what inner functions use
WITH_BODY = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
START = {"lineno": 1, "end_lineno": 1, "col_offset": 0, "end_col_offset": 0}


def definitions(source: str) -> list[tuple[str, Hashable]]:
    """Return the statements of a module, each with a name and with its instructions."""
    tree = ast.parse(source)
    for node in ast.walk(tree):
        if isinstance(node, WITH_BODY):
            node.body = [each for each in node.body if not _is_text(each)] or [ast.Pass()]
    named = [(getattr(each, "name", ast.unparse(each).partition("\n")[0][:60]), each) for each in tree.body]
    for node in ast.walk(tree):
        vars(node).update(START if "lineno" in node._attributes else {})  # positions change the instructions
    modules = [(name, ast.Module([each], type_ignores=[])) for name, each in named]
    flags = __future__.annotations.compiler_flag
    return [
        (name, tuple(_instructions(compile(module, name, "exec", flags, dont_inherit=True, optimize=0))))
        for name, module in modules
    ]


def _is_text(node: ast.stmt) -> bool:
    return (
        isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    )


def _instructions(code: CodeType, *outer: dict[str, Hashable]) -> Iterator[Hashable]:
    """Yield what compiled code does, with numbers for local names.

    Args:
        outer: the local names of the functions around it, the innermost first, each with its number; None
            of names that have not been used yet.
    """
    by_keyword = code.co_varnames[code.co_posonlyargcount : code.co_argcount + code.co_kwonlyargcount]
    own: dict[str, Hashable] = dict.fromkeys((*code.co_varnames, *code.co_cellvars))
    own |= {name: name for name in by_keyword}
    yield code.co_argcount, code.co_posonlyargcount, by_keyword, code.co_flags, code.co_exceptiontable

    def number(name: str) -> Hashable:
        names = next(names for names in (own, *outer) if name in names)
        if names[name] is None:
            names[name] = (len(outer), sum(given is not None for given in names.values()))
        return names[name]

    for each in dis.get_instructions(code):
        if each.opname in CLOSURES:
            continue
        if isinstance(each.argval, CodeType):
            yield each.opname, tuple(_instructions(each.argval, own, *outer))
        elif each.opcode in dis.haslocal or each.opcode in dis.hasfree:
            names = each.argval if isinstance(each.argval, tuple) else (each.argval,)
            yield each.opname, tuple(map(number, names))
        else:
            yield each.opname, repr(each.argval)


def differing(old: str, new: str) -> list[str]:
    """Return the names of the statements of a module that differ; `order` where only their order does."""
    before, after = definitions(old), definitions(new)
    if before == after:
        return []
    return [*dict.fromkeys(name for name, _ in {*before} ^ {*after})] or ["order"]


def compare(old: str, new: str | None = None, folder: Path = Path()) -> dict[str, list[str]]:
    """Return what differs by file, among the files that git finds changed between two revisions.

    Args:
        new: a revision; None: the working tree.
    """

    def git(*arguments: str) -> str:
        return subprocess.run(
            ["git", *arguments], cwd=folder, capture_output=True, text=True, check=True
        ).stdout

    revisions = [old] if new is None else [old, new]
    words = iter(
        git("diff", "--name-status", "--find-renames", "-z", *revisions, "--", "*.py").split("\0")[:-1]
    )
    found = {}
    for status in words:
        path = next(words)
        if status in ("A", "D"):
            found[path] = ["added" if status == "A" else "removed"]
            continue
        target = next(words) if status[0] == "R" else path
        text = (folder / target).read_text() if new is None else git("show", f"{new}:{target}")
        found[target] = differing(git("show", f"{old}:{path}"), text)
    return found


def main(arguments: Sequence[str]) -> int:
    """Print what differs, by file, and return 1 if something does."""
    old, *rest = arguments
    found = compare(old, rest[0] if rest else None)
    different = {path: names for path, names in sorted(found.items()) if names}
    for path, names in different.items():
        print(f"{path}: {', '.join(names)}")
    print(f"{len(different)} of {len(found)} files differ by more than docstrings, comments and local names")
    return 1 if different else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
