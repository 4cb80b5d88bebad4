"""Given gradients fed to an optimizer on any backend: the entry for oracles and tools."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any

import numpy as np

from harness.backends import BACKENDS
from harness.backends.numpy_ops import numpy_ops
from harness.backends.ops import Array, Ops
from harness.errors import InputError
from harness.layout import kinds_of, layout
from harness.program import Constants, Inputs, Program, Update
from optimizers import HyperparameterError, rules
from optimizers.names import unknown
from optimizers.options import OptionError, Options

Basis = np.ndarray | Mapping[str, np.ndarray] | None


def _blocks(basis: Basis, params: Mapping[str, np.ndarray]) -> dict[tuple[str, ...], np.ndarray]:
    if basis is None:
        return {}
    blocks: dict[tuple[str, ...], np.ndarray]
    if isinstance(basis, Mapping):
        blocks = {(name,): np.asarray(matrix, np.float64) for name, matrix in basis.items()}
    else:
        blocks = {tuple(params): np.asarray(basis, np.float64)}
    for group, matrix in blocks.items():
        for name in group:
            if name not in params:
                raise InputError(unknown("the basis", "parameter", name, params))
        size = sum(params[name].size for name in group)
        if matrix.shape != (size, size):
            raise InputError(
                f"basis of {', '.join(group)}: the matrix has shape {matrix.shape} and needs {(size, size)}"
            )
        error = float(np.abs(matrix.T @ matrix - np.eye(size)).max())
        if not error < 1e-6:
            raise InputError(
                f"basis of {', '.join(group)}: the matrix is not orthogonal (|V^T V - I| reaches {error:.1e})"
            )
    return blocks


def _checked(
    grads: Sequence[Mapping[str, Any]], params: Mapping[str, np.ndarray]
) -> list[dict[str, np.ndarray]]:
    checked = []
    for number, grad in enumerate(grads, start=1):
        if set(grad) != set(params):
            raise InputError(
                f"grads of step {number} name {sorted(grad)} where the parameters are {sorted(params)}"
            )
        arrays = {name: np.asarray(grad[name]) for name in params}
        for name, array in arrays.items():
            if array.shape != params[name].shape:
                raise InputError(
                    f"grads of step {number}: {name} has shape {array.shape}, "
                    f"its parameter has {params[name].shape}"
                )
        checked.append(arrays)
    return checked


def replay(
    optimizer: str,
    params: Mapping[str, Any],
    grads: Sequence[Mapping[str, Any]],
    hyper: Mapping[str, float],
    backend: str,
    dtype: str = "float64",
    basis: Basis = None,
    options: Options | None = None,
    kinds: Mapping[str, str] | None = None,
) -> list[dict[str, np.ndarray]]:
    """Feed given gradients to an optimizer and return the parameters after each step.

    It is the engine's own update (harness.program.Program.move), compiled as in a run.

    Args:
        optimizer: a rule's name.
        params: initial parameters by name, any shapes.
        grads: one mapping of gradients a step, with the names and shapes of `params`, in the original
            coordinates also where there is a basis.
        hyper: hyperparameters by full name; what has a default may be left out.
        backend: `jax`, `torch` or `numpy`.
        dtype: `float64` or `float32`.
        basis: None; or one orthogonal (d, d) matrix for all parameters together, each raveled in row-major
            order and laid end to end in the order of `params`; or such a matrix by parameter name. Columns
            are the basis vectors: the optimizer sees V^T theta (000 Alg. 2.1).
        options: the optimizer's options by name; what is left out has its default.
        kinds: the kind of each parameter's role, such as `weight`, `convolution` or `bias`; None for what the
            number of axes suggests.

    Returns:
        One mapping of parameters a step, in the original coordinates.

    Raises:
        InputError: for an unknown name, a wrong option or shape, or a matrix that is not orthogonal.
    """
    if optimizer not in rules():
        raise InputError(unknown("the suite", "optimizer", optimizer, rules()))
    if backend not in (*BACKENDS, "numpy"):
        raise InputError(unknown("the harness", "backend", backend, (*BACKENDS, "numpy")))
    if dtype not in ("float32", "float64"):
        raise InputError(f"dtype = {dtype!r} is not one of float32, float64")
    try:
        rule = rules()[optimizer].choose(options or {})
        values = rule.complete(hyper)
    except (HyperparameterError, OptionError) as error:
        raise InputError(str(error)) from error
    start = {name: np.asarray(value, dtype) for name, value in params.items()}
    if not start:
        raise InputError("params is empty; give at least one named array")
    steps = _checked(grads, start)
    blocks = _blocks(basis, start)
    ops, context, compiled = _tools(backend, dtype)
    shapes = {name: value.shape for name, value in start.items()}
    lay = layout(shapes, kinds or kinds_of(shapes), tuple(blocks))
    program = Program(ops, Update(rule, lay), gradient=_no_gradient, stop_gradient_norm=None)

    def lane(arrays: Mapping[str, np.ndarray]) -> dict[str, Array]:
        return {name: ops.asarray(np.asarray(arrays[name], dtype)[None, None]) for name in start}

    with context:
        constants = Constants(
            data={},
            rows=None,
            matrices=tuple(ops.asarray(matrix[None]) for matrix in blocks.values()),
            hyper={name: ops.asarray(np.full((1, 1, 1), value)) for name, value in values.items()},
        )
        carry = program.start(lane(start), {}, constants)
        coordinates, state = carry.coordinates, carry.state
        moves: dict[bool, Any] = {}
        path = []
        for number, arrays in enumerate(steps, start=1):
            inputs = Inputs(ops.asarray(np.array(float(number))), ops.asarray(np.array(1.0)))
            arguments = (coordinates, state, lane(arrays), constants, inputs)
            refresh = program.update.refreshes(number)
            if refresh not in moves:
                moves[refresh] = compiled(partial(program.move, refresh=refresh), *arguments)
            coordinates, state = moves[refresh](*arguments)
            named = program.parameters(coordinates, constants.matrices)
            path.append({name: np.array(ops.to_numpy(named[name])[0, 0]) for name in start})
    return path


def _no_gradient(*arguments: Any) -> Any:
    raise NotImplementedError("a replay is given its gradients")


def _tools(backend: str, dtype: str) -> tuple[Ops, AbstractContextManager[Any], Any]:
    if backend == "numpy":
        return numpy_ops(dtype), nullcontext(), lambda function, *arguments: function
    from harness.backends.engine import engine

    made = engine(backend, dtype)
    return made.ops, made.context(), made.compiled
