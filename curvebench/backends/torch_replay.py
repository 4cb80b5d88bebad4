"""Recording of the evaluation of a step as a graph of PyTorch operations, which later steps replay.

Lanes are the runs that are computed together. For small arrays, mapping over lanes and automatic
differentiation take longer than the array operations that they call. A replay calls only the array
operations.
"""

from __future__ import annotations

import operator
from collections.abc import Mapping
from typing import Any

import torch
from torch.fx import Graph, GraphModule
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from curvebench.steps.derivatives import Evaluation, StepInfo

# An evaluation is recorded only if the results of its operations together have at most this size.
# The size is limited because recording keeps all results in memory.
# Larger evaluations also gain less from a replay, since each of their operations takes long.
MAX_BYTES = 1 << 29
# Tags of operations that cannot be replayed, because they draw random numbers or return numbers to the host.
# The host may use a returned number in an `if`, of which only one branch would be recorded.
REFUSED = {torch.Tag.nondeterministic_seeded, torch.Tag.data_dependent_output}
MASKS = (torch.bool, torch.uint8)
# Methods of a tensor that return its numbers to the host without calling an operation of PyTorch.
READS = (torch.Tensor.numpy, torch.Tensor.tolist, torch.Tensor.__array__)


class _NotReplayable(RuntimeError):
    """Raised when an evaluation is too large to be recorded, or has side effects or varying operations."""


def _memory_key(tensor: torch.Tensor) -> tuple[Any, ...]:
    """Return a key that is equal for two tensors if they view memory in the same way.

    The key consists of address, type, shape and strides.

    Raises:
        _NotReplayable: when the tensor is not strided.
    """
    if tensor.layout is not torch.strided:
        raise _NotReplayable(f"it has an array of layout {tensor.layout}")
    return tensor.data_ptr(), tensor.dtype, tensor.shape, tensor.stride()


def _has_dynamic_shape(function: Any, leaves: list[Any]) -> bool:
    """Return whether the shape of the result of `function` depends on values.

    Examples are `nonzero`, and indexing with a mask.
    """
    if torch.Tag.dynamic_output_shape not in function.tags:
        return False
    if function is not torch.ops.aten.index.Tensor:
        return True
    return any(isinstance(leaf, torch.Tensor) and leaf.dtype in MASKS for leaf in leaves[1:])


class _Recorder(TorchDispatchMode):  # type: ignore[misc]  # torch has no types here
    """Context that records the operations called in it as a graph.

    An operation that is called several times with the same arguments is recorded once. A view of a whole
    tensor is not recorded, since the view has the same memory as the tensor.

    Args:
        arguments: the tensors that a replay will receive.
    """

    def __init__(self, arguments: list[torch.Tensor]) -> None:
        super().__init__()
        self.graph = Graph()
        self.constants: dict[str, torch.Tensor] = {}
        self.nodes: dict[Any, Any] = {}  # node of the graph for each tensor, by `_memory_key`
        for number, tensor in enumerate(arguments):
            self.nodes[_memory_key(tensor)] = self.graph.placeholder(f"given_{number}")
        if len(self.nodes) < len(arguments):
            raise _NotReplayable("two arguments are the same")
        self.calls: dict[Any, Any] = {}  # node of the graph for each call, by operation and arguments
        # Keep every result in memory. Otherwise another tensor might get the memory of a result, and its key.
        self.results: list[torch.Tensor] = []
        self.bytes = 0

    def node(self, value: Any) -> Any:
        """Return the node of a value in the graph.

        A tensor that no recorded operation has computed is a constant.
        """
        if not isinstance(value, torch.Tensor):
            return value
        key = _memory_key(value)
        if key not in self.nodes:
            name = f"constant_{len(self.constants)}"
            self.constants[name] = value
            self.nodes[key] = self.graph.get_attr(name)
        return self.nodes[key]

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        leaves, form = pytree.tree_flatten((args, kwargs or {}))
        refused = function._schema.is_mutable or not REFUSED.isdisjoint(function.tags)
        if refused or _has_dynamic_shape(function, leaves):
            raise _NotReplayable(f"it calls {function}")
        leaves = list(map(self.node, leaves))
        # Compare floats by their digits, because 0.0 equals -0.0.
        values = ((type(leaf), repr(leaf) if isinstance(leaf, float) else leaf) for leaf in leaves)
        key = (function, form, *values)
        result = function(*args, **(kwargs or {}))
        if key not in self.calls:
            self.calls[key] = self.graph.call_function(function, *pytree.tree_unflatten(leaves, form))
        self._register(result, self.calls[key])
        return result

    def _register(self, result: Any, node: Any) -> None:
        """Store the node of `result`, a tensor or a tuple of tensors, by the memory key of each tensor."""
        if isinstance(result, torch.Tensor):
            self.results.append(result)
            self.nodes.setdefault(_memory_key(result), node)
            self.bytes += result.numel() * result.element_size()
            if self.bytes > MAX_BYTES:
                raise _NotReplayable("it is large")
        elif isinstance(result, tuple | list):
            for number, item in enumerate(result):
                self._register(item, self.graph.call_function(operator.getitem, (node, number)))

    def replay_of(self, results: Any) -> Any:
        """Return a function that replays the recorded operations, to compute `results` from other arguments.

        Args:
            results: nested tuples and mappings of recorded tensors.
        """
        self.graph.output(pytree.tree_map(self.node, results))
        self.graph.eliminate_dead_code()
        return GraphModule(self.constants, self.graph).forward


class _ReadsRefused(TorchFunctionMode):  # type: ignore[misc]  # torch has no types here
    """Context in which an error is raised if the host reads the numbers of a tensor."""

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if function in READS:
            raise _NotReplayable(f"it calls {function.__name__}")
        return function(*args, **(kwargs or {}))


def _kind(arrays: Mapping[str, torch.Tensor]) -> tuple[Any, ...]:
    """Return the names, shapes, strides and types of arrays.

    A record can be replayed for other arrays only if their names, shapes, strides and types equal the names,
    shapes, strides and types of the recorded arguments.
    """
    return tuple((name, array.shape, array.stride(), array.dtype) for name, array in arrays.items())


def replayed(evaluation: Evaluation) -> Evaluation:
    """Return an evaluation that records `evaluation` at the first call, and replays the record later.

    There is one record for each combination of names, shapes, strides and types of the arguments. As with a
    compiler, a record is valid only if the evaluation always calls the same operations. `evaluation` is not
    recorded, but called each time, if it reads a number on the host, draws random numbers, writes in place,
    has shapes that depend on values, or computes large arrays.
    """
    records: dict[Any, Any] = {}

    def evaluate(
        params: Mapping[str, torch.Tensor],
        model: Mapping[str, torch.Tensor],
        batch: Mapping[str, torch.Tensor],
        noise: Mapping[str, torch.Tensor],
        observes: bool,
    ) -> StepInfo:
        arguments = [tensor for arrays in (params, model, batch, noise) for tensor in arrays.values()]
        # The key includes the order of names, because a loss may return its model state in another order.
        kind = (observes, *(_kind(arrays) for arrays in (params, model, batch, noise)))
        if kind not in records:
            try:
                with _ReadsRefused(), _Recorder(arguments) as recorder:
                    info = evaluation(params, model, batch, noise, observes)
                records[kind] = recorder.replay_of(tuple(info))
                return info
            except _NotReplayable:
                records[kind] = None
        if records[kind] is None:
            return evaluation(params, model, batch, noise, observes)
        return StepInfo(*records[kind](*arguments))

    return evaluate
