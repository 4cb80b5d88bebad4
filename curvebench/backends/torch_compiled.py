"""Compilation by torch.compile: of updates that overwrite buffers, and of the loss of a single run.

The gradient of a single run is computed by ordinary autograd (`torch.autograd`), because `torch.func` is only
needed to map functions over several runs (lanes). An eager function is a function that is not compiled.
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

# Parameters that one call of a rule updates: a tensor, or a mapping from parameter names to tensors.
GroupArrays: TypeAlias = Any
Stepper = Callable[[GroupArrays, Any, GroupArrays, Mapping[str, torch.Tensor], torch.Tensor | None], None]


class NoCompiler(RuntimeError):
    """Raised when torch.compile fails, or when this machine lacks a program that torch.compile needs."""


def require_compiler(compiler: str, device: str) -> None:
    """Check that this machine has the program that a backend of torch.compile needs.

    Raises:
        NoCompiler: when the program is missing.
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
    """Return a function `step(grad, state, param, values, stopped)` that updates a group in place.

    Args:
        ops: array functions of PyTorch.
        part: the rule that updates the group. It also maps each hyperparameter of the rule to its name in the
            whole optimizer, such as `beta1` to `others_beta1`.
        work: expensive computations, such as an eigendecomposition, that the function does before the update.
            Only some steps do such work.
        compiler: backend of torch.compile, which compiles the function as one graph or fails; None for an
            eager function.

    Returns:
        The function. `grad`, `state`, `param` and `values` are the arguments of
        `curvebench.steps.update.updated`. A compiled function accepts arrays of other shapes with the same
        numbers of axes. Runs for which `stopped` (seeds, settings) is true are not updated.
    """

    def step(
        grad: GroupArrays,
        state: Any,
        param: GroupArrays,
        values: Mapping[str, torch.Tensor],
        stopped: torch.Tensor | None,
    ) -> None:
        new, new_state = updated(ops, part, grad, state, param, values, work)
        if stopped is not None:
            new, new_state = select_lanes(ops, stopped, (param, state), (new, new_state))
        # Write the results into the old arrays.
        # Allocating new tensors would take longer than the update.
        if isinstance(param, Mapping):
            # The arrays are overwritten in the order of `param`.
            new = {name: new[name] for name in param}
        olds, leaves = leaves_of((param, state)), leaves_of((new, new_state))
        for old, leaf in zip(olds, without_aliases(leaves, olds, compiler is not None), strict=True):
            if old is not leaf:
                old.copy_(leaf)

    if compiler is None:
        return step
    return torch.compile(
        with_own_code(step),
        fullgraph=True,
        dynamic=True,
        backend=compiler,
        options={"guard_filter_fn": _guards_arguments},
    )


class Compilable:
    """A function that is called unchanged until `compile` compiles it as one graph.

    Args:
        function: the function.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = self.called = function

    def __call__(self, *arguments: Any) -> Any:
        return self.called(*arguments)

    def compile(self, compiler: str, call: Callable[[], Any]) -> None:
        """Compile the function for the argument shapes of `call`; earlier specializations stay valid.

        Args:
            compiler: backend of torch.compile.
            call: function that calls this object with arguments of the shapes to compile for.

        Raises:
            NoCompiler: when the compilation fails; the function is then called unchanged.
        """
        from torch._dynamo.exc import TorchDynamoException

        if self.called is self.function:
            function = with_own_code(self.function)
            self.called = torch.compile(function, fullgraph=True, dynamic=False, backend=compiler)
        try:
            with compiling(), never_eager():
                call()
        except (NoCompiler, TorchDynamoException) as failed:
            self.called = self.function
            raise NoCompiler(str(failed).strip().split("\n")[0]) from failed


def with_own_code(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a copy of a function with a code object of its own, to make calls of its compiled program fast.

    PyTorch stores compiled programs by code object. At each call, it searches all programs that are stored
    for the code object of the function.
    """
    assert isinstance(function, FunctionType)
    return FunctionType(
        function.__code__.replace(),
        function.__globals__,
        function.__name__,
        function.__defaults__,
        function.__closure__,
    )


def leaves_of(tree: Any) -> list[torch.Tensor]:
    """Return the tensors in nested tuples and dictionaries.

    This takes a fifth of the time of PyTorch's `pytree`.
    """
    items = tuple(tree.values()) if isinstance(tree, dict) else tree
    return [leaf for item in items for leaf in leaves_of(item)] if isinstance(items, tuple) else [items]


def _guards_arguments(guards: Sequence[Any]) -> list[bool]:
    """Return, for each guard of a compiled step, whether torch.compile must check it at each call.

    A guard is a condition under which a compiled program is valid. Only guards on arguments are checked. The
    other guards, about 200, are on variables of the enclosing scope, which do not change.
    """
    roots = [re.split(r"\W", guard.name, maxsplit=1)[0] for guard in guards]
    return [root in ("", "grad", "state", "param", "values", "stopped") for root in roots]


def without_aliases(
    leaves: list[torch.Tensor], olds: list[torch.Tensor], compiled: bool
) -> list[torch.Tensor]:
    """Copy each new array that shares memory with an array to be overwritten; return all new arrays.

    Without the copy, a new array would change while other arrays are overwritten.

    Args:
        leaves: new arrays. A new array may be an old array, or a view of an old array.
        olds: the arrays that the new arrays will overwrite, in the same order.
        compiled: whether this code is compiled. Then all arrays are copied, and the compiler removes
            unnecessary copies.
    """
    if compiled:
        return [leaf if leaf is old else leaf.clone() for leaf, old in zip(leaves, olds, strict=True)]
    overwritten = {old.untyped_storage().data_ptr() for old in olds}
    return [
        leaf.clone() if leaf is not old and leaf.untyped_storage().data_ptr() in overwritten else leaf
        for leaf, old in zip(leaves, olds, strict=True)
    ]


@contextmanager
def never_eager() -> Iterator[None]:
    """Return a context in which compiled functions never fall back to eager execution without an error.

    PyTorch falls back when a code object has more specializations than a limit. Groups of parameters share
    code objects and may reach this limit. The limit is therefore increased, and exceeding the increased limit
    is an error. Python numbers of a rule, such as an exponent, are compiled as constants, because as
    variables they would cause a second compilation.
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
    """Return a context that turns errors of the compiler into NoCompiler.

    The caller can catch NoCompiler, and continue with functions that are not compiled.

    Raises:
        NoCompiler: when the compiler fails in the first call of a function.
    """
    from torch._dynamo.exc import BackendCompilerFailed

    try:
        yield
    except BackendCompilerFailed as failed:
        reason = failed.inner_exception
        raise NoCompiler(f"torch.compile cannot compile them ({type(reason).__name__}: {reason})") from failed


# Options of `torch.autograd.grad` with which the gradient of an unused parameter is 0.
UNUSED_ARE_ZERO = {"allow_unused": True, "materialize_grads": True}


class LossGradient(Compilable):
    """A loss of a single run, called for its value and its gradient, which ordinary autograd computes."""

    def __call__(self, params: Mapping[str, torch.Tensor], *arguments: Any) -> Any:
        leaves = {name: value.detach().requires_grad_() for name, value in params.items()}
        with torch.enable_grad():
            value, others = self.called(leaves, *arguments)
        grads = torch.autograd.grad(value, list(leaves.values()), **UNUSED_ARE_ZERO)
        others = {name: other.detach() for name, other in others.items()}
        return (value.detach(), others), dict(zip(leaves, grads, strict=True))


def vjp(function: Callable[..., Any], point: Any) -> tuple[Any, Callable[..., Any], Any]:
    """Return `(value, pullback, others)` for `function(point) -> (value, others)` of a single run.

    The pullback maps a cotangent of the value to a cotangent of `point`, by ordinary autograd.
    """
    leaves, form = pytree.tree_flatten(point)
    leaves = [leaf.detach().requires_grad_() for leaf in leaves]
    with torch.enable_grad():
        value, others = function(pytree.tree_unflatten(leaves, form))

    def pullback(cotangent: torch.Tensor) -> Any:
        grads = torch.autograd.grad(value, leaves, cotangent, retain_graph=True, **UNUSED_ARE_ZERO)
        return pytree.tree_unflatten(grads, form)

    return value.detach(), pullback, pytree.tree_map(torch.Tensor.detach, others)
