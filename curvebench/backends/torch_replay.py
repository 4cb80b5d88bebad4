"""The evaluation of a step, recorded once as PyTorch's operations and replayed without what led to them.

For small arrays, mapping and automatic differentiation take longer than the operations that they lead to.
"""

from __future__ import annotations

import operator
from collections.abc import Mapping
from typing import Any

import torch
from torch.fx import Graph, GraphModule
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from curvebench.steps.derivatives import Evaluation, StepInfo

# Of all that an evaluation computes on its way: in larger ones the time before operations does not show.
MOST_BYTES = 1 << 28
# Draws, and what asks for a number, as `if` does.
REFUSED = {torch.Tag.nondeterministic_seeded, torch.Tag.data_dependent_output}
MASKS = (torch.bool, torch.uint8)


class _NotReplayable(RuntimeError):
    """What is no fixed sequence of operations without side effects, or is large."""


def _place(tensor: torch.Tensor) -> tuple[Any, ...]:
    """Equal for tensors that show the same entries of the same memory in the same order."""
    if tensor.layout is not torch.strided:
        raise _NotReplayable(f"it has an array of layout {tensor.layout}")
    return tensor.data_ptr(), tensor.dtype, tensor.shape, tensor.stride()


def _chooses(function: Any, leaves: list[Any]) -> bool:
    """Whether the shape of a result depends on values, as of nonzero, and where a mask is an index."""
    if torch.Tag.dynamic_output_shape not in function.tags:
        return False
    if function is not torch.ops.aten.index.Tensor:
        return True
    return any(isinstance(leaf, torch.Tensor) and leaf.dtype in MASKS for leaf in leaves[1:])


class _Recorder(TorchDispatchMode):  # type: ignore[misc]  # torch has no types here
    """Puts the operations that are called inside into a graph: equal ones once, views of a whole never."""

    def __init__(self, given: list[torch.Tensor]) -> None:
        super().__init__()
        self.graph = Graph()
        self.constants: dict[str, torch.Tensor] = {}
        self.nodes: dict[Any, Any] = {}  # by place
        for number, tensor in enumerate(given):
            self.nodes[_place(tensor)] = self.graph.placeholder(f"given_{number}")
        if len(self.nodes) < len(given):
            raise _NotReplayable("two arguments are the same")
        self.known: dict[Any, Any] = {}
        self.kept: list[torch.Tensor] = []  # no other tensor takes its place
        self.bytes = 0

    def node(self, value: Any) -> Any:
        """What stands for a value in the graph; a tensor that comes from elsewhere is a constant."""
        if not isinstance(value, torch.Tensor):
            return value
        place = _place(value)
        if place not in self.nodes:
            name = f"constant_{len(self.constants)}"
            self.constants[name] = value
            self.nodes[place] = self.graph.get_attr(name)
        return self.nodes[place]

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        leaves, form = pytree.tree_flatten((args, kwargs or {}))
        if function._schema.is_mutable or not REFUSED.isdisjoint(function.tags) or _chooses(function, leaves):
            raise _NotReplayable(f"it calls {function}")
        leaves = list(map(self.node, leaves))
        # floats by their digits: 0.0 == -0.0
        key = (function, form, *((type(one), repr(one) if isinstance(one, float) else one) for one in leaves))
        found = function(*args, **(kwargs or {}))
        if key not in self.known:
            self.known[key] = self.graph.call_function(function, *pytree.tree_unflatten(leaves, form))
        self._keep(found, self.known[key])
        return found

    def _keep(self, found: Any, node: Any) -> None:
        """Know a result, or each of several, by its place."""
        if isinstance(found, torch.Tensor):
            self.kept.append(found)
            self.nodes.setdefault(_place(found), node)
            self.bytes += found.numel() * found.element_size()
            if self.bytes > MOST_BYTES:
                raise _NotReplayable("it is large")
        elif isinstance(found, tuple | list):
            for number, part in enumerate(found):
                self._keep(part, self.graph.call_function(operator.getitem, (node, number)))

    def made(self, found: Any) -> Any:
        """A function of the given tensors that returns a tree of what was found."""
        self.graph.output(pytree.tree_map(self.node, found))
        self.graph.eliminate_dead_code()
        return GraphModule(self.constants, self.graph).forward


def _kind(named: Mapping[str, torch.Tensor]) -> tuple[Any, ...]:
    return tuple((name, one.shape, one.stride(), one.dtype) for name, one in named.items())


def replayed(evaluation: Evaluation) -> Evaluation:
    """The same evaluation, recorded at its first call with arrays of each kind.

    Like a compiler's, its record holds for what always calls the same operations. One that asks for a number,
    draws, writes in place or has shapes that depend on values is evaluated as it is, as is one of large
    arrays.
    What leaves PyTorch, by `tolist` or `numpy`, is not seen; a loss that does is none on JAX either.
    """
    records: dict[Any, Any] = {}

    def evaluate(
        params: Mapping[str, torch.Tensor],
        model: Mapping[str, torch.Tensor],
        batch: Mapping[str, torch.Tensor],
        noise: Mapping[str, torch.Tensor],
        observes: bool,
    ) -> StepInfo:
        given = [tensor for named in (params, model, batch, noise) for tensor in named.values()]
        # with names: a model's state comes back in the order in which a loss returns it
        kind = (observes, *(_kind(named) for named in (params, model, batch, noise)))
        if kind not in records:
            try:
                with _Recorder(given) as recorder:
                    info = evaluation(params, model, batch, noise, observes)
                records[kind] = recorder.made(tuple(info))
                return info
            except _NotReplayable:
                records[kind] = None
        if records[kind] is None:
            return evaluation(params, model, batch, noise, observes)
        return StepInfo(*records[kind](*given))

    return evaluate
