"""Given gradients fed to an optimizer on any backend: the entry for oracles and tools."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any

import numpy as np

from curvebench.arrays.numpy_ops import numpy_ops
from curvebench.arrays.ops import Array, Ops
from curvebench.backends import BACKENDS
from curvebench.interop import FLOATS, chosen, completed
from curvebench.optimizers.options import Options
from curvebench.optimizers.rule import map_arrays
from curvebench.spec.errors import InputError, unknown
from curvebench.steps.derivatives import StepInfo, model_of
from curvebench.steps.layout import by_name, end_to_end, layout, roles_of
from curvebench.steps.program import Constants, Inputs, Program
from curvebench.steps.update import Update, Work
from curvebench.workloads.workload import Role

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


def _checked(grads: Mapping[str, Any], params: Mapping[str, Any], number: int) -> dict[str, np.ndarray]:
    if set(grads) != set(params):
        raise InputError(
            f"grads of step {number} name {sorted(grads)} where the parameters are {sorted(params)}"
        )
    arrays = {name: np.asarray(grads[name]) for name in params}
    for name, array in arrays.items():
        if array.shape != np.shape(params[name]):
            raise InputError(
                f"grads of step {number}: {name} has shape {array.shape}, "
                f"its parameter has {np.shape(params[name])}"
            )
    return arrays


class Online:
    """An optimizer that is given its gradients one by one, as in online learning.

    It is the engine's own update (`Program.apply`), compiled as in a run. The arguments are
    those of `replay`.
    """

    def __init__(
        self,
        optimizer: str,
        params: Mapping[str, Any],
        hyper: Mapping[str, float],
        backend: str = "numpy",
        dtype: str = "float64",
        basis: Basis = None,
        options: Options | None = None,
        kinds: Mapping[str, str | Role] | None = None,
    ) -> None:
        rule = chosen(optimizer, options)
        values = completed(rule, hyper)
        if backend not in (*BACKENDS, "numpy"):
            raise InputError(unknown("the harness", "backend", backend, (*BACKENDS, "numpy")))
        if dtype not in FLOATS:
            raise InputError(f"dtype = {dtype!r} is not one of {', '.join(FLOATS)}")
        start = {name: np.asarray(value, dtype) for name, value in params.items()}
        if not start:
            raise InputError("params is empty; give at least one named array")
        blocks = _blocks(basis, start)
        shapes = {name: value.shape for name, value in start.items()}
        try:
            rule.check_dtype(dtype)
            lay = layout(shapes, roles_of(shapes, kinds), tuple(blocks))
            update = Update(rule, lay)
            assert update.groups  # an option may be wrong for a shape
        except ValueError as error:  # the layout's too
            raise InputError(str(error)) from error
        self._ops, self._context, self._compile = _tools(backend, dtype)
        self._dtype, self._start, self._steps = dtype, start, 0
        self._program = Program(self._ops, update, _no_evaluation, parameter_dtype=self._ops.dtype)
        self._moves: dict[int, Any] = {}
        with self._context():
            self._constants = Constants(
                data={},
                rows=None,
                matrices=tuple(self._ops.asarray(matrix[None]) for matrix in blocks.values()),
                hyper={name: self._ops.asarray(np.full((1, 1, 1), value)) for name, value in values.items()},
            )
            self._carry = self._program.start(self._lane(start), {}, self._constants)

    @property
    def params(self) -> dict[str, np.ndarray]:
        """The parameters by name, in the original coordinates."""
        with self._context():
            return self._named(self._program.parameters(self._carry.coordinates, self._constants.matrices))

    def gradient_at(self, schedule: float = 1.0) -> dict[str, np.ndarray]:
        """Where the optimizer wants its next gradient: at the parameters, or where it looks ahead to."""
        with self._context():
            return self._named(self._program.point(self._carry, self._constants, self._inputs(schedule)))

    def step(self, grads: Mapping[str, Any], schedule: float = 1.0, **needed: Any) -> dict[str, np.ndarray]:
        """The parameters after an update.

        Args:
            grads: gradients by parameter name.
            schedule: what this step's learning rate is multiplied with.
            needed: what the rule needs besides, by name, such as a `hessian` (d, d), for parameters that are
                raveled in row-major order and laid end to end, in the order in which they were given.

        Raises:
            InputError: for a wrong name or shape, or where something is needed that is not given.
        """
        program, number = self._program, self._steps + 1
        arrays = _checked(grads, self._start, number)
        work = program.update.work_of(number)
        with self._context():
            info = StepInfo(self._ops.zeros((1, 1)), self._lane(arrays), {}, self._needed(needed, work))
            arguments = (self._carry, info, self._constants, self._inputs(schedule))
            if work not in self._moves:
                self._moves[work] = self._compile(partial(program.apply, work=work), *arguments)
            self._carry = self._moves[work](*arguments)
            self._steps = number
            return self.params

    def _inputs(self, schedule: float) -> Inputs:
        asarray = self._ops.asarray
        return Inputs(asarray(np.array(float(self._steps + 1))), asarray(np.array(float(schedule))))

    def _lane(self, arrays: Mapping[str, np.ndarray]) -> dict[str, Array]:
        return {
            name: self._ops.asarray(np.asarray(arrays[name], self._dtype)[None, None]) for name in self._start
        }

    def _needed(self, given: Mapping[str, Any], work: Work) -> dict[str, Any]:
        """What the rule needs besides the gradient, (1, 1, ...) in the order of the layout."""
        update, asarray = self._program.update, self._ops.asarray
        given_order = {name: value.shape for name, value in self._start.items()}
        places = by_name(numpy_ops(), given_order, np.arange(update.layout.entries))
        order = end_to_end(numpy_ops(), update.layout.parameters, places, 0)
        names = {need.name for need in update.bound.needs}
        for name in given:
            if name not in names:
                raise InputError(unknown(update.rule.name, "need", name, names))
        found = {}
        for need in update.bound.needs:
            if need.amortized and not work & Work.OBSERVE:
                continue
            value, example = given.get(need.name), need.example(model_of(update.layout))
            if not _alike(value, example):
                raise InputError(
                    f"{update.rule.name} needs {need.description} of shape {_shapes(example)} at every step"
                    f"{' that observes' if need.amortized else ''}, and got "
                    f"{'none' if value is None else _shapes(value)}"
                )
            lane = map_arrays(lambda array: np.asarray(array, np.float64)[None, None], value)
            if need.change_basis is not None:
                lane = need.change_basis(numpy_ops(), lambda flat: flat[..., order], lane)
            found[need.name] = map_arrays(lambda array: asarray(np.asarray(array, self._dtype)), lane)
        return found

    def _named(self, params: Mapping[str, Array]) -> dict[str, np.ndarray]:
        return {name: np.array(self._ops.to_numpy(params[name])[0, 0]) for name in self._start}


def _shapes(value: Any) -> Any:
    """The shape of an array, or those of nested mappings of arrays."""
    return map_arrays(np.shape, value)


def _alike(value: Any, example: Any) -> bool:
    """Whether a value has the names and shapes of an example."""
    if isinstance(example, Mapping):
        same = isinstance(value, Mapping) and set(value) == set(example)
        return same and all(_alike(value[name], one) for name, one in example.items())
    return value is not None and not isinstance(value, Mapping) and np.shape(value) == np.shape(example)


def replay(
    optimizer: str,
    params: Mapping[str, Any],
    grads: Sequence[Mapping[str, Any]],
    hyper: Mapping[str, float],
    backend: str,
    dtype: str = "float64",
    basis: Basis = None,
    options: Options | None = None,
    kinds: Mapping[str, str | Role] | None = None,
    needs: Sequence[Mapping[str, Any] | None] | None = None,
) -> list[dict[str, np.ndarray]]:
    """Feed given gradients to an optimizer and return the parameters after each step.

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
        kinds: the kind of each parameter's role, such as `weight`, `convolution` or `bias`, or the role
            itself, with its layer; what is left out is what the number of axes suggests, and layers are
            numbered in the order of `params` (curvebench.steps.layout.roles_of).
        needs: of each step what the optimizer needs besides, by name: a `hessian` (d, d), in the order of a
            basis for all parameters, or `layers`, at the steps that observe them; None where nothing is.

    Returns:
        One mapping of parameters a step, in the original coordinates.

    Raises:
        InputError: for an unknown name, a wrong option or shape, or a matrix that is not orthogonal.
    """
    if needs is not None and len(needs) != len(grads):
        raise InputError(f"needs: there are {len(needs)} for {len(grads)} steps; give one a step")
    online = Online(optimizer, params, hyper, backend, dtype, basis, options, kinds)
    for number, one in enumerate(grads, start=1):
        _checked(one, params, number)  # all of them before the first is computed with
    return [online.step(one, 1.0, **((needs and needs[number]) or {})) for number, one in enumerate(grads)]


def _no_evaluation(*arguments: Any) -> StepInfo:
    raise NotImplementedError("a replay is given its gradients")


def _tools(backend: str, dtype: str) -> tuple[Ops, Callable[[], AbstractContextManager[Any]], Any]:
    if backend == "numpy":
        return numpy_ops(dtype), nullcontext, lambda function, *arguments: function
    from curvebench.backends.engine import engine

    made = engine(backend, dtype)
    return made.ops, made.context, made.compiled
