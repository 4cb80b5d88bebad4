"""Guard of the code: which Python files of two trees are equal apart from docstrings, comments and local
names.

`python -m tests.guards.code_equality OLD [NEW]` compares two git revisions, or OLD with the working tree,
whose new files git must know (`git add`). Git finds renamed files. It prints the definitions that differ; the
exit status is then 1.

Two definitions are equal if their syntax trees compile to the same instructions, after docstrings and
positions are removed and local names are numbered in the order of use. A local name is a name that code
outside of a function cannot use: a variable, a nested function, or a parameter without annotation that cannot
be passed by keyword. Annotations of local variables are not compared, and names in a text that `eval` reads
are not numbered.
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

# These instructions are in the order of names, and follow from the names that inner functions use.
CLOSURES = {"MAKE_CELL", "LOAD_CLOSURE"}
WITH_BODY = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
START = {"lineno": 1, "end_lineno": 1, "col_offset": 0, "end_col_offset": 0}


def definitions(source: str) -> list[tuple[str, Hashable]]:
    """Return the statements of a module, each with a name and with its instructions."""
    tree = ast.parse(source)
    for node in ast.walk(tree):
        if isinstance(node, WITH_BODY):
            node.body = [item for item in node.body if not _is_text(item)] or [ast.Pass()]
    items = [(getattr(item, "name", ast.unparse(item).partition("\n")[0][:60]), item) for item in tree.body]
    for node in ast.walk(tree):
        vars(node).update(START if "lineno" in node._attributes else {})  # positions change the instructions
    modules = [(name, ast.Module([item], type_ignores=[])) for name, item in items]
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
    """Yield the instructions of compiled code, with numbers for local names.

    Args:
        code: the code.
        outer: the local names of the enclosing functions, the innermost first. Each name has a number, or
            None if it has not been used yet.
    """
    by_keyword = code.co_varnames[code.co_posonlyargcount : code.co_argcount + code.co_kwonlyargcount]
    numbers: dict[str, Hashable] = dict.fromkeys((*code.co_varnames, *code.co_cellvars))
    numbers |= {name: name for name in by_keyword}
    yield code.co_argcount, code.co_posonlyargcount, by_keyword, code.co_flags, code.co_exceptiontable

    def number(name: str) -> Hashable:
        names = next(names for names in (numbers, *outer) if name in names)
        if names[name] is None:
            names[name] = (len(outer), sum(index is not None for index in names.values()))
        return names[name]

    for step in dis.get_instructions(code):
        if step.opname in CLOSURES:
            continue
        if isinstance(step.argval, CodeType):
            yield step.opname, tuple(_instructions(step.argval, numbers, *outer))
        elif step.opcode in dis.haslocal or step.opcode in dis.hasfree:
            names = step.argval if isinstance(step.argval, tuple) else (step.argval,)
            yield step.opname, tuple(map(number, names))
        else:
            yield step.opname, repr(step.argval)


def differing(old: str, new: str) -> list[str]:
    """Return the names of the statements that differ between two modules; `order` if only their order
    differs.
    """
    before, after = definitions(old), definitions(new)
    if before == after:
        return []
    return [*dict.fromkeys(name for name, _ in {*before} ^ {*after})] or ["order"]


def compare(old: str, new: str | None = None, folder: Path = Path()) -> dict[str, list[str]]:
    """Return the names of differing statements by file, for the files that differ between two revisions.

    Args:
        old: a revision.
        new: a revision; None is the working tree.
        folder: the git repository.
    """

    def git(*arguments: str) -> str:
        return subprocess.run(
            ["git", *arguments], cwd=folder, capture_output=True, text=True, check=True
        ).stdout

    revisions = [old] if new is None else [old, new]
    words = iter(
        git("diff", "--name-status", "--find-renames", "-z", *revisions, "--", "*.py").split("\0")[:-1]
    )
    result = {}
    for status in words:
        path = next(words)
        if status in ("A", "D"):
            result[path] = ["added" if status == "A" else "removed"]
            continue
        target = next(words) if status[0] == "R" else path
        text = (folder / target).read_text() if new is None else git("show", f"{new}:{target}")
        result[target] = differing(git("show", f"{old}:{path}"), text)
    return result


def main(arguments: Sequence[str]) -> int:
    """Print the differences by file, and return 1 if there are any."""
    old, *rest = arguments
    result = compare(old, rest[0] if rest else None)
    different = {path: names for path, names in sorted(result.items()) if names}
    for path, names in different.items():
        print(f"{path}: {', '.join(names)}")
    print(f"{len(different)} of {len(result)} files differ by more than docstrings, comments and local names")
    return 1 if different else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
