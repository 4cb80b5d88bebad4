"""What torch.compile compiles: updates, written into their buffers, and functions of a single run.

Gradients of a single run are taken by plain autograd, which nothing maps over lanes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import FunctionType
from typing import Any, TypeAlias

import torch
from torch.utils import _pytree as pytree

from curvebench.arrays.ops import Ops
from curvebench.optimizers.rule import Part
from curvebench.steps.program import select_lanes
from curvebench.steps.update import Work, updated

Seen: TypeAlias = Any  # what a rule sees of parameters: a torch.Tensor, or several by name
Stepper = Callable[[Seen, Any, Seen, Mapping[str, torch.Tensor], torch.Tensor | None], None]


class NoCompiler(RuntimeError):
    """torch.compile cannot be used: what it needs is not on this machine, or it fails; the message says."""


def require_compiler(compiler: str, device: str) -> None:
    """Look for what a compiler of torch.compile needs.

    Raises:
        NoCompiler: when it is not there.
    """
    if compiler != "inductor":
        return
    if device != "cpu":
        from torch.utils._triton import has_triton

        if not has_triton():
            raise NoCompiler("torch.compile finds no Triton for this GPU")
        return
    from torch._inductor.cpp_builder import get_cpp_compiler
    from torch._inductor.exc import InvalidCxxCompiler

    try:
        get_cpp_compiler()
    except InvalidCxxCompiler as error:
        raise NoCompiler("torch.compile finds no C++ compiler on this machine") from error


def stepper(ops: Ops, part: Part, work: Work, compiler: str | None) -> Stepper:
    """The update of leaves in place: `step(grad, state, param, values, held)`.

    Args:
        ops: the table of the backend.
        part: the rule; `values` are its optimizer's hyperparameters, `step` and `schedule`.
        work: the amortized work that is done before.
        compiler: of torch.compile, which then makes one graph of it or fails; None for eager.

    Returns:
        A function of arrays as `updated` takes them, of any shapes with as many axes. Lanes
        marked in `held` (S, K) stay as they are.
    """

    def step(
        grad: Seen,
        state: Any,
        param: Seen,
        values: Mapping[str, torch.Tensor],
        held: torch.Tensor | None,
    ) -> None:
        new, new_state = updated(ops, part, grad, state, param, values, work)
        if held is not None:
            new, new_state = select_lanes(ops, held, (param, state), (new, new_state))
        # Fresh tensors cost more than the update itself: everything is written where it was.
        if isinstance(param, Mapping):
            new = {name: new[name] for name in param}  # leaves are paired by their order
        olds, leaves = leaves_of((param, state)), leaves_of((new, new_state))
        for old, leaf in zip(olds, without_aliases(leaves, olds, compiler is not None), strict=True):
            if old is not leaf:
                old.copy_(leaf)

    if compiler is None:
        return step
    return torch.compile(
        own_code(step),
        fullgraph=True,
        dynamic=True,
        backend=compiler,
        options={"guard_filter_fn": _of_arguments},
    )


class Compilable:
    """A function that is called as it is, until it is compiled as one graph."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = self.called = function

    def __call__(self, *given: Any) -> Any:
        return self.called(*given)

    def compile(self, compiler: str, call: Callable[[], Any]) -> None:
        """Compile it for the shapes of a call, beside those of calls before.

        Raises:
            NoCompiler: where that fails; it is then called as it is.
        """
        from torch._dynamo.exc import TorchDynamoException

        if self.called is self.function:
            own = own_code(self.function)
            self.called = torch.compile(own, fullgraph=True, dynamic=False, backend=compiler)
        try:
            with compiling(), never_eager():
                call()
        except (NoCompiler, TorchDynamoException) as failed:
            self.called = self.function
            raise NoCompiler(str(failed).strip().split("\n")[0]) from failed


def own_code(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function with a code object of its own: torch looks compiled code up by it, through all it has."""
    assert isinstance(function, FunctionType)
    return FunctionType(
        function.__code__.replace(),
        function.__globals__,
        function.__name__,
        function.__defaults__,
        function.__closure__,
    )


def leaves_of(tree: Any) -> list[torch.Tensor]:
    """The tensors of nested tuples and dictionaries, in a fifth of the time of torch's own pytree."""
    parts = tuple(tree.values()) if isinstance(tree, dict) else tree
    return [leaf for part in parts for leaf in leaves_of(part)] if isinstance(parts, tuple) else [parts]


def _of_arguments(guards: Sequence[Any]) -> list[bool]:
    """Which of torch's guards a call checks: what a step closes over, some 200 guards, does not change."""
    roots = [re.split(r"\W", guard.name, maxsplit=1)[0] for guard in guards]
    return [root in ("", "grad", "state", "param", "values", "held") for root in roots]


def without_aliases(
    leaves: list[torch.Tensor], olds: list[torch.Tensor], compiled: bool
) -> list[torch.Tensor]:
    """New arrays, with a copy of those that another array's overwriting would change.

    Args:
        leaves, olds: new arrays and those that they overwrite, in the same order; a new one may be an old
            one, or a view of it.
        compiled: whether the compiler sees this; it leaves out the copies that are not needed.
    """
    if compiled:
        return [leaf if leaf is old else leaf.clone() for leaf, old in zip(leaves, olds, strict=True)]
    held = {old.untyped_storage().data_ptr() for old in olds}
    return [
        leaf.clone() if leaf is not old and leaf.untyped_storage().data_ptr() in held else leaf
        for leaf, old in zip(leaves, olds, strict=True)
    ]


@contextmanager
def never_eager() -> Iterator[None]:
    """Compiled functions fail where they would drop to eager: pieces share code, and torch counts by code.

    A rule's own numbers, such as an exponent, are constants: as variables they would have it compiled twice.
    """
    with torch._dynamo.config.patch(
        recompile_limit=1 << 16,
        accumulated_recompile_limit=1 << 16,
        fail_on_recompile_limit_hit=True,
        specialize_float=True,
    ):
        yield


@contextmanager
def compiling() -> Iterator[None]:
    """A fault of the compiler, which must not end a run, becomes NoCompiler.

    Raises:
        NoCompiler: where a first call fails in the compiler.
    """
    from torch._dynamo.exc import BackendCompilerFailed

    try:
        yield
    except BackendCompilerFailed as failed:
        reason = failed.inner_exception
        raise NoCompiler(f"torch.compile cannot compile them ({type(reason).__name__}: {reason})") from failed


UNUSED_ARE_ZERO = {"allow_unused": True, "materialize_grads": True}


class LossGradient(Compilable):
    """Value and gradient of a function that is not mapped, by plain autograd."""

    def __call__(self, params: Mapping[str, torch.Tensor], *given: Any) -> Any:
        leaves = {name: value.detach().requires_grad_() for name, value in params.items()}
        with torch.enable_grad():
            value, others = self.called(leaves, *given)
        grads = torch.autograd.grad(value, list(leaves.values()), **UNUSED_ARE_ZERO)
        others = {name: other.detach() for name, other in others.items()}
        return (value.detach(), others), dict(zip(leaves, grads, strict=True))


def vjp(function: Callable[..., Any], point: Any) -> tuple[Any, Callable[..., Any], Any]:
    """Plain autograd, for a function that is not mapped."""
    leaves, form = pytree.tree_flatten(point)
    leaves = [leaf.detach().requires_grad_() for leaf in leaves]
    with torch.enable_grad():
        value, others = function(pytree.tree_unflatten(leaves, form))

    def pullback(cotangent: torch.Tensor) -> Any:
        grads = torch.autograd.grad(value, leaves, cotangent, retain_graph=True, **UNUSED_ARE_ZERO)
        return pytree.tree_unflatten(grads, form)

    return value.detach(), pullback, pytree.tree_map(torch.Tensor.detach, others)
