"""What tables call a method: an optimizer in a basis."""

from __future__ import annotations

IDENTITY = "identity"  # the basis of the original coordinates


def method_label(optimizer: str, basis: str) -> str:
    """`adam` in the identity basis, `adam @ egop` in another."""
    return optimizer if basis == IDENTITY else f"{optimizer} @ {basis}"


def method_parts(method: str) -> tuple[str, str]:
    """The optimizer and the basis of a label."""
    optimizer, at, basis = method.partition(" @ ")
    return optimizer, basis if at else IDENTITY
