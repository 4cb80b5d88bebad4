"""Temporary checkouts of commits, which are removed after the commits have been measured."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from curvebench.spec.errors import InputError


def git(root: Path, *arguments: str) -> str:
    """Run a git command, and return its output without surrounding white space.

    Raises:
        subprocess.CalledProcessError: if the command fails.
    """
    completed = subprocess.run(["git", *arguments], cwd=root, capture_output=True, text=True, check=True)
    return completed.stdout.strip()


def commit_of(root: Path, name: str) -> str:
    """Return the full hash of a commit, named by branch, tag, hash or an expression such as HEAD~1.

    Raises:
        InputError: if there is no commit of that name.
    """
    try:
        return git(root, "rev-parse", "--verify", "--quiet", "--end-of-options", f"{name}^{{commit}}")
    except subprocess.CalledProcessError as error:
        raise InputError(f"{root}: git knows no commit {name!r}; `git log` lists commits") from error


def last_commits(root: Path, count: int, folders: Sequence[str]) -> list[str]:
    """Return the hashes of the last commits that touch the folders, oldest first."""
    return git(root, "log", f"--max-count={count}", "--format=%H", "--", *folders).splitlines()[::-1]


@contextmanager
def worktree(root: Path, commit: str, folder: Path) -> Iterator[Path]:
    """Check out a commit into `folder`, and remove the folder when the block ends."""
    git(root, "worktree", "add", "--detach", "--force", str(folder), commit)
    try:
        yield folder
    finally:
        git(root, "worktree", "remove", "--force", str(folder))
